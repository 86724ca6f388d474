"""`explain` writes a page, or one line for each mistake and no file."""

import pytest

from tests.tiny import tiny_causal_lm, tiny_masked_lm
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.alignments.explanation import explanation
from vanilla_transformer.loading.model_folders import save_model_folder


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


def test_explain_writes_a_page_and_prints_the_translation(folder, tmp_path, capsys):
    output = tmp_path / "new" / "page.html"
    assert main(["translate", folder, "Two dogs.", "--num_beams", "2"]) == 0
    translation = capsys.readouterr().out
    command = ["explain", folder, "Two dogs.", "--output", str(output)]
    for flags in ([], ["--overwrite"]):
        assert main([*command, "--num_beams", "2", *flags]) == 0
        assert capsys.readouterr().out == f"{translation}The page is {output}.\n"
    page = output.read_text()
    assert page.startswith("<!doctype html>")
    assert "<title>model: a translation explained</title>" in page
    assert [path.name for path in output.parent.iterdir()] == ["page.html"]


def refusal(arguments, capsys):
    assert main(["explain", *arguments]) == 2
    output = capsys.readouterr()
    (error,) = [line for line in output.err.splitlines() if line.startswith("error: ")]
    assert output.out == ""
    return error


@pytest.mark.parametrize("model", [tiny_causal_lm, tiny_masked_lm])
def test_explain_refuses_models_without_encoder_and_decoder(
    model, tiny_tokenizer, tmp_path, capsys
):
    other = str(save_model_folder(model(), tiny_tokenizer, tmp_path / "other"))
    error = refusal([other, "A man.", "--output", f"{tmp_path}/page.html"], capsys)
    assert "A model with an encoder and a decoder can be explained, but" in error


@pytest.mark.parametrize(
    ("words", "flags", "message"),
    [
        ([], [], "This command takes MODEL SENTENCE, got "),
        (["A", "man."], [], "'A' 'man.'. See --help."),
        (["A man."], ["--output", "."], "must be a file, but . is a folder."),
        (["A man."], ["--output", "setup.py/page.html"], "setup.py"),
        (["A man."], ["--max_new_tokens", "0"], "`max_new_tokens` must be"),
        (["A man."], ["--device", "toaster"], "`device` must be one that this machine has"),
    ],
)
def test_explain_names_a_mistake(words, flags, message, folder, tmp_path, capsys):
    output = tmp_path / "page.html"
    if "--output" not in flags:
        flags = [*flags, "--output", str(output)]
    assert message in refusal([folder, *words, *flags], capsys)
    assert "output" in refusal([folder, "A man."], capsys)
    assert not output.exists()


def test_explain_leaves_the_old_page_if_it_is_interrupted(folder, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(explanation, "record_search", interrupt)
    output = tmp_path / "pages" / "page.html"
    output.parent.mkdir()
    output.write_text("old")
    command = ["explain", folder, "A man.", "--output", str(output)]
    assert main([*command, "--overwrite"]) == 130
    assert output.read_text() == "old"
    assert [*output.parent.iterdir()] == [output]
    assert "Interrupted." in capsys.readouterr().err
