"""`translate --format` writes a document, and answers mistakes by one line before a model is loaded."""

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.file_utils import save_model_folder


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<p>A man is <b>sleeping</b> at https://a.example/b.</p><!-- c -->")
    return path


def test_translate_writes_a_document(tiny_model, tiny_tokenizer, tmp_path, page, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    output = tmp_path / "new" / "page.html"
    flags = ["--format", "html", "--input", str(page), "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags, "--output", str(output)]) == 0
    written = output.read_text()
    assert written.startswith("<p>") and written.endswith("</p><!-- c -->")
    assert written.count("<b>") == written.count("</b>") == 1 and "https://a.example/b" in written
    assert [path.name for path in output.parent.iterdir()] == ["page.html"]
    assert main(["translate", str(folder), *flags]) == 0
    assert capsys.readouterr().out == written


def test_translate_no_protect_leaves_the_text_of_a_document_to_the_model(
    tiny_model, tiny_tokenizer, tmp_path, page, capsys
):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    flags = ["--format", "html", "--input", str(page), "--max_new_tokens", "5", "--no_protect"]
    assert main(["translate", str(folder), *flags]) == 0
    assert "https://a.example/b" not in capsys.readouterr().out


def test_translate_reads_and_writes_files_of_text(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "in.txt").write_text("A man.\n\nTwo dogs.\n")
    flags = ["--input", str(tmp_path / "in.txt"), "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags]) == 0
    printed = capsys.readouterr().out
    assert main(["translate", str(folder), *flags, "--output", str(tmp_path / "out.txt")]) == 0
    assert (tmp_path / "out.txt").read_text() == printed and printed.count("\n") == 3


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--format", "pdf", "--input", "{page}"], "`format` must be one of html, xml"),
        (["--format", "html", "--input", "{missing}"], "No such file"),
        (["--format", "html", "--input", "{latin}"], "must be UTF-8, but line 1 has the byte"),
        (["--input", "{latin}"], "must be UTF-8"),
        (["--format", "xml", "--input", "{page}", "--json"], "there is one translation"),
        (["--format", "xml", "--input", "{page}", "--do_sample"], "there is one translation"),
        (["A sentence.", "--input", "{page}"], "Give sentences or a file"),
        (["--format", "html", "--sentence_splitter", "no"], "`sentence_splitter` must be"),
    ],
)
def test_translate_names_mistakes(flags, message, tmp_path, page, capsys):
    (tmp_path / "latin.html").write_bytes(b"\xe9")
    paths = {"missing": tmp_path / "missing", "latin": tmp_path / "latin.html", "page": page}
    output = tmp_path / "out"
    flags = [flag.format(**paths) if flag.startswith("{") else flag for flag in flags]
    assert main(["translate", "no/model", *flags, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not output.exists()


def test_translate_names_a_malformed_document_and_keeps_the_old_output(tmp_path, capsys):
    (tmp_path / "in.xlf").write_text("<xliff><file></xliff>")
    (tmp_path / "out.xlf").write_text("old")
    files = ["--input", str(tmp_path / "in.xlf"), "--output", str(tmp_path / "out.xlf")]
    assert main(["translate", "no/model", "--format", "xliff", *files]) == 2
    error = capsys.readouterr().err
    assert "error: The text must be well-formed XML" in error and error.count("\n") == 1
    assert (tmp_path / "out.xlf").read_text() == "old"
