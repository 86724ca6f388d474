"""Sampling and minimum Bayes risk decoding on the command line."""

import json

import pytest

from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    return str(save_model_folder(tiny_model(), tiny_tokenizer, tmp_path_factory.mktemp("models") / "tiny"))


def printed(capsys, *arguments):
    assert main(["translate", *arguments]) in (0, None)
    return capsys.readouterr().out.split("\n")


def test_translate_samples_by_seed(folder, capsys):
    sampling = ["--do_sample", "--seed", "3", "--top_k", "0", "--temperature", "1.5"]
    first = printed(capsys, folder, "A man.", *sampling, "--num_return_sequences", "2")
    assert printed(capsys, folder, "A man.", *sampling, "--num_return_sequences", "2") == first
    assert printed(capsys, folder, "A man.", *sampling, "--seed", "4", "--num_return_sequences", "2") != first


def test_translate_repeats_no_sample_in_other_blocks(folder, tmp_path, capsys):
    (tmp_path / "source.txt").write_text("A man.\n" * 200)
    sampling = ["--do_sample", "--seed", "3", "--top_k", "0", "--batch_size", "1"]
    lines = printed(capsys, folder, "--input", str(tmp_path / "source.txt"), *sampling)
    assert len(set(lines)) > 150


def test_translate_decodes_by_minimum_bayes_risk(folder, capsys):
    risk = ["--mbr", "bleu", "--mbr_samples", "4", "--seed", "3"]
    assert printed(capsys, folder, "A man.", *risk) == printed(capsys, folder, "A man.", *risk)
    (line, _) = printed(capsys, folder, "A man.", "--mbr", "chrf", "--num_beams", "3", "--json")
    (translation,) = json.loads(line)["translations"]
    assert 0 <= translation["score"] <= 100


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--mbr", "chrf", "--num_beams", "1"], "`mbr` needs 2 or more candidates"),
        (["--do_sample", "--resume", "--input", "x", "--output", "y"], "--resume continues searches, not samples"),
    ],
)
def test_translate_names_wrong_sampling_options(folder, capsys, arguments, text):
    assert main(["translate", folder, *([] if "--input" in arguments else ["A man."]), *arguments]) != 0
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert text in line
