"""Commands for models with several languages."""

import copy
import json
from html import escape
from io import BytesIO
from zipfile import ZipFile

import pytest

from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, add_language_tags, store_direction

LINES = {"en": "A man.\nTwo dogs.\n", "de": "Ein Mann.\nZwei Hunde.\n"}
LINES["fr"] = "Un homme.\nDeux chiens.\n"
PAIRS = [Direction("en", "de"), Direction("de", "en"), Direction("en", "fr")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("languages")
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, PAIRS)
    model = tiny_model(vocab_size=len(tokenizer))
    save_model_folder(model, tokenizer, folder / "model")
    save_model_folder(tiny_model(), tiny_tokenizer, folder / "plain")
    for code, text in LINES.items():
        (folder / f"test.{code}").write_text(text)
    (folder / "page.html").write_text("<html lang=en><p>A man.</p>")
    return folder


def run(folder, *words):
    return main([word.format(folder=folder) for word in words])


def test_translate_takes_languages(folder, capsys):
    translate = load_pipeline(folder / "model")
    for code in ("de", "fr"):
        (expected,) = translate("A man.", tgt_lang=code)
        flags = ["--source_language", "en", "--target_language", code]
        assert run(folder, "translate", "{folder}/model", "A man.", *flags) == 0
        assert capsys.readouterr().out == f"{expected['translation_text']}\n"
    html = ["--format", "html", "--input", "{folder}/page.html"]
    html += ["--target_language", "fr"]
    assert run(folder, "translate", "{folder}/model", *html) == 0
    assert capsys.readouterr().out.startswith("<html lang=fr><p>")


def test_languages_must_be_the_ones_of_the_model(folder, tmp_path, tiny_tokenizer, capsys):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, [Direction("en", "de")])
    save_model_folder(tiny_model(), tokenizer, tmp_path / "model")
    words = [f"{tmp_path}/model", "A man."]
    assert run(folder, "translate", *words) == 0
    plain = capsys.readouterr().out
    flags = ["--source_language", "en-US", "--target_language", "de"]
    assert run(folder, "translate", *words, *flags) == 0
    assert capsys.readouterr().out == plain
    for side, code, other in (("source", "en", "de"), ("target", "de", "fr")):
        assert run(folder, "translate", *words, f"--{side}_language", other) == 2
        message = f"error: The {side} language must be {code}, as of the model, got {other}.\n"
        assert capsys.readouterr().err.endswith(message)


# A book whose page and package name the language, and where the text of the page is.
CONTAINER = "<container><rootfile full-path='a.opf'/></container>"
PACKAGE = """<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>
<dc:language >{}</dc:language><!-- en --></metadata>
<manifest><item href="a.xhtml" media-type="application/xhtml+xml"/></manifest></package>"""
PAGE = """<?xml version='1.0'?><html xmlns="http://www.w3.org/1999/xhtml" xml:lang='{0}' lang="{0}">
<body><p class = "x">{1}</p><!-- en --><p lang="la">Homo.</p></body></html>"""


def build_book(language, text):
    book = BytesIO()
    with ZipFile(book, "w") as archive:
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("a.opf", PACKAGE.format(language))
        archive.writestr("a.xhtml", PAGE.format(language, text))
    return book.getvalue()


@pytest.mark.parametrize(("model", "code"), [("model", "fr"), ("plain", "de-AT")])
def test_translate_names_language_of_epub(folder, tmp_path, model, code):
    source, output = tmp_path / "a.epub", tmp_path / "b.epub"
    source.write_bytes(build_book("en", "A man."))
    languages = {"model": {"tgt_lang": code}, "plain": {}}
    (answer,) = load_pipeline(folder / model)("A man.", **languages[model])
    text = answer["translation_text"]
    flags = ["--source_language", "en", "--target_language", code]
    flags += ["--input", str(source), "--output", str(output)]
    assert run(folder, "translate", f"{{folder}}/{model}", *flags) == 0
    archive = ZipFile(output)
    members = {name: archive.read(name).decode() for name in archive.namelist()}
    assert members == {
        "META-INF/container.xml": CONTAINER,
        "a.opf": PACKAGE.format(code),
        "a.xhtml": PAGE.format(code, escape(text, quote=False)),
    }


def test_score_takes_languages(folder, capsys):
    flags = ["--source", "{folder}/test.en", "--target", "{folder}/test.de"]
    scores = []
    for code in ("de", "fr"):
        language = ["--target_language", code]
        assert run(folder, "score", "{folder}/model", *flags, *language) == 0
        scores.append(capsys.readouterr().out)
    assert scores[0] != scores[1] and scores[0].count("\n") == 2


def test_evaluate_takes_languages(folder, capsys):
    flags = ["--source", "{folder}/test.en", "--target", "{folder}/test.de"]
    flags += ["--bootstrap_samples", "2", "--target_language", "de"]
    assert run(folder, "evaluate", "{folder}/model", *flags) == 0
    assert "BLEU" in capsys.readouterr().out


def test_evaluate_directions_prints_a_table(folder, capsys):
    flags = ["--text", "{folder}/test", "--num_beams", "1"]
    flags += ["--json", "{folder}/scores.json"]
    assert run(folder, "evaluate-directions", "{folder}/model", *flags) == 0
    lines = capsys.readouterr().out.splitlines()
    header = " ".join(lines[0].split())
    assert header == "| direction | sentences | bleu | chrf | note |"
    notes = {}
    for line in lines[2:]:
        direction, *_, note = line.strip("|").split("|")
        notes[direction.strip()] = note.strip()
    # No source was French in training.
    assert notes == {"de-en": "", "de-fr": "zero-shot", "en-de": "", "en-fr": ""}
    saved = json.loads((folder / "scores.json").read_text())
    assert [row["sentences"] for row in saved] == [2] * 4
    assert {"bleu", "chrf"} < saved[0].keys()
    flags = [*flags[:4], "--directions", "en-fr"]
    assert run(folder, "evaluate-directions", "{folder}/model", *flags) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


MODEL, PLAIN, TEST = "{folder}/model", "{folder}/plain", "{folder}/test"
LANGUAGES = "The target language must be one of de, en, fr; got none."
MISTAKES = [
    (f"translate {MODEL} A", LANGUAGES),
    (f"translate {MODEL} A --target_language it", "one of de, en, fr; got 'it'."),
    (f"translate {PLAIN} A --target_language de", "`target_language` is for models that"),
    (f"score {MODEL} --source {TEST}.en --target {TEST}.de", "got none."),
    (f"explain {MODEL} A --output {{folder}}/x.html", "got none."),
    (f"evaluate-directions {PLAIN} --text {TEST}", "must have several languages, but"),
    (f"evaluate-directions {MODEL} --text {{folder}}/none", "must be in files such as"),
    (f"evaluate-directions {MODEL} --text {TEST} --directions en", "such as en-de"),
    (f"evaluate-directions {MODEL} --text {TEST} --directions en-it", "got 'it'"),
    (f"evaluate-directions {MODEL} --text {TEST} --json {{folder}}", "is a folder"),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_commands_name_mistakes_about_languages(folder, capsys, command, message):
    assert run(folder, *command.split()) == 2
    last = capsys.readouterr().err.splitlines()[-1]  # after progress bars
    assert message in last and "error: " in last and "Traceback" not in last


def test_evaluate_directions_needs_aligned_files(folder, tmp_path, capsys):
    (tmp_path / "test.en").write_text("A man.\n")
    (tmp_path / "test.de").write_text("Ein Mann.\nZwei Hunde.\n")
    words = ["evaluate-directions", "{folder}/model", "--text", f"{tmp_path}/test"]
    assert run(folder, *words) == 2
    error = capsys.readouterr().err
    assert "All languages must have the same number of lines, got 1 in" in error
    (tmp_path / "test.en").write_text("A man.\n\n\nTwo dogs.\n")
    (tmp_path / "test.de").write_text("Ein Mann.\n\n\n\n")
    assert run(folder, *words) == 2
    message = f"Line 4 of {tmp_path}/test.de is blank, but its translation is not"
    assert message in capsys.readouterr().err
