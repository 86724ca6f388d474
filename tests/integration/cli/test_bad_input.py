"""Every mistake ends with status 2 and one line that says what must hold: a table of inputs over
all commands.
"""

import io
import json
import re
import shlex
import shutil
import signal
import socket
from pathlib import Path

import accelerate.tracking
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file, save_file
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

from tests.publishable import CARDS, write_workplace
from vanilla_transformer.cli import main
from vanilla_transformer.cli.flags import refuse_file_names

TEXTS = "--train_source a.en --train_target a.de"
PAIRS = f"{TEXTS} --output_dir out"
TINY = "--vocab_size 280 --d_model 16 --max_steps 1 --cache_dir cache"
for side in ("encoder", "decoder"):
    TINY += f" --{side}_layers 1 --{side}_attention_heads 2 --{side}_ffn_dim 32"
COMMANDS = {
    "translate": ["translate", "model", "A text."],
    "evaluate": ["evaluate", "model", "--source", "a.en", "--target", "a.de"],
    "score": ["score", "model", "--source", "a.en", "--target", "a.de"],
    "serve": ["serve", "model", "--port", "0"],
    "convert": ["convert", "model", "out", "--target_format", "marian"],
    "average-checkpoints": ["average-checkpoints", "model", "model", "--output_dir", "out"],
}


def write(name, content):
    """Return a function that replaces a file of a model folder."""

    def damage(folder):
        (folder / name).unlink()
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def remove(name):
    return lambda folder: (folder / name).unlink()


def dangle(name):
    """Return a function that replaces a file by a link to a file that does not exist."""

    def damage(folder):
        (folder / name).unlink()
        (folder / name).symlink_to("nowhere")

    return damage


def change(name, **values):
    """Return a function that changes values of a JSON file; None removes one."""

    def damage(folder):
        content = json.loads((folder / name).read_text()) | values
        content = {key: value for key, value in content.items() if value is not None}
        (folder / name).write_text(json.dumps(content))

    return damage


def change_weights(function):
    """Return a function that changes the tensors of a model folder."""

    def damage(folder):
        weights = load_file(folder / "model.safetensors")
        function(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def truncate(name):
    def damage(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-40])

    return damage


def empty_folder(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def no_folder(folder):
    shutil.rmtree(folder)


def file_as_folder(folder):
    shutil.rmtree(folder)
    folder.write_text("text")


def dangling_folder(folder):
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


NESTED, GENERATION = "[" * 20_000, "generation_config.json"
# Damage to a model folder, and words of the message: what must hold, and which file breaks it.
CORRUPT = "weights of model: .* truncated or corrupt"
TOO_DEEP = "config.json, `encoder_layers` must be at most 10,000, got 1000000"
TOO_LARGE = "config.json must have at most 1,048,576 bytes"
TORCHAO = {"quant_method": "torchao"}
NO_PACKAGE = "config.json of model asks for a package that is not installed: .*torchao"
NO_TOKENIZER = "model must have a tokenizer, such as tokenizer.json"
BIAS = "model.encoder.layers.0.fc1.bias"
SHAPE = f"weights of model do not fit it: {BIAS} must have the shape"
LABELS = dict.fromkeys(map(str, range(10**5)), "a")
DAMAGE = {
    "no folder": (no_folder, "no model folder model"),
    "empty folder": (empty_folder, "config.json"),
    "file": (file_as_folder, "model"),
    "dangling link": (dangling_folder, "model"),
    "config missing": (remove("config.json"), "config.json"),
    "config empty": (write("config.json", ""), "config.json"),
    "config not JSON": (write("config.json", "{"), "config.json"),
    "config a list": (write("config.json", "[]"), "config.json"),
    "config nested deeply": (write("config.json", NESTED), "nested|config.json"),
    "config not UTF-8": (write("config.json", b"\xff\xfe"), "config.json"),
    "config dangling": (dangle("config.json"), "config.json"),
    "enormous vocab_size": (change("config.json", vocab_size=10**15), f"vocab_size.*{10**15}"),
    "enormous width": (
        change("config.json", d_model=60_000),
        "config.json declares at least .* parameters",
    ),
    "enormous depth": (change("config.json", encoder_layers=10**6), TOO_DEEP),
    "enormous positions": (
        change("config.json", max_position_embeddings=10**7),
        "config.json declares at least .* parameters",
    ),
    "quantized by a missing package": (
        change("config.json", quantization_config=TORCHAO),
        NO_PACKAGE,
    ),
    "large config": (change("config.json", id2label=LABELS), TOO_LARGE),
    "negative d_model": (change("config.json", d_model=-4), "d_model"),
    "heads that do not divide": (change("config.json", encoder_attention_heads=3), "heads"),
    "unknown model_type": (change("config.json", model_type="nonsense"), "nonsense"),
    "model_type a list": (change("config.json", model_type=["a"]), "model_type|config.json"),
    "weights missing": (remove("model.safetensors"), "safetensors"),
    "weights empty": (write("model.safetensors", ""), CORRUPT),
    "weights garbage": (write("model.safetensors", b"\xff" * 500), CORRUPT),
    "weights truncated": (truncate("model.safetensors"), CORRUPT),
    "weights dangling": (dangle("model.safetensors"), "safetensors"),
    "tensor missing": (
        change_weights(lambda w: w.pop("model.encoder.layers.0.fc1.weight")),
        r"model.encoder.layers.0.fc1.weight",
    ),
    "tensor of another shape": (
        change_weights(lambda w: w.update({BIAS: torch.zeros(3)})),
        SHAPE,
    ),
    "NaN in a tensor": (
        change_weights(lambda w: w[BIAS].fill_(torch.nan)),
        f"NaN or infinity, such as in {BIAS}",
    ),
    "tokenizer missing": (remove("tokenizer.json"), NO_TOKENIZER),
    "tokenizer empty": (write("tokenizer.json", ""), "tokenizer"),
    "tokenizer not JSON": (write("tokenizer.json", "{"), "tokenizer"),
    "tokenizer dangling": (dangle("tokenizer.json"), NO_TOKENIZER),
    "generation config not JSON": (write(GENERATION, "{"), GENERATION),
    "generation config a list": (write(GENERATION, "[]"), GENERATION),
    "generation config of wrong types": (change(GENERATION, num_beams="four"), "num_beams"),
    "generation config out of range": (change(GENERATION, num_beams=-1), "num_beams"),
}
# One function loads models for all commands, so the others get a sample.
SAMPLE = ("no folder", "config nested deeply", "weights truncated")
MODELS = []
for command, arguments in COMMANDS.items():
    for name in DAMAGE if command == "translate" else SAMPLE:
        MODELS.append(pytest.param(arguments, *DAMAGE[name], id=f"{command}: {name}"))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a folder with a tiny model and some text."""
    folder = tmp_path_factory.mktemp("template")
    write_workplace(folder, 4)
    return folder


@pytest.fixture(scope="module")
def crowded(template, tmp_path_factory):
    """Return a folder with the model, the text and `FILES`."""
    folder = tmp_path_factory.mktemp("crowded")
    shutil.copytree(template, folder, dirs_exist_ok=True)
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif isinstance(content, Path):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def content_before(crowded):
    return snapshot(crowded)


@pytest.fixture
def workplace(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    refuse_to_train(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def crowded_workplace(crowded, tmp_path, monkeypatch):
    shutil.copytree(crowded, tmp_path, symlinks=True, dirs_exist_ok=True)
    refuse_to_train(monkeypatch, tmp_path)
    return tmp_path


def refuse_to_train(monkeypatch, folder):
    """Change to a folder, from which nothing reaches the Hub or a step of training."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    # Nothing gets that far.
    monkeypatch.setattr("vanilla_transformer.training.trainer.train_step", None)
    monkeypatch.delenv("RANK", raising=False)


class Hanging(BaseException):
    """Stand for a command that does not end."""


@pytest.fixture(autouse=True)
def _deadline():
    def fail(*_):
        raise Hanging

    signal.signal(signal.SIGALRM, fail)
    signal.alarm(30)
    yield
    signal.alarm(0)


def refusal(capsys, arguments):
    """Run a command that must fail, and return its one line of error."""
    AcceleratorState._reset_state(reset_partial_state=True)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    errors = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and shown.err.splitlines()[-1] == errors[0]
    assert len(errors[0]) < 1000
    assert "[Errno" not in errors[0]
    return errors[0]


@pytest.mark.parametrize(("arguments", "damage", "words"), MODELS)
def test_command_names_damage_of_model(workplace, capsys, arguments, damage, words):
    damage(workplace / "model")
    assert re.search(words, refusal(capsys, arguments))
    assert not (workplace / "out").exists()


def parquet(columns):
    """Return the content of a Parquet file."""
    file = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def occupied_port():
    server = socket.create_server(("127.0.0.1", 0))
    return server, str(server.getsockname()[1])


LATIN, EMPTY_ZIP, GARBAGE = b"\xe4\xf6\n", b"PK\x05\x06" + bytes(18), b"\xff" * 90
FACTS = (CARDS / "demo.yaml").read_text()
# Files beside the model and the text: None is a folder, and a path is that of a link.
FILES = {
    "empty": b"",
    "latin": LATIN,
    "blank": b" \n \n",
    "one": b"A\n",
    "two": b"a\nb\n",
    "folder": None,
    "dangling": Path("nowhere"),
    "loop": Path("loop"),
    "link": Path("a.en"),
    "full/notes": b"mine",
    "theirs.tsv": b"A\n",
    "two.tsv": b"a\tb\n",
    "theirs.html": b"A\n",
    "corpus/train.en": b"mine",
    "corpus/train.source": b"mine",
    "tokenizer/tokenizer_config.json": b"{}",
    "other/config.json": b"{}",
    "demo/corpus/train.en": b"mine",
    "template/README.md": b"mine",
    "recipe.yaml": b"train_source: a.en\ntrain_target: a.de\n",
    "broken.yaml": b"a: [\n",
    "list.yaml": b"- a\n",
    "number.yaml": b"1: 2\n",
    "date.yaml": b"2026-01-01: 2\n",
    "nested.yaml": b"a: " + b"[" * 99_999,
    "nested_facts.yaml": b"a: " + b"[" * 500,  # refused as well, and read sooner
    "alias.yaml": b"corpora: &a [*a]\n",
    "nul.yaml": b"a: \0\n",
    "card/config.json": b"{}",
    "card/README.md": b"mine\n",
    **{
        f"{name}.yaml": re.sub(rf"(?m)^{name}: .*", f"{name}: 3", FACTS).encode()
        for name in ("license", "example")
    },
    **{
        f"{name}{end}": content
        for end in (".pt", ".npz")
        for name, content in (("empty", b""), ("garbage", GARBAGE), ("zip", EMPTY_ZIP))
    },
    "garbage/config.json": GARBAGE,
    "zip/config.yaml": EMPTY_ZIP,
    # Corpora with mistakes
    "columns.tsv": b"a\tb\tc\n",
    "plain.tsv.gz": b"plain",
    "folder.tsv": None,
    "column.jsonl": b'{"en": "a", "de": "b"}\n{"en": "a"}\n',
    "language.jsonl": b'{"translation": {"en": "a"}}\n',
    "null.jsonl": b'{"translation": null}\n',
    "deep.jsonl": b"[" * 99_999 + b"\n",
    "text.jsonl": b'{"translation": "x"}\n',
    "column.parquet": parquet({"x": ["a"]}),
    "type.parquet": parquet({"source": [1], "target": [2]}),
}
_MIX = "--source_language en --target_language de --output_dir out --corpora"
CORPORA = {
    "{file: columns.tsv}": (
        "Line 1 of columns.tsv must have two columns, source TAB target, besides .*, it has 3"
    ),
    "{file: plain.tsv.gz}": "Cannot read plain.tsv.gz: the .gz file is truncated or corrupt",
    "{file: folder.tsv}": "There is no file folder.tsv. Check its name",
    "{file: column.jsonl}": "Line 2 of column.jsonl is blank, but its translation is not",
    "{file: language.jsonl}": "Line 1 of language.jsonl is blank, but its translation is not",
    "{file: null.jsonl}": "Line 1 of .* must have sentences by language .*, got None",
    "{file: deep.jsonl}": "Line 1 of deep.jsonl must be JSON",
    "{file: text.jsonl}": "Line 1 of .* must have sentences by language .*, got 'x'",
    "{file: column.parquet}": "column.parquet must have a column 'translation', it has 'x'",
    "{file: type.parquet}": "type.parquet must hold sentences, but .* type int64",
    **{
        f"{{file: a.tsv, weight: {weight}}}": (
            f"`weight` of a corpus must be a number above 0, got '?{weight}"
        )
        for weight in ("0", "-1", "two")
    },
}
# Commands, and words of their messages. PAIRS stands for the flags of a text and an output, TEXTS for
# the flags of the text.
MISTAKES = {
    "trnslate": "Did you mean 'translate'",
    "translate": "takes MODEL .SENTENCE. ..., got none",
    "translate model a\udce4b": "UTF-8",
    "translate mod\udce4l A": "no model folder|UTF-8",
    "translate model A --batch_size 0": "batch_size",
    "translate model A --num_beams four": (
        "`num_beams` must be an integer from 1 to 500, got 'four'."
    ),
    "translate model A --num_beams 2 --num_return_sequences 3": "num_return_sequences|num_beams",
    "translate model A --num_beams=3000": "`num_beams` must be an integer from 1 to 500, got 3000",
    "translate model A --num_beams=1"
    + "0" * 30: "`num_beams` must be an integer from 1 to 500, got 1000",
    "translate model A --length_penalty=-1000000000": r"`length_penalty` must be a number in \[-100, 100\]",
    "translate model A --device gpu": "`device` .*'cpu'.*'gpu'",
    "translate model A --dtype int8": "`dtype` must be .*'int8'",
    "translate model A --dtype float32 --precision float32": "Give `dtype` or `precision`, not both",
    "translate model A --threads 0": "`threads` must be from 1 to",
    "translate model A --n_best 2 --num_return_sequences 2": (
        "Give --n_best .* or --num_return_sequences .*, not both"
    ),
    "translate model A --n_best 3 --num_beams 2": "--n_best must be at most --num_beams=2, got 3",
    "translate model A --n_best 0": "`n_best` must be an integer from 1 to 500, got 0",
    "translate model A --input a.en": "Give sentences or a file",
    "translate model --input none": "There is no file none",
    "translate model --input=": "`input` must name a file or a folder, got ''",
    "translate model --input a.en --output=": "`output` must name a file or a folder, got ''",
    "translate model --input a.en --glossary=": "`glossary` must name a file or a folder, got ''",
    "translate model --input a.en --output loop": "loop: Too many levels of symbolic links",
    "translate model --input a.en --output loop/o": "loop/o: Too many levels of symbolic links",
    "translate model --input empty": "empty is empty",
    "translate model --input latin": "latin must be UTF-8, but line",
    "translate model --input a.en --output /dev/full": "Cannot write /dev/full: No space left",
    "translate model --input latin --output o": "latin must be UTF-8, but line",
    "translate model A --output model": "model is a folder",
    "translate model A --output model/config.json --overwrite": "must be another file than the inputs",
    "translate model A --no_protect=false": "--no_protect must have no value, got 'false'",
    "translate model A --num_beams true": "num_beams.*'true'",
    "translate model --input a.en --output ./a.en": (
        "must be another file than the inputs, but a.en is the same"
    ),
    "translate model --input a.de --target_prefixes a.en --output ./a.en": "must be another file than the inputs",
    "translate model A --glossary a.en --output ./a.en": "must be another file than the inputs",
    "translate model A --output theirs.tsv": "new file, but theirs.tsv exists.*--overwrite",
    "translate model A --output a.en/out": "a.en",
    "translate model A --overwrite": "--overwrite replaces the file that",
    "translate model A --resume": "Give its --input and --output",
    "translate model --input a.en --output /dev/null --resume": (
        "needs an ordinary file as --output, but /dev/null"
    ),
    "translate a.en A": "a.en",
    "translate runs/none/model/x A": "runs/none/model/x",
    "translate model --engine rai --input one --output b": (
        "`engine` must be one of 'ray', got 'rai'."
    ),
    "translate model --engine ray --input one": "Give its --output.",
    "translate model --engine ray --output b": (
        "--engine ray is for searches of the lines of an --input"
    ),
    "translate model A --workers 0": "`workers` must be an integer from 1 to .*, got 0",
    "translate model A --workers x": "`workers` must be an integer, got 'x'",
    "translate model A --workers -1": "`workers` must be an integer from 1 to .*, got -1",
    "translate model A --workers 9999": "`workers` must be an integer from 1 to .*, got 9999",
    "translate no/model A --temperature 0.5": "--temperature is for --do_sample and --mbr",
    "translate model A --seed 3": "--seed is for --do_sample and --mbr",
    "translate model A --sentence_splitter abbreviations": (
        "--sentence_splitter is for documents and"
    ),
    "translate model A --num_return_sequences=2.5": (
        "`num_return_sequences` must be an integer .*, got '2.5'."
    ),
    "translate model A --length_penalty=x": r"`length_penalty` must be a number in \[-100, 100\], got 'x'.",
    "translate model A --do_sample=maybe": "`do_sample` must be true or false, got 'maybe'.",
    "translate no/model A --mbr_samples 4": "`mbr_samples` needs `mbr`, one of 'chrf', 'bleu'.",
    "translate no/model A --glossary_casefold": (
        "`glossary_casefold` must be given with `--glossary FILE`, got it"
    ),
    "translate model A --mbr chrf --num_beams 1": "`mbr` needs 2 or more candidates",
    "translate model --do_sample --resume --input a.en --output o": (
        "--resume continues searches, not samples"
    ),
    "translate model --input a.en --constraint": "--constraint must have a value. See --help",
    "translate model --input a.en --constraint a --format html": (
        "is for sentences, but `--format` is html"
    ),
    "translate model --input a.en --target_prefix A --format html": (
        "--target_prefix is for sentences, but `--format`"
    ),
    "translate model A --target_prefix A --target_prefixes one": (
        "Give --target_prefix .for all sentences. or"
    ),
    "translate model A --target_prefixes missing": "missing",
    "translate model A --draft two": "a draft for each of 1 sentences, got 2 in two",
    "translate model A --draft_bias 0.1": "`draft_bias` must be given with a `draft`, got 0.1",
    "translate model A --draft one --num_beams 2": "A `draft` needs `num_beams=1` and, but",
    "translate model --input a.en --draft one --format html": (
        "--draft is for sentences, but `--format`"
    ),
    "translate model A --previous one two": "--previous is for a new version of a file. Give it by",
    "translate model --input a.en --previous one": (
        "--previous must be an earlier version of the --input and its translation, got one."
    ),
    "translate model --input a.po --previous one two": (
        "--previous must be one file: .* the earlier translation, got one two."
    ),
    "translate model --input one --previous one two": (
        "--previous must be two files with as many lines, a text and its translation, got 1 and 2."
    ),
    "translate model --input a.en --previous one two --n_best 2": (
        "With --previous there is one translation of each line."
    ),
    "translate model A --live": "--live is for text of standard input. Leave out sentences",
    "translate model --live --n_best 2 --draft one --num_beams 4": (
        "--live writes one translation of greedy search for each text. Leave out --n_best, "
        "--draft, --num_beams, or --live."
    ),
    "translate model --live --alignments": "Leave out --alignments, or --live.",
    "translate model --live --fail_on_warnings": "Leave out --fail_on_warnings, or --live.",
    "translate model A --target_prefixes two": (
        "a target prefix for each of 1 sentences, got 2 in two"
    ),
    "translate model A --alternatives 2 --n_best 2": (
        "With --alternatives there is one search for each."
    ),
    "translate no/model --format pdf --input a.en": "`format` must be one of html, xml",
    "translate no/model --format android --input no.xml": "`format` must be one of html, xml",
    "translate no/model --input theirs.html --output o.json": (
        "format of the input, html, but the name o.json is one of another format"
    ),
    "translate no/model --input none.docx --output o.txt": (
        "format of the input, docx, but the name o.txt is one of another format"
    ),
    "translate no/model --format html --input none": "none: No such file",
    "translate no/model --format html --input latin": "must be UTF-8, but line 1 has the byte",
    "translate no/model --format html --sentence_splitter no": "`sentence_splitter` must be",
    "translate no/model --input a.ass": "must end with .txt, .html, .htm, ",
    **{
        f"translate no/model --input a{ending}": "the code of a language or nothing, got a"
        for ending in (".eml", ".tbx", ".vue", ".sub", ".py", ".1", ".de.plist")
    },
    "translate no/model --input a.TBX.gz": (
        "got a.TBX.gz. Convert it, or say by --format how to read it"
    ),
    "translate no/model --input columns.tsv": (
        "columns.tsv: The columns to translate must be names in the first row or numbers from 1, "
        "of a, b, c, got none. Name them by `columns`."
    ),
    "translate no/model --input columns.tsv --columns a,x": "of a, b, c, got a,x",
    "translate no/model --format csv --input a.en --columns 2": "numbers from 1, of 1, got 2",
    "translate no/model --input a.html --columns 2": (
        "--columns is for CSV and TSV, but `--format` is html."
    ),
    "translate no/model A --columns 2": "--columns is for CSV and TSV, but `--format` is text",
    "translate no/model --format stringsdict --input a.en": "must be well-formed XML",
    **{
        f"translate no/model --format xml --input a.en {flag}": (
            "With `--format xml` there is one translation, without"
        )
        for flag in (
            "--json",
            "--do_sample",
            "--n_best 2",
            "--num_return_sequences 2",
            "--resume --output out",
        )
    },
    "translate model A --join_lines yes": "Give sentences or a file to translate, not both",
    "translate model --join_lines yes --format html": (
        "--join_lines is for plain text, but `--format` is html. Leave"
    ),
    "translate model --join_lines auto --input a.md": (
        "--join_lines is for plain text, but `--format` is markdown."
    ),
    "translate model --join_lines auto --json": r"With `--format wrapped \(by --join_lines\)` there is one",
    "translate model --join_lines yes --constraint x": r"--constraint is .*, but `--format` is wrapped \(by",
    "translate model --join_lines auto --engine ray --input a --output b": "without samples, --fail_on_warnings, --previous and --format",
    "score model --source a.en --target a.de --output ./a.en": "must be another file than the inputs",
    "score model --source a.en --target a.de --output link": "must be another file than the inputs",
    "score model --source a.en --target a.de --output theirs.tsv": (
        "new file, but theirs.tsv exists.*--overwrite"
    ),
    "score model --source one --target one --ray_workers 2": "Add --engine ray or leave them out.",
    "score model --source one --target one --ray_threads 1": (
        "--ray_workers and --ray_threads are for a cluster"
    ),
    "score model --source one --target one --engine ray --ray_workers 0": "`ray_workers` must be",
    "score model --source one --target one --resume": "--resume is for --engine ray. Leave it out.",
    "score model --source one --target one --threads 1 --engine ray --output o": "Give --ray_threads with",
    "score model --source a.en --target a.de --max_tokens 0": (
        "`max_tokens` must be an integer from 1 to 10,000,000"
    ),
    "score model --source a.en --target nowhere": "There is no file nowhere",
    "score model --source full --target a.de": "Two folders to score must have files of the same names",
    "translate model --input folder --output out": "must have files, but folder has none",
    "translate model --input card --output out": "files of lines, but card/README.md is a document",
    "translate model --input full --output full/out": "outside of full, whose files are read, got full/o",
    "back-translate model --input full --output full/o.tsv": "must be outside of full, whose files are",
    "score model --source a.en --target one --output o": (
        "must have the same number of lines, got 12 in"
    ),
    "evaluate model --target a.de": "Give a MODEL and its text by --source FILE",
    "evaluate --source a.en --target a.de": "Give a MODEL and its text",
    "evaluate one two --source a.en --target a.de": r"takes \[MODEL\], got 'one' 'two'",
    "evaluate model --hypotheses a.de --target a.en": (
        "Give a model or its --hypotheses, not both, got 'model' and"
    ),
    "evaluate no/model --source a.en --target a.de --paper_bleu xx": "got 'xx'",
    "evaluate no/model --source a.en --target a.de --json full": (
        "must be a file, but full is a folder. Name a file."
    ),
    "evaluate no/model --source a.en --target a.de --compare_with nowhere": "no file nowhere",
    "evaluate --hypotheses one --target a.de": (
        "one must have one translation for each line .*got 1 for 12"
    ),
    "evaluate --hypotheses a.en --target a.de --compare_with one": "one must have one .*got 1 for 12",
    "evaluate model --source x --target a.de": "There is no file x",
    "evaluate model --source a.en --target a.de --compare_with a.de --metric accuracy@5": (
        "by beam search of one model"
    ),
    "evaluate model --source a.en --target one": "same number of lines",
    "evaluate model --source one --target one --workers 0": (
        "`workers` must be an integer from 1 to .*, got 0"
    ),
    "evaluate --hypotheses a.en --target empty": "empty is empty",
    "evaluate --hypotheses a.en --target latin": "latin must be UTF-8",
    "evaluate --hypotheses a.en --target folder": "no file folder",
    "evaluate --hypotheses a.en --target dangling": "no file dangling",
    "evaluate --hypotheses a.en --target a.de --bootstrap_samples=0": (
        "`bootstrap_samples` must be an integer from 1"
    ),
    "evaluate --hypotheses a.de --target a.en --output_file ./a.en": "must be another file than the inputs",
    "evaluate --hypotheses a.de --target a.en --json ./a.en": "must be another file than the inputs",
    "evaluate --hypotheses a.de --target a.en --json o --output_file ./o": "got o twice",
    "evaluate --hypotheses a.de --target a.en --output_file theirs.tsv": "new file, but theirs.tsv exists",
    "evaluate --hypotheses a.de --target a.en --report theirs.html": "new file, but theirs.html exists",
    **{
        f"evaluate no/model --source a.en --target a.de --report {name}": (
            f"`report` must be an HTML .*, got '{name}'"
        )
        for name in ("r.txt", "report")
    },
    "evaluate no/model --source theirs.html --target a.de --report ./theirs.html": "is the same as theirs.html",
    "evaluate no/model --source a.en --target a.de --report o.html --json o.html": "got o.html twice",
    "evaluate --hypotheses a.en --target a.de --num_beams 4": (
        "--num_beams is for a model that translates, got"
    ),
    "evaluate --hypotheses a.en --target a.de --workers 1": (
        "--workers is for a model that translates"
    ),
    "compare-models no/model model --source a.en --target a.de --json ./a.en": "must be another file than the inputs",
    "compare-models no/model model --source a.en --target a.de --max_lost -1": "integer from 0 to",
    "evaluate-directions model --text a --json ./a.en": "must be another file than the inputs",
    "evaluate-directions model --text a --json theirs.tsv": (
        "new file, but theirs.tsv exists.*--overwrite"
    ),
    "write-alignments --source a.de --target a.en --output ./a.en": "must be another file than the inputs",
    "write-alignments --source a.de --target a.en --output theirs.tsv": (
        "new file, but theirs.tsv exists.*--overwrite"
    ),
    "check-language a.en a.de --json ./a.en": "must be another file than the inputs",
    "check-language a.en a.de --json theirs.tsv": "new file, but theirs.tsv exists.*--overwrite",
    "check-language --recipe recipe.yaml --json a.en --overwrite": "must be another file",
    "explain model A --output theirs.tsv": "new file, but theirs.tsv exists.*--overwrite",
    "back-translate model --input a.en --output theirs.tsv": (
        "new file, but theirs.tsv exists.*--overwrite"
    ),
    "back-translate model --input theirs.tsv --output theirs.tsv": "must be another file",
    "back-translate --input a.de --output o.tsv": "takes MODEL, got none",
    "back-translate nowhere --input a.de --output o.tsv": "There is no model folder nowhere",
    "back-translate model --input nowhere --output o.tsv": "nowhere",
    "back-translate model --input empty --output o.tsv": "empty is empty",
    "back-translate model --input a.de": "`output` must be given",
    "back-translate model --input a.de --output o.tsv --ray_workers 2": "Add --engine ray or leave",
    "back-translate model --input a.de --output o.tsv --engine ray --threads 1": "Give --ray_threads",
    "distill small --teacher model --output_dir o --ray_threads 2": "Add --engine ray or leave",
    "back-translate model --input a.de --output o.txt": "must be written to a .tsv or .jsonl file",
    "serve model --port=-1": "port",
    "serve model --port 65536": "port",
    "serve model --port http": "port",
    "serve model --host nowhere.invalid": "nowhere.invalid",
    "serve model model": "takes .MODEL., got",
    "convert model dangling --target_format marian": (
        "dangling is a link to nowhere, which does not exist"
    ),
    "convert model out": "source_format or --target_format",
    "convert model out --source_format marian --target_format marian": "got 2 of them",
    "convert model out --target_format gguf": "target_format.*gguf",
    "convert model full --target_format marian": "full is not empty",
    "convert model out --target_format marian --sentences empty": "empty is empty",
    **{
        f"convert {source} out --source_format {name}": source.strip("/")
        for name in ("marian", "fsmt", "joeynmt", "eole")
        for source in ("none/", "folder/", "garbage/", "zip/")
    },
    **{
        f"convert {kind}{end} out --source_format {name}": kind
        for name, end in {"fairseq": ".pt", "marian-npz": ".npz", "opennmt-py": ".pt"}.items()
        for kind in ("none", "empty", "garbage", "zip")
    },
    "compile": "takes MODEL, got none",
    "compile none": "no model folder none",
    "compile model --precision int4": "precision.*'int4'",
    "compile model --num_beams 0": "must be an integer from 1 to 500, got 0",
    "compile model --workers 0": "`workers` must be an integer from 1 to .*, got 0",
    "average-checkpoints model --output_dir out": "of words with 2 or more",
    "average-checkpoints model model --output_dir out --weights 1": "`weights` must be 2 positive numbers",
    "average-checkpoints model model --output_dir model": "already holds a model",
    "average-checkpoints model model --output_dir other": "has config.json",
    "render-card card --facts demo": "card/README.md is another",
    "render-card template --facts demo --template template/README.md": "must be another file",
    "render-card model --facts none.yaml": "none.yaml",
    "render-card model --facts broken.yaml": "broken.yaml must be YAML",
    "render-card model --facts list.yaml": "list.yaml is wrong: .*dict",
    "render-card model --facts number.yaml": "number.yaml is wrong: `name`",
    "render-card model --facts license.yaml": (
        "license.yaml is wrong: `license`: Input should be a valid string"
    ),
    "render-card model --facts example.yaml": (
        "example.yaml is wrong: `example`: Input should be a valid string"
    ),
    "render-card model --facts nested_facts.yaml": "nested|YAML",
    "render-card none --facts facts.yaml": "none",
    "check-model none": "no model folder none",
    "check-model a.en": "a.en",
    "check-model model --max_pairs 3": (
        "--max_pairs is for a stress test. Give --source and --target"
    ),
    "check-model model --target_language de": (
        "--target_language is for a stress test. Give --source and --target"
    ),
    "check-model model --source a.en": "Give both --source and --target",
    "push-to-hub model": "takes FOLDER USER/NAME, got 'model'",
    "push-to-hub none user/name": "no model folder none",
    "push-to-hub model user/name --token hf_x": "token",
    "push-to-hub model user/name --compare_with model": (
        "--compare_with is for a comparison. Give --compare_with, --source and --target, or leave"
    ),
    "push-to-hub model user/name --max_lost 1": "--max_lost is for a comparison",
    "adapt model": "takes MODEL MEMORY",
    "adapt model two.tsv": "`output_dir` must be given",
    "adapt model two.tsv --output_dir out": "200 different sources or more .*, got 1. Give more",
    "adapt model two.tsv --output_dir full": "full is not empty",
    "adapt model two.tsv --output_dir out --source a.en": "Give both --source and --target",
    "adapt model two.tsv --output_dir out --max_minutes 0": "must be a number in",
    "adapt model a.en --output_dir out": "The name of a `file` must end with",
    "clean-corpus --output_dir out": "`train_source` must be given",
    "clean-corpus --train_source a.en --train_target a.de": "`output_dir` must be given",
    "clean-corpus PAIRS --min_scor": "Did you mean 'min_score'",
    "clean-corpus TEXTS --output_dir a.de": "a.de",
    "clean-corpus TEXTS --output_dir corpus": "corpus.* has train",
    "prepare recipe.yaml": "`output` must be given",
    "prepare --output out": "`train_source` must be given",
    "prepare TEXTS --output full": "must be a new or an empty folder, but full is not empty",
    "prepare TEXTS --output a.de": "must be a new or an empty folder, but a.de is a file",
    "prepare TEXTS --output out --shard_pairs 0": "`shard_pairs` must be an integer from 1 to",
    "prepare TEXTS --output out --tasks 0": "`tasks` must be an integer from 1 to",
    "prepare TEXTS --output out --drop misaligned": "must do without .*, got `misaligned`",
    "prepare TEXTS --output out --vocabulary_sentences 0": "`vocabulary_sentences` must be",
    "train-tokenizer --output_dir out": "takes FILE ..., got none",
    "train-tokenizer none --output_dir out": "There is no file none",
    "train-tokenizer empty --output_dir out": "empty is empty",
    "train-tokenizer blank --output_dir out": "empty|needs text",
    "train-tokenizer latin --output_dir out": "must be UTF-8",
    "train-tokenizer a.en --output_dir out --vocab_size 9": "vocab_size.* at least 259",
    "train-tokenizer a.en --output_dir out --vocab_size=-5": "vocab_size",
    "train-tokenizer a.en --output_dir out --model regex": "`pattern` must be given for regex",
    "train-tokenizer a.en --output_dir out --model regex --pattern (": "of Oniguruma, got '\\('",
    "train-tokenizer a.en --output_dir out --min_frequency=-5": "min_frequency",
    "train-tokenizer a.en --output_dir a.de": "a.de",
    "train-tokenizer a.en --output_dir dangling": (
        "dangling is a link to nowhere, which does not exist"
    ),
    "train-tokenizer a.en --output_dir tokenizer": "already holds a tokenizer",
    "write-corpus --output_dir out --train=-1": "train",
    "write-corpus --output_dir out --train 99999999": "train",
    "write-corpus --output_dir a.en": "a.en",
    "write-corpus stray --output_dir x": "This command takes flags only, got 'stray'. See --help.",
    "write-corpus --output_dir corpus": "corpus.* has train",
    "download-data wmt99": "wmt99|multi30k",
    "download-data multi30k x": "takes CORPUS, got 'multi30k' 'x'",
    "download-data multi30k --output_dir corpus": "corpus/train.en must be new or the file",
    "demo --output_dir a.en": "a.en is a file",
    "demo --output_dir out --max_minutes=-1": "max_minutes",
    "demo --output_dir demo": "has train.en",
    "train none.yaml": "none.yaml",
    "train folder PAIRS": (
        "There is no recipe 'folder'. Name a YAML file, or one of base, demo, .*, small, "
    ),
    "train dangling PAIRS": "There is no recipe",
    "train number.yaml PAIRS": "must be a name, got 1",
    "train date.yaml PAIRS": "must be a name",
    "train nested.yaml PAIRS": "nested|YAML",
    "train alias.yaml PAIRS": "aliases",
    "train nul.yaml PAIRS": "must be YAML",
    "train PAIRS --max_steps 1" + "0" * 40: "`max_steps` must be an integer from 1 to",
    "train PAIRS --max_steps " + "1" * 5000: "max_steps",
    "train PAIRS --dropout=nan": "`dropout` must be a number, got nan",
    "train PAIRS --vocab_size=300 --threads=0": "`threads` must be from 1 to .*, got 0",
    "train PAIRS --vocab_size=300 --d_model=65536 --encoder_layers=1000": "its training needs .* GiB or more",
    "train PAIRS --tokenizer none/x": "none/x",
    "train --corpora " + "[" * 500 + " --output_dir out": "nested|corpora",
    "train --corpora '[{1: 2}]' --output_dir out": "1",
    "train --train_source a.en --train_target one --output_dir out": "lines, got 12 in a.en and 1 in one",
    "train --train_data folder --output_dir out TINY": (
        "must be a folder that `prepare` has completed, but folder/manifest.json is missing. Run"
    ),
    "train PAIRS --window_shards 2": "`window_shards` .* nothing: there is no `train_data`",
    "train --train_data folder --window_shards 0 --output_dir out": (
        "`window_shards` must be an integer from 1 to 1,000,000, got 0"
    ),
    "train PAIRS --validation_source x --validation_target a.de": "There is no file x",
    "train TEXTS --output_dir a.en": "a.en is a file",
    "train TEXTS --output_dir a.en/run": "a.en is a file",
    "train TEXTS --output_dir dangling": "dangling is a link to nowhere",
    "train PAIRS TINY --max_tokens 2": (
        "`max_tokens` must be at least the length of the longest sentence, got max_tok"
    ),
    "train PAIRS TINY --max_length 1": (
        "Cleaning must leave some pairs of the training text, got none. 0 of 12 pairs"
    ),
    "train PAIRS TINY --gradient_accumulation_steps 13": (
        "for each of the 13 batches .* got 12 pairs. Start fewer"
    ),
    "train PAIRS TINY --fsdp": (
        "`fsdp` needs several processes, got one that was not launched by torchrun"
    ),
    "train PAIRS --cache_dir one": "`cache_dir` must be a folder that can be written, got one",
    "train --train_source a.en --train_target a.en --output_dir out TINY --drop identical,markup": (
        "Cleaning must leave some pairs .* 0 of 12 pairs"
    ),
    "train PAIRS --report_to nonsense": (
        "`report_to` must name trackers of all, .*wandb.*, got 'nonsense'"
    ),
    "train PAIRS --tokenizer folder": (
        "`tokenizer` must be a folder or a Hub name of one, got folder"
    ),
    "train small --seed 1 stray": "This command takes .RECIPE., got 'small' 'stray'. See --help",
    f"train --dataset folder {_MIX.removesuffix('--corpora')}": (
        "`dataset` must be a folder written by `save_to_disk`"
    ),
    **{f"train {_MIX} '[{corpus}]' --cache_dir cache": words for corpus, words in CORPORA.items()},
    "translate model theirs.tsv": "must be text, got the name of a file: theirs.tsv. ",
    "translate model A folder/": "must be text, got the name of a folder: folder/. ",
    "translate model A --target_prefix full/notes": (
        "must be text, got the name of a file: full/notes. "
    ),
    "translate model A --constraint theirs.tsv": (
        "must be text, got the name of a file: theirs.tsv. "
    ),
    "explain model theirs.tsv --output out.html": (
        "must be text, got the name of a file: theirs.tsv. "
    ),
    "explain model A --output out.html --translation theirs.tsv": (
        "must be text, got the name of a file: theirs.tsv. "
    ),
    "create-space model --examples theirs.tsv": (
        "must be text, got the name of a file: theirs.tsv. "
    ),
}


def snapshot(folder):
    """Return the content of all files, by path below the folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    kept = [path for path in files if "cache" not in path.parts]
    return {path.relative_to(folder): path.read_bytes() for path in kept}


@pytest.mark.parametrize("command", MISTAKES, ids=lambda command: command[:60])
def test_command_names_mistake(crowded_workplace, content_before, capsys, command):
    line = command.replace("PAIRS", PAIRS).replace("TEXTS", TEXTS).replace("TINY", TINY)
    assert re.search(MISTAKES[command], refusal(capsys, shlex.split(line)))
    assert snapshot(crowded_workplace) == content_before


def test_train_names_a_tracker_that_is_not_installed(workplace, capsys, monkeypatch):
    monkeypatch.setattr(accelerate.tracking, "get_available_trackers", lambda: [])
    line = refusal(capsys, ["train", *PAIRS.split(), "--report_to", "tensorboard"])
    assert "`report_to` names tensorboard, which must be installed and is not" in line


def test_train_refuses_bpe_dropout_with_another_tokenizer(workplace, capsys):
    trained = ByteLevelBPETokenizer()
    special_tokens = {"eos_token": "<e>", "pad_token": "<p>"}
    options = {"vocab_size": 270, "special_tokens": [*special_tokens.values()]}
    trained.train_from_iterator(["a b"], show_progress=False, **options)
    foreign = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **special_tokens)
    foreign.save_pretrained("foreign")
    flags = ["--tokenizer", "foreign", "--bpe_dropout", "0.1"]
    line = refusal(capsys, ["train", *PAIRS.split(), *flags])
    assert "BPE-dropout must have a VanillaTransformerTokenizer" in line


NO_FILES = ["model", "Two dogs.", "and/or", "a" * 5000, "a\0b", ""]


@pytest.mark.parametrize("text", NO_FILES)
def test_a_text_that_names_no_file_is_one(workplace, text):
    refuse_file_names("Sentences", [text, None], "")


def test_serve_names_occupied_port(workplace, capsys):
    server, port = occupied_port()
    with server:
        assert port in refusal(capsys, ["serve", "model", "--port", port])
