"""`score` prints the log-probability of each pair, in order, and one line for each mistake."""

import errno
import json
import os
import sys

import pytest

from tests.closeness import close_to
from tests.tiny import tiny_causal_lm, tiny_masked_lm
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.evaluation import pair_scores
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

SOURCE = ["A man is sleeping.", "Two dogs.", "", "Two dogs run across the green grass.", "A man."]
TARGET = [
    "Ein Mann schläft.",
    "",
    "Zwei Hunde.",
    "Zwei 🐕 laufen über das grüne Gras.",
    "Ein Mann.",
]


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.fixture
def files(tmp_path):
    for name, lines in (("a.en", SOURCE), ("a.de", TARGET)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return ["--source", f"{tmp_path}/a.en", "--target", f"{tmp_path}/a.de"]


@pytest.fixture
def expected(tiny_model, tiny_tokenizer):
    sources, targets = (encode_sentences(tiny_tokenizer, texts) for texts in (SOURCE, TARGET))
    return score_tokens(tiny_model, sources, targets)


def test_score_ends_quietly_with_its_reader(folder, files, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["score", folder, *files]) == 0
    assert "error" not in capfd.readouterr().err


def test_score_prints_log_probabilities_in_order(folder, files, expected, capsys, monkeypatch):
    monkeypatch.setattr(pair_scores, "WINDOW", 2)
    assert main(["score", folder, *files, "--max_tokens", "16"]) == 0
    shown = [float(line) for line in capsys.readouterr().out.splitlines()]
    assert shown == close_to([sum(row) for row in expected])


def test_score_json_has_tokens_that_join_to_the_text(folder, files, expected, tmp_path, capsys):
    assert main(["score", folder, *files, "--json", "--output", f"{tmp_path}/scores.jsonl"]) == 0
    assert capsys.readouterr().out == ""
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [row["source"] for row in rows] == SOURCE and [row["target"] for row in rows] == TARGET
    for row, values in zip(rows, expected, strict=True):
        *texts, eos = [token["text"] for token in row["tokens"]]
        assert "".join(texts) == row["target"] and eos == "</s>"
        assert [token["log_probability"] for token in row["tokens"]] == close_to(values)
        assert row["log_probability"] == close_to(sum(values))


def refusal(arguments, capsys):
    assert main(["score", *arguments]) == 2
    output = capsys.readouterr()
    errors = [line for line in output.err.splitlines() if line.startswith("error: ")]
    assert output.out == "" and len(errors) == 1
    return errors[0]


@pytest.mark.parametrize("model", [tiny_causal_lm, tiny_masked_lm])
def test_score_refuses_models_without_encoder_and_decoder(
    model, files, tiny_tokenizer, tmp_path, capsys
):
    other = str(save_model_folder(model(), tiny_tokenizer, tmp_path / "other"))
    assert "A model with an encoder and a decoder scores translations, but" in refusal(
        [other, *files], capsys
    )


def test_score_leaves_the_old_file_if_it_is_stopped(folder, files, tmp_path, capsys, monkeypatch):
    (tmp_path / "scores").write_text("old")
    monkeypatch.setattr(pair_scores, "WINDOW", 2)
    score, calls = pair_scores.score_tokens, []

    def fail_later(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.EIO, "No room")
        return score(*arguments)

    monkeypatch.setattr(pair_scores, "score_tokens", fail_later)
    assert "No room." in refusal(
        [folder, *files, "--output", f"{tmp_path}/scores", "--overwrite"], capsys
    )
    assert (tmp_path / "scores").read_text() == "old" and len(calls) == 2
    assert [path.name for path in tmp_path.iterdir() if "scores" in path.name] == ["scores"]
