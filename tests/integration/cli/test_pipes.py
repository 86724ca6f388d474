"""A pipe is a file that is read once, in each command; and an output is compressed as its name
says.
"""

import bz2
import gzip
import lzma
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.publishable import CARDS
from tests.sweeps import sample
from tests.tiny_runs import TINY
from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.evaluation.directions import read_test_sets
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.publishing import checks

TRAINING = ""
for name, value in (TINY | {"max_steps": 2, "average_checkpoints": 1}).items():
    TRAINING += f" --{name} {value}"
TEXT = "--train_source {train.a} --train_target {train.b}"
TRAINED = "--source {train.a} --target {train.b}"
VALIDATION = "--validation_source {validation.a} --validation_target {validation.b}"
TEST = "--test_source {validation.a} --test_target {validation.b}"
PAIRS = "--source {validation.a} --target {validation.b}"
DISTILL = f"--teacher model {TEXT} {VALIDATION} {TEST} --drop_warnings no {TRAINING}"
TRANSLATE = "model --input {validation.a} --format text --target_prefixes {prefixes}"
LINKS = "--alignments {train.align} --gold_alignments {train.align}"
BACK = "model --input {validation.a} --keep_warnings --output OUT.tsv --overwrite"
# Names in braces are of files or of pipes, with the same answer: the printed text, or a file.
LINES = {
    "train": (f"{TEXT} {VALIDATION} {TEST} {TRAINING} --output_dir OUT", "OUT/model.safetensors"),
    "distill": (f"{DISTILL} --output_dir OUT", "OUT/model.safetensors"),
    "translate": (f"{TRANSLATE} --output OUT", "OUT"),
    "evaluate": (f"model {PAIRS} --compare_with {{validation.a}} --output_file OUT", "OUT"),
    "score": (f"model {PAIRS} --output OUT", "OUT"),
    "evaluate-alignments": (f"{TRAINED} {LINKS}", None),
    "choose-alignment-head": (f"model {TRAINED} --alignments {{train.align}}", None),
    "calibrate": ("model --source {long.a} --target {long.b}", None),
    "tune-reranking": (f"model --rerank_reverse model --num_beams 2 {PAIRS}", None),
    "render-card": ("model --facts {facts.yaml}", "model/README.md"),
    "check-model": (f"model {PAIRS} --max_pairs 2", None),
    "train-tokenizer": (
        "{train.a} {train.b} --vocab_size 270 --output_dir OUT",
        "OUT/tokenizer.json",
    ),
    "write-alignments": (f"{TRAINED} --output OUT", "OUT"),
    "prepare": (f"{TEXT} --vocab_size 270 --output OUT", "OUT/shards/00000.arrow"),
    "clean-corpus": (f"{TEXT} --drop empty --output_dir OUT", "OUT/train.target"),
    "back-translate": (BACK, "OUT.tsv"),
    "check-language": ("{train.a} {train.b}", None),
    "convert": ("model OUT --target_format marian --sentences {validation.a}", "OUT/config.json"),
}
# `compile` reads text to measure, and `evaluate-directions` files whose names begin with --text.
OTHERS = {"average-checkpoints", "demo", "push-to-hub", "create-space", "download-data", "compile"}
OTHERS |= {"write-corpus", "serve", "explain", "evaluate-directions", "compare-runs"}
OTHERS |= {"export-memory", "compare-models", "adapt"}  # of which the last two print times


def pipe_of(name):
    """Return the name of a pipe, to which a thread writes the content of a file."""
    reader, writer = os.pipe()

    def write():
        with open(writer, "wb") as file:
            file.write(Path(name).read_bytes())

    threading.Thread(target=write, daemon=True).start()
    return f"/dev/fd/{reader}"


@pytest.fixture
def texts(folder, corpus, alignments, monkeypatch):
    """Change into a folder with text and the model `model`, which is checked in this process
    alone.
    """
    monkeypatch.chdir(corpus)
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])
    shutil.copyfile(CARDS / "demo.yaml", "facts.yaml")
    Path("prefixes").write_text("A\n" * 5)
    for name in ("train.a", "train.b"):
        Path(name.replace("train", "long")).write_text(Path(name).read_text() * 3)


def answer(command, name_of, capsys):
    line, file = LINES[command]
    names = dict[str, str]()

    def name(match):
        names[name_of(match[1])] = match[1]
        return [*names][-1]

    if Path("OUT").is_dir():
        shutil.rmtree("OUT")
    Path("OUT").unlink(missing_ok=True)
    words = shlex.split(re.sub(r"\{(.*?)\}", name, line))
    status, printed = main([command, *words]), capsys.readouterr()
    assert status == 0, printed.err
    text = printed.out.encode() if file is None else Path(file).read_bytes()

    def restore(match):
        return names[match[0].decode()].encode()

    return re.sub(rb"/dev/fd/\d+", restore, text)


def test_each_command_reads_pipes_or_no_text():
    assert COMMANDS.keys() == LINES.keys() | OTHERS


KEPT = ["train", "translate", "score", "write-alignments", "train-tokenizer"]


@pytest.mark.parametrize("command", sample(LINES, *KEPT))
def test_command_reads_pipes_as_files(command, texts, capsys):
    assert answer(command, pipe_of, capsys) == answer(command, str, capsys)


def test_dash_is_standard_input_once(texts, capsys, monkeypatch):
    def run(*words):
        with open("validation.a") as file:
            monkeypatch.setattr(sys, "stdin", file)
            status, printed = main([*words]), capsys.readouterr()
            return status, printed.out, printed.err

    target = ["--target", "validation.b"]
    _, *printed = run("score", "model", "--source", "validation.a", *target)
    status, *by_pipe = run("score", "model", "--source", "-", *target)
    assert status == 0 and by_pipe[0] == printed[0]
    recipe = "train_source: '-'\ntrain_target: '-'\noutput_dir: OUT\n"
    Path("twice.yaml").write_text(recipe)
    for words in (
        ["score", "model", "--source", "-", "--target", "-"],
        ["translate", "model", "--target_prefixes", "-"],
        ["train", "--train_source", "-", "--train_target", "-", "--output_dir", "OUT"],
        ["train", pipe_of("twice.yaml")],
        ["clean-corpus", pipe_of("twice.yaml")],
    ):
        status, out, err = run(*words)
        assert (status, out, Path("OUT").exists()) == (2, "", False)
        message = "A pipe is one input, since it is read once, got - and -."
        assert err == f"error: {message} Write its text to a file.\n"


def test_pipe_has_one_reader(texts, capsys, monkeypatch):
    pipe = pipe_of("validation.a")
    assert main(["score", "model", "--source", pipe, "--target", pipe]) == 2
    assert f"got {pipe} and {pipe}" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train-tokenizer", pipe, "--output_dir", "OUT"]) == 2
    message = f"error: A pipe has one reader, but {pipe} would have 2."
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.sweep
def test_shell_gives_decompressed_text(texts):
    """As people write it: one file by `<(…)` of a shell, and a named pipe whose name has an
    ending.
    """
    Path("train.b.gz").write_bytes(gzip.compress(Path("train.b").read_bytes()))
    os.mkfifo("named.b.gz")
    program = f"{shlex.quote(sys.executable)} -m vanilla_transformer evaluate"
    evaluate = f"{program} --hypotheses <(zcat train.b.gz) --target named.b.gz"
    line = ["bash", "-c", f"cat train.b.gz > named.b.gz & {evaluate}"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "BLEU 100.0" in ended.stdout


def test_evaluate_directions_finds_named_pipes(tmp_path, monkeypatch):
    class Languages:
        targets, source_codes = ["a", "b"], []

    for name in ("a", "b"):
        path = tmp_path / f"text.{name}"
        os.mkfifo(path)
        threading.Thread(target=path.write_text, args=("A\nB\n",), daemon=True).start()
    _, sides = read_test_sets(str(tmp_path / "text"), None, Languages)
    assert sides == {"a": ["A", "B"], "b": ["A", "B"]}


def decompress_zstd(content):
    return pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()


READ = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}
READ[".zst"] = decompress_zstd


@pytest.mark.parametrize("ending", READ)
def test_written_text_is_compressed_as_its_name_says(ending, tmp_path):
    pieces = ["Ein Hund schläft.\n", *(f"Line {number}\n" for number in range(5000))]
    path = write_text_atomically(tmp_path / f"text{ending}", pieces)
    assert READ[ending](path.read_bytes()).decode() == "".join(pieces)
    assert [f"{line}\n" for line in read_lines(path)] == pieces
    same = write_text_atomically(tmp_path / f"same{ending.upper()}", iter(pieces))
    assert path.read_bytes() == same.read_bytes()
    assert len({*tmp_path.iterdir()}) == 2

    def broken():
        yield "A\n"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_text_atomically(path, broken())
    assert READ[ending](path.read_bytes()).decode() == "".join(pieces)
    assert len({*tmp_path.iterdir()}) == 2


# The flags of all commands that write a text, and a line with which each is written.
OUTPUTS = {
    "translate --output": "translate model --input validation.a --format text --output",
    "evaluate --output_file": (
        "evaluate model --source validation.a --target validation.b --output_file"
    ),
    "evaluate --json": "evaluate --hypotheses validation.a --target validation.b --json",
    "score --output": "score model --source validation.a --target validation.b --output",
    "write-alignments --output": "write-alignments --source train.a --target train.b --output",
    "back-translate --output": "back-translate model --input validation.a --keep_warnings --output",
    "check-language --json": "check-language train.a train.b --json",
    "explain --output": "explain model 'A man.' --output",
}


@pytest.mark.parametrize("flag", OUTPUTS)
def test_output_is_compressed_or_refused(flag, texts, capsys):
    words, plain = shlex.split(OUTPUTS[flag]), "OUT.tsv"
    assert main([*words, plain]) == main([*words, f"{plain}.gz"]) == 0
    assert gzip.decompress(Path(f"{plain}.gz").read_bytes()) == Path(plain).read_bytes()
    capsys.readouterr()
    assert main([*words, f"{plain}.zip"]) == 2
    message = "An output is text, also compressed as .gz, .xz, .bz2, .zst, but the name"
    message += " OUT.tsv.zip is one of another format. Choose another ending."
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert not Path(f"{plain}.zip").exists()
