"""In a terminal, `translate` shows the warnings about translations, as `--json` has them in its objects."""

import json
import sys
from types import SimpleNamespace

import pytest

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.text.translation_warnings import WARNINGS
from vanilla_transformer.utils.file_utils import save_model_folder

LINES = ["A man and 84 or 91 dogs.", "Two dogs."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path_factory.mktemp("warned") / "model"))


def run(capsys, *arguments):
    capsys.readouterr()
    assert main(["translate", *arguments]) == 0
    output = capsys.readouterr()
    return output.out, [line for line in output.err.splitlines() if line.startswith("warning: ")]


def test_translate_in_a_terminal_shows_the_warnings_of_each_line(folder, capsys, monkeypatch):
    out, _ = run(capsys, folder, *LINES, "--json")
    names = [json.loads(line)["translations"][0]["warnings"] for line in out.splitlines()]
    assert "numbers" in names[0]
    piped, said = run(capsys, folder, *LINES)
    assert said == []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown, said = run(capsys, folder, *LINES)
    assert shown == piped
    expected = [
        f"warning: line {index + 1}: {'; '.join(f'{WARNINGS[name]} ({name})' for name in found)}."
        for index, found in enumerate(names)
        if found
    ]
    assert said == expected
    assert run(capsys, folder, *LINES, "--quiet")[1] == run(capsys, folder, *LINES, "--json")[1] == []
    (alone,) = run(capsys, folder, LINES[0])[1]
    assert alone == expected[0].replace("line 1: ", "")


def test_translate_shows_the_warnings_of_a_typed_line(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("vanilla_transformer.cli.lines.typed_lines", lambda prompt: iter(LINES[:1] * 2))
    _, said = run(capsys, folder)
    assert len(said) == 2 and "a number differs from the source (numbers)" in said[0] == said[1]
