"""`translate --input --output` writes a file at once when it is complete, and continues an
interrupted run.
"""

import errno
import json
import os
import sys

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.cli.lines import LineTranslator
from vanilla_transformer.decoding import corpus_shards
from vanilla_transformer.loading.model_folders import save_model_folder

LINES = [
    "A man is sleeping.",
    "",
    "Two dogs.",
    "Two dogs run across the green grass.",
] * 33  # three blocks of batches of 1

DECODING = ("--num_beams", "2", "--max_new_tokens", "2", "--precision", "float32")


@pytest.fixture
def run(tiny_model, tiny_tokenizer, tmp_path, monkeypatch, capsys):
    """Return a function that translates `text` in a folder with a model, and returns the status and
    the error line.
    """
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(LINES))
    monkeypatch.chdir(tmp_path)

    def run(*flags):
        decoding = DECODING[:2] if "--max_new_tokens" in flags else DECODING[:4]
        flags = ("--batch_size", "1", *decoding, *DECODING[4:], *flags)
        status = main(["translate", "model", "--input", "text", *flags])
        lines = capsys.readouterr().err.splitlines()
        messages = [line for line in lines if line.startswith(("error", "Interrupted"))]
        return status, "".join(messages)

    return run


@pytest.fixture
def interruption(monkeypatch):
    """Return a function that lets the next runs be interrupted after some blocks, or not."""
    whole = LineTranslator.work

    def interrupt(blocks):
        def some(*arguments):
            for position, step in enumerate(whole(*arguments)):
                if position == blocks:
                    raise KeyboardInterrupt
                yield step

        monkeypatch.setattr(LineTranslator, "work", whole if blocks is None else some)

    return interrupt


def test_translate_writes_what_it_prints(run, tmp_path, capsys):
    assert main(["translate", "model", *LINES[:4], *DECODING]) == 0
    printed = capsys.readouterr().out
    assert run("--output", "new/out") == (0, "")
    assert (tmp_path / "new" / "out").read_text() == printed * 33
    assert [*os.listdir("new")] == ["out"]


FLAGS = [(), ("--json", "--num_return_sequences", "2"), ("--n_best", "2")]


@pytest.mark.parametrize("flags", FLAGS)
def test_translate_resumes_a_file(run, interruption, tmp_path, flags, monkeypatch):
    assert run("--output", "whole", *flags) == (0, "")
    (tmp_path / "out").write_text("old")
    interruption(1)
    flags = ("--overwrite", *flags)
    status, error = run("--output", "out", *flags)
    assert status == 130
    assert error == "Interrupted after 64 sentences. Add --resume to continue."
    assert (tmp_path / "out").read_text() == "old"
    (tmp_path / "out.partial" / "000001.txt").write_text("torn line of a killed run")
    translated = []
    interruption(None)
    whole = LineTranslator.answer

    def record(self, shard, **settings):
        translated.extend(shard.lines)
        return whole(self, shard, **settings)

    monkeypatch.setattr(LineTranslator, "answer", record)
    assert run("--output", "out", "--resume", *flags) == (0, "")
    assert translated == LINES[64:]
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(os.listdir()) == ["model", "out", "text", "whole"]


def test_translate_resume_begins_without_an_interrupted_run(run, interruption):
    interruption(0)
    assert run("--output", "out") == (130, "Interrupted.")
    assert sorted(os.listdir()) == ["model", "text"]
    interruption(None)
    assert run("--output", "out", "--resume") == (0, "")
    assert sorted(os.listdir()) == ["model", "out", "text"]


def test_translate_refuses_to_resume_another_run(run, interruption, tmp_path):
    interruption(1)
    run("--output", "out", "--length_penalty", "0.5")
    partial = (tmp_path / "out.partial" / "000000.txt").read_bytes()
    interruption(None)
    _, error = run("--output", "out", "--length_penalty", "0.5")
    message = "error: out.partial has 64 sentences of an interrupted run."
    assert error.startswith(f"{message} Add --resume to continue")
    again = "Delete out.partial to start again."
    message = "error: An interrupted run must continue with the same"
    penalty = ["--length_penalty", "0.5"]
    _, error = run("--output", "out", "--resume", "--length_penalty", "0.6")
    change = "`length_penalty` was 0.5 and is 0.6."
    assert error == f"{message} options as out.partial, but {change} {again}"
    (tmp_path / "text").write_text("\n".join(LINES[1:]))
    _, error = run("--output", "out", "--resume", *penalty)
    change = "the input is another one."
    assert error == f"{message} input as out.partial, but {change} {again}"
    (tmp_path / "text").write_text("\n".join(LINES))
    config = tmp_path / "model" / "generation_config.json"
    changed = json.loads(config.read_text()) | {"early_stopping": True}
    config.write_text(json.dumps(changed))
    _, error = run("--output", "out", "--resume", *penalty)
    change = "the model is another one."
    assert error == f"{message} model as out.partial, but {change} {again}"
    (tmp_path / "out.partial" / "manifest.json").write_text("[]")
    _, error = run("--output", "out", "--resume")
    message = "error: out.partial/manifest.json must describe out.partial, but it is damaged."
    assert error == f"{message} {again}"
    assert (tmp_path / "out.partial" / "000000.txt").read_bytes() == partial
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["target_prefixes", "glossary"])
def test_translate_refuses_to_resume_with_other_text(run, interruption, tmp_path, flag):
    prefixes = "".join("E\n" if line else "\n" for line in LINES)
    text = {"target_prefixes": prefixes, "glossary": "dog\tHund\n"}[flag]
    flags = ("--output", "out", "--max_new_tokens", "8", f"--{flag}")
    (tmp_path / "given").write_text(text)
    interruption(1)
    assert run(*flags, "given")[1].startswith("Interrupted after 64 sentences")
    interruption(None)
    (tmp_path / "given").write_text(text.replace("E", "D", 1).replace("Hund", "Dogge"))
    status, error = run(*flags, "given", "--resume")
    assert status == 2
    message = f"must continue with the same options as out.partial, but `{flag}` was"
    assert message in error
    (tmp_path / "renamed").write_text(text)
    assert run(*flags, "renamed", "--resume") == (0, "")


def test_translate_keeps_nothing_of_a_first_block_that_fails(run, monkeypatch):
    whole = corpus_shards.write_text_atomically

    def fill_the_disk(path, text):
        if path.suffix == ".txt":
            raise OSError(errno.ENOSPC, "full")
        return whole(path, text)

    monkeypatch.setattr(corpus_shards, "write_text_atomically", fill_the_disk)
    assert run("--output", "out") == (2, "error: full.")
    assert sorted(os.listdir()) == ["model", "text"]


def test_translate_writes_a_pipe_directly(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run("--output", "pipe") == (0, "")
    assert os.read(reader, 1 << 20).count(b"\n") == len(LINES)
    os.close(reader)


def test_translate_writes_lines_of_standard_input_to_a_file(run, tmp_path, monkeypatch):
    with open("text") as file:
        monkeypatch.setattr(sys, "stdin", file)
        flags = ["--output", "out", "--max_new_tokens", "2", "--num_beams", "1"]
        assert main(["translate", "model", *flags]) == 0
    assert (tmp_path / "out").read_text().count("\n") == len(LINES)


def test_translate_refuses_to_replace_the_file_of_standard_input(run, tmp_path, capsys):
    kept = os.dup(0)
    try:
        with open("text") as file:
            os.dup2(file.fileno(), 0)
        assert main(["translate", "model", "--output", "text", "--overwrite"]) == 2
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    message = "another file than the inputs, but text is the same as standard input"
    assert message in capsys.readouterr().err
    assert (tmp_path / "text").read_text() == "\n".join(LINES)


def test_translate_n_best_prints_scores(run, capsys):
    assert main(["translate", "model", "A man.", "--n_best", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    scores = [float(line.split("\t")[0]) for line in lines]
    assert len(scores) == 2 and scores[0] >= scores[1]


def test_translate_bar_counts_all_sentences(run, interruption, monkeypatch):
    """Count the lines of the whole input."""
    bars = []
    progress_bar = corpus_shards.progress_bar

    def record(*arguments, **options):
        bars.append(progress_bar(*arguments, **options))
        return bars[-1]

    monkeypatch.setattr(corpus_shards, "progress_bar", record)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    interruption(1)
    run("--output", "out")
    interruption(None)
    run("--output", "out", "--resume")
    assert [(bar.total, bar.initial) for bar in bars] == [(132, 0), (132, 64)]
    assert bars[0].n >= 64 and bars[1].n == 132
