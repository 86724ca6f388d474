"""`translate --constraint` and `--tab_constraints`."""

import json

import pytest

from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

BEAMS = ["--num_beams", "3", "--max_new_tokens", "20"]


@pytest.fixture(scope="module")
def folder(tiny_tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    save_model_folder(tiny_model(), tiny_tokenizer, path)
    return str(path)


def test_translate_constraint_is_in_each_translation(folder, capsys):
    flags = ["--constraint", "Hunde laufen", "Mann", "--constraint", "Gras"]
    assert main(["translate", folder, "A man.", "Two dogs.", *BEAMS, *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(word in line for word in ("Hunde laufen", "Mann", "Gras") for line in lines)


def test_translate_tab_constraints_are_of_their_lines(folder, capsys, tmp_path):
    (tmp_path / "in").write_text("A man.\tMann\tEin Mann\n\nTwo dogs.\n")
    flags = ["--tab_constraints", "--constraint", "Gras", "--json", "--quiet"]
    assert main(["translate", folder, "--input", str(tmp_path / "in"), *BEAMS, *flags]) == 0
    first, blank, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["source"] == "A man." and "Ein Mann" in first["translations"][0]["text"]
    assert blank["translations"][0]["text"] == "" and last["source"] == "Two dogs."
    assert all("Gras" in each["translations"][0]["text"] for each in (first, last))


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--constraint"], "--constraint must have a value. See --help"),
        (["--constraint", "a", "--format", "html"], "is for sentences, but `--format` is html"),
    ],
)
def test_translate_refuses_constraints_in_one_line(folder, capsys, tmp_path, flags, message):
    (tmp_path / "in").write_text("A man.\n")
    assert main(["translate", folder, "--input", str(tmp_path / "in"), *BEAMS, "--quiet", *flags]) != 0
    output = capsys.readouterr()
    assert output.out == "" and message in output.err and output.err.count("\n") == 1
