"""`check-language` reads two files or a recipe, prints a page, and writes it as JSON."""

import json

import pytest

from vanilla_transformer.cli import main

LINES = []
for number in range(20, 30):
    for name in ("Anna", "Tom"):
        LINES.append(f"{number} dogs sleep in the garden of {name}.")


@pytest.fixture
def texts(tmp_path):
    for name, line in (("a.en", "Two\u00a0dogs."), ("a.de", "Zwei Hunde.")):
        lines = [*LINES, LINES[3], line, ""]
        (tmp_path / name).write_text("\n".join(lines))
    return tmp_path


def files(texts):
    return [str(texts / "a.en"), str(texts / "a.de")]


def test_check_language_prints_a_page_and_writes_json(texts, capsys):
    path = texts / "page.json"
    words = ["--source_language", "en", "--target_language", "de", "--json", str(path)]
    assert main(["check-language", *files(texts), *words]) == 0
    shown = capsys.readouterr().out
    assert "22 pairs, of which 22 were examined." in shown
    assert "remedy:  drop: [duplicates]" in shown
    (page,) = json.loads(path.read_text())
    assert page["pairs"] == 22
    assert page["sides"][0]["language"] == "en"
    assert "duplicates" in [finding["name"] for finding in page["findings"]]
    assert page["sides"][0]["changes"] == {"NO-BREAK SPACE": 1}


def test_check_language_reports_bad_encodings_with_file_and_line(texts, capsys):
    lines = [*LINES, "Hündin.", "Zwei Hunde.", ""]
    (texts / "a.de").write_bytes("\n".join(lines).encode("latin-1"))
    assert main(["check-language", *files(texts)]) == 0
    shown = capsys.readouterr().out
    assert "21 pairs, of which 21 were examined." in shown
    assert "invalid_unicode: 1 lines are not valid" in shown
    reason = "must be UTF-8, but line 21 has the byte 0xfc"
    assert f"example: {texts / 'a.de'} {reason}" in shown
    assert "remedy:  drop: [invalid_unicode]" in shown


def test_check_language_reads_keys_and_corpora_of_a_recipe(texts, capsys):
    source, target = files(texts)
    recipe = texts / "recipe.yaml"
    text = f"train_source: {source}\ntrain_target: {target}\n"
    recipe.write_text(f"{text}normalization: none\ndrop: [duplicates]\n")
    assert main(["check-language", "--recipe", str(recipe)]) == 0
    shown = capsys.readouterr().out
    assert "remedy:  normalization: nfc" in shown
    assert "`duplicates` in `drop` of the recipe mends it" in shown
    assert main(["check-language", *files(texts), "--recipe", str(recipe)]) == 0
    assert capsys.readouterr().out == shown


def test_check_language_shows_each_direction_of_a_recipe(texts, capsys):
    source, target = files(texts)
    languages = "source_language: en, target_language: de, both_directions: true"
    corpus = f"{{source: {source}, target: {target}, {languages}}}"
    (texts / "recipe.yaml").write_text(f"corpora: [{corpus}]\nlanguage_tags: target\n")
    assert main(["check-language", "--recipe", str(texts / "recipe.yaml")]) == 0
    assert capsys.readouterr().out.count("22 pairs, of which 22 were examined.") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Name a SOURCE and a TARGET file, or a --recipe with both, got 0 files."),
        (["a.en"], "got 1 files."),
        (["a.en", "b.de"], "b.de"),
        (["a.en", "a.de", "--vocab", "3"], "There is no flag 'vocab'"),
    ],
    ids=str,
)
def test_check_language_names_mistakes(texts, capsys, monkeypatch, words, message):
    monkeypatch.chdir(texts)
    assert main(["check-language", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1
