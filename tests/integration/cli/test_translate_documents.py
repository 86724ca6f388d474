"""`translate --format` writes a document, and answers mistakes by one line before a model is
loaded.
"""

import copy
import gzip
import io
import re
import textwrap
import zipfile

import pytest

from vanilla_transformer.cli import main, translate
from vanilla_transformer.extensions.documents import html_format
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, store_direction


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<p>A man is <b>sleeping</b> at https://a.example/b.</p><!-- c -->")
    return path


@pytest.mark.parametrize("name", ["page.html", "page.HTML.gz"])
def test_translate_writes_a_document(tiny_model, tiny_tokenizer, tmp_path, page, capsys, name):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    output = tmp_path / "new" / "page.html"
    if name.endswith(".gz"):
        (tmp_path / name).write_bytes(gzip.compress(page.read_bytes()))
    flags = ["--input", str(tmp_path / name), "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags, "--output", str(output)]) == 0
    written = output.read_text()
    assert written.startswith("<p>") and written.endswith("</p><!-- c -->")
    assert written.count("<b>") == written.count("</b>") == 1 and "https://a.example/b" in written
    assert [path.name for path in output.parent.iterdir()] == ["page.html"]
    assert main(["translate", str(folder), *flags]) == 0
    assert capsys.readouterr().out == written


def test_translate_keeps_the_bytes_of_a_page_and_names_its_language(
    tiny_model, tiny_tokenizer, tmp_path
):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    page, output = tmp_path / "page.html", tmp_path / "out.html"
    before = "\ufeff<!doctype html>\r\n<html lang='en'>\r\n<p>"
    after = "<p lang=fr>Un homme</p>\r\n<!-- A man --><br />"
    page.write_bytes(f"{before}A man{after}".encode())
    flags = [
        "--format",
        "html",
        "--input",
        str(page),
        "--output",
        str(output),
        "--max_new_tokens",
        "5",
    ]
    assert main(["translate", str(folder), *flags]) == 0
    written = output.read_bytes().decode()
    assert written.startswith(before) and written.endswith(after) and "A man<p" not in written
    flags += ["--overwrite", "--source_language", "en", "--target_language", "de"]
    assert main(["translate", str(folder), *flags]) == 0
    named = output.read_bytes().decode()
    assert named == written.replace("'en'", "'de'")


def test_translate_knows_the_languages_that_a_model_was_trained_with(
    tiny_model, tiny_tokenizer, tmp_path, capsys
):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, EN_DE)
    folder = save_model_folder(tiny_model, tokenizer, tmp_path / "model")
    (tmp_path / "page.html").write_text("<html lang=en><p>A man <p lang=fr>Un homme")
    flags = ["--format", "html", "--input", str(tmp_path / "page.html"), "--max_new_tokens", "5"]
    for given, named in (([], "de"), (["--target_language", "de-AT"], "de-AT")):
        assert main(["translate", str(folder), *flags, *given]) == 0
        written = capsys.readouterr().out
        assert written.startswith(f"<html lang={named}><p>") and written.endswith(
            " <p lang=fr>Un homme"
        )
    for side, code, own in (("source", "fr", "en"), ("target", "fr", "de")):
        assert main(["translate", str(folder), *flags, f"--{side}_language", code]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error == f"error: The {side} language must be {own}, as of the model, got {code}."


def test_translate_no_protect_leaves_the_text_of_a_document_to_the_model(
    tiny_model, tiny_tokenizer, tmp_path, page, capsys
):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    flags = ["--format", "html", "--input", str(page), "--max_new_tokens", "5", "--no_protect"]
    assert main(["translate", str(folder), *flags]) == 0
    assert "https://a.example/b" not in capsys.readouterr().out


def test_translate_reads_and_writes_files_of_text(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    flags = ["--input", str(tmp_path / "in.txt"), "--max_new_tokens", "5"]
    for text in ("A man.\n\nTwo dogs.\n", "\n \n\n"):
        (tmp_path / "in.txt").write_text(text)
        assert main(["translate", str(folder), *flags]) == 0
        printed = capsys.readouterr().out
        assert (
            main(
                [
                    "translate",
                    str(folder),
                    *flags,
                    "--overwrite",
                    "--output",
                    str(tmp_path / "out.txt"),
                ]
            )
            == 0
        )
        assert (tmp_path / "out.txt").read_text() == printed and printed.count("\n") == 3
        assert bool(printed.strip()) == bool(text.strip())


def test_translate_names_a_malformed_document_and_keeps_the_old_output(tmp_path, capsys):
    (tmp_path / "in.xlf").write_text("<xliff><file></xliff>")
    (tmp_path / "out.xlf").write_text("old")
    files = ["--input", str(tmp_path / "in.xlf"), "--output", str(tmp_path / "out.xlf")]
    assert main(["translate", "no/model", "--format", "xliff", "--overwrite", *files]) == 2
    error = capsys.readouterr().err
    assert (
        f"error: {tmp_path / 'in.xlf'}: The text must be well-formed XML" in error
        and "line 1" in error
        and error.count("\n") == 1
    )
    assert (tmp_path / "out.xlf").read_text() == "old"


VTT = "WEBVTT\n\n00:01.000 --> 00:02.500\nA man.\n"
XML = "<?xml version='1.0' encoding='ISO-8859-1'?>\n<a title='\xe4'><p>A man.</p></a>"
FILES = {
    "a.vtt": ("\ufeff" + VTT).encode("utf-16-be"),
    "a.srt": ("\ufeff1" + VTT[7:]).encode("utf-16-le"),
    "a.xml": XML.encode("latin-1"),
    "a.html": b"<html><meta charset='windows-1252'><p>A man.</p><!-- \x80 -->",
}


def test_translate_names_a_document_that_takes_too_long(monkeypatch, page, capsys):
    def read_endlessly(text, direction):
        re.match(r"(a+)+$", "a" * 60 + "!")

    monkeypatch.setattr(html_format, "HtmlDocument", read_endlessly)
    monkeypatch.setattr(translate, "_DOCUMENT_SECONDS", 1)
    output = page.with_name("out.html")
    assert main(["translate", "no/model", "--input", str(page), "--output", str(output)]) == 2
    message = "The document must be read and written within 1 seconds of the processor. Split it."
    assert capsys.readouterr().err == f"error: {page}: {message}\n"
    assert not output.exists()


@pytest.mark.parametrize("name", FILES)
def test_translate_keeps_the_encoding_of_a_document(
    tiny_model, tiny_tokenizer, tmp_path, capfdbinary, name
):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    path, output = tmp_path / name, tmp_path / "new" / name
    path.write_bytes(FILES[name])
    flags = ["--input", str(path), "--max_new_tokens", "3"]
    assert main(["translate", str(folder), *flags, "--output", str(output)]) == 0
    before, after = FILES[name].split(
        "A man.".encode({"a.vtt": "utf-16-be", "a.srt": "utf-16-le"}.get(name, "ascii"))
    )
    written = output.read_bytes()
    assert written.startswith(before) and written.endswith(after) and written != FILES[name]
    capfdbinary.readouterr()
    assert main(["translate", str(folder), *flags]) == 0
    assert capfdbinary.readouterr().out == written


UNIT = (
    '\ufeff<?xml version="1.0" encoding="utf-8" ?>\r\n<xliff version="1.2"><file '
    'source-language="en" '
    "target-language='{}'><body>\r\n<trans-unit id = \"1\"><source>A "
    "man.</source>{}</trans-unit></body></file></xliff>"
)


EN_DE = [Direction("en", "de")]


TRANSLATED = (
    "Translated 1 of 1 segments. Skipped: none. 0 messages that break your build; 0 stayed open."
)
WHOLE = "No segment is open, so the file stays as it is. Skipped: 1 with a translation."
REFUSED = (
    "error: in.xlf: The target language of the file must be de, as of the model, but it is fr. "
    "Choose a model for it, or"
)
ASKED = (
    "warning: The file asks for fr, and the model does not say what it writes. Name "
    "its language by --target_"
)


@pytest.mark.parametrize(
    ("language", "target", "directions", "flags", "status", "said"),
    [
        ("de-DE", "", EN_DE, [], 0, [TRANSLATED]),
        ("de-DE", "", EN_DE, ["--quiet"], 0, []),
        ("de", "<target>Ein Mann.</target>", EN_DE, [], 0, [WHOLE]),
        ("fr", "", EN_DE, [], 2, [f"{REFUSED} correct the file."]),
        ("fr", "", [], ["--target_language", "de"], 2, [f"{REFUSED} correct the file."]),
        ("de", "", [], ["--target_language", "de"], 0, [TRANSLATED]),
        ("fr", "", [], [], 0, [f"{ASKED}language.", TRANSLATED]),
        ("", "", [], [], 0, [TRANSLATED]),  # the file names no language
    ],
)
def test_translate_says_what_it_did_with_the_segments_of_xliff(
    language, target, directions, flags, status, said, tiny_model, tiny_tokenizer, tmp_path, capsys
):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, directions)
    folder = save_model_folder(tiny_model, tokenizer, tmp_path / "model")
    text, source, output = UNIT.format(language, target), tmp_path / "in.xlf", tmp_path / "out.xlf"
    source.write_bytes(text.encode())
    words = [
        "--format",
        "xliff",
        "--input",
        str(source),
        "--output",
        str(output),
        "--max_new_tokens",
        "5",
    ]
    assert main(["translate", str(folder), *words, *flags]) == status
    lines = [
        line.replace(f"{source}:", "in.xlf:")
        for line in capsys.readouterr().err.splitlines()
        if line and "%|" not in line  # no bars
    ]
    assert lines == said and output.exists() is (status == 0)
    if target:
        assert output.read_bytes() == source.read_bytes()
    elif status == 0:
        written, (start, end) = output.read_bytes().decode(), text.split("</trans-unit>")
        assert written.startswith(start + "<target") and written.endswith(
            "</target></trans-unit>" + end
        )


@pytest.mark.parametrize("directions", [EN_DE, []])
def test_translate_names_the_target_language_of_xliff_2(
    directions, tiny_model, tiny_tokenizer, tmp_path, capsys
):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, directions)
    folder = save_model_folder(tiny_model, tokenizer, tmp_path / "model")
    text = (
        '<xliff version="2.0" srcLang="en"><file id="a"><unit id="1"><segment><source>A '
        "man.</source></segment>"
    )
    source, output = tmp_path / "in.xlf", tmp_path / "out.xlf"
    source.write_text(f"{text}</unit></file></xliff>")
    flags = ["--input", str(source), "--output", str(output), "--max_new_tokens", "5"]
    assert main(["translate", str(folder), *flags]) == (0 if directions else 2)
    if directions:
        assert '<xliff version="2.0" srcLang="en" trgLang="de"><' in output.read_text()
    else:
        assert (
            "has no attribute `trgLang`. Add it, or name the language by --target_"
            in capsys.readouterr().err
        )
        assert not output.exists()


WRAPPED = (
    "A man and two dogs are sleeping on the grass near a small house while children "
    "are playing with a ball."
)


@pytest.fixture
def translate_text(tiny_model, tiny_tokenizer, tmp_path, capsys, monkeypatch):
    """Return a function that translates a file of text, or standard input, and returns both
    outputs.
    """
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")

    def translate(text, *flags, name="in.txt"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        flags = [*(["--input", str(path)] if name != "-" else []), *flags, "--max_new_tokens", "5"]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["translate", str(folder), *flags]) == 0
        printed = capsys.readouterr()
        return printed.out, [line for line in printed.err.splitlines() if line and "%|" not in line]

    return translate


@pytest.mark.parametrize("name", ["in.txt", "in.txt.gz", "-"])
def test_translate_join_lines_finds_wrapped_text(name, translate_text):
    text = textwrap.fill(WRAPPED, 30) + "\n\nTwo dogs.\n"
    found, printed = translate_text(text, "--join_lines", "auto", name=name)
    said = (
        "The lines are wrapped at 30 characters, so their paragraphs are translated; "
        "--join_lines no "
    )
    assert printed == [said + "translates each line."]
    assert translate_text(text, "--join_lines", "auto", "--quiet", name=name) == (found, [])
    assert translate_text(text, "--join_lines", "yes", name=name) == (found, [])
    apart, _ = translate_text(text, name=name)
    assert found != apart and "\n\n" in found and max(map(len, found.split("\n"))) <= 30


@pytest.mark.parametrize("name", ["in.txt", "-"])
def test_translate_join_lines_leaves_other_text(name, translate_text):
    text = "A man.\r\nTwo dogs are sleeping.\r\nGrass.\r\n\r\nTwo.  A man.\r\n"
    flags = "--split_sentences", "--num_beams", "1"
    assert translate_text(text, *flags, "--join_lines", "auto", name=name) == translate_text(
        text, *flags, name=name
    )


def test_translate_writes_a_zip(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    source, output = tmp_path / "a.odt", tmp_path / "b.odt"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        archive.writestr(
            "content.xml", '<p xmlns="urn:oasis:names:tc:opendocument:xmlns:text:1.0">A man</p>'
        )
        archive.writestr("picture.png", bytes(range(256)))
    flags = ["translate", str(folder), "--input", str(source), "--max_new_tokens", "5"]
    assert main([*flags, "--output", str(output)]) == 0
    with zipfile.ZipFile(output) as archive:
        assert archive.namelist() == ["mimetype", "content.xml", "picture.png"]
        assert archive.read("picture.png") == bytes(range(256)) and b">A man<" not in archive.read(
            "content.xml"
        )
    source.write_bytes(source.read_bytes()[:-9])
    capsys.readouterr()
    assert main([*flags, "--output", str(output), "--overwrite"]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and zipfile.is_zipfile(output)
    assert main([*flags, "--output", str(tmp_path / "b.docx")]) == 2
    assert "the name" in capsys.readouterr().err
