"""Target prefixes, alternatives, groups of beams and coverage on the command line."""

import json

import pytest

from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

SHORT = ["--num_beams", "2", "--max_new_tokens", "12"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    return str(save_model_folder(tiny_model(), tiny_tokenizer, tmp_path_factory.mktemp("models") / "tiny"))


def printed(capsys, *arguments):
    assert main(["translate", *arguments, *SHORT]) in (0, None)
    return capsys.readouterr().out.removesuffix("\n").split("\n")


def test_translate_begins_with_prefixes(folder, tmp_path, capsys):
    first, second = printed(capsys, folder, "A man.", "Two dogs.", "--target_prefix", "Ein")
    assert first.startswith("Ein") and second.startswith("Ein")
    (tmp_path / "source").write_text("A man.\nTwo dogs.\n\n")
    (tmp_path / "prefixes").write_text("Ein\nZwei\n\n")
    files = ["--input", str(tmp_path / "source"), "--target_prefixes", str(tmp_path / "prefixes")]
    for flags in ([], ["--batch_size", "1"]):
        first, second, blank = printed(capsys, folder, *files, *flags)
        assert first.startswith("Ein") and second.startswith("Zwei") and blank == ""


def test_translate_prints_alternatives(folder, capsys):
    flags = ["--target_prefix", "Ein", "--alternatives", "3"]
    lines = printed(capsys, folder, "A man.", "Two dogs.", *flags)
    assert len(lines) == 6 and all(line.startswith("Ein") for line in lines)
    (line,) = printed(capsys, folder, "A man.", *flags, "--json")
    assert [each["text"] for each in json.loads(line)["translations"]] == lines[:3]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--target_prefix", "A", "--target_prefixes", "B"], "Give --target_prefix (for all sentences) or --target"),
        (["--target_prefixes", "missing"], "missing"),
        (["--alternatives", "2", "--n_best", "2"], "With --alternatives there is one search for each."),
        (["--target_prefix", "A", "--format", "html"], "--target_prefix is for sentences, but `--format` is html."),
    ],
)
def test_translate_names_wrong_flags_of_searches(folder, capsys, arguments, text):
    sentences = [] if "--format" in arguments else ["A man."]
    assert main(["translate", folder, *sentences, *arguments, *SHORT]) != 0
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert text in line


def test_translate_refuses_another_number_of_prefixes(folder, tmp_path, capsys):
    (tmp_path / "prefixes").write_text("Ein\nZwei\n")
    assert main(["translate", folder, "A man.", "--target_prefixes", str(tmp_path / "prefixes")]) != 0
    assert "a target prefix for each of 1 sentences, got 2 in" in capsys.readouterr().err.splitlines()[-1]
