"""Every mistake ends with status 2 and one line that says what must hold: a table of inputs over all commands."""

import json
import re
import shutil
import signal
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.publishable import CARDS, add_card
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

PAIRS = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
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
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)

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
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return damage


def change_weights(function):
    """Return a function that changes the tensors of a model folder."""

    def damage(folder):
        weights = load_file(folder / "model.safetensors")
        function(weights)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def truncate(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-40])


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


NESTED = "[" * 20_000
# Damage to a model folder, and words of the message: what must hold, and which file breaks it.
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
    "negative d_model": (change("config.json", d_model=-4), "d_model"),
    "heads that do not divide": (change("config.json", encoder_attention_heads=3), "heads"),
    "unknown model_type": (change("config.json", model_type="nonsense"), "nonsense"),
    "model_type a list": (change("config.json", model_type=["a"]), "model_type|config.json"),
    "weights missing": (remove("model.safetensors"), "safetensors"),
    "weights empty": (write("model.safetensors", ""), "weights of model: .* truncated or corrupt"),
    "weights garbage": (write("model.safetensors", b"\xff" * 500), "weights of model: .* truncated or corrupt"),
    "weights truncated": (truncate("model.safetensors"), "weights of model: .* truncated or corrupt"),
    "weights dangling": (dangle("model.safetensors"), "safetensors"),
    "tensor missing": (
        change_weights(lambda w: w.pop("model.encoder.layers.0.fc1.weight")),
        r"model.encoder.layers.0.fc1.weight",
    ),
    "tensor of another shape": (
        change_weights(lambda w: w.update({"model.encoder.layers.0.fc1.bias": torch.zeros(3)})),
        "weights of model do not fit it: model.encoder.layers.0.fc1.bias must have the shape",
    ),
    "NaN in a tensor": (
        change_weights(lambda w: w["model.encoder.layers.0.fc1.bias"].fill_(torch.nan)),
        "NaN or infinity, such as in model.encoder.layers.0.fc1.bias",
    ),
    "tokenizer missing": (remove("tokenizer.json"), "model must have a tokenizer, such as tokenizer.json"),
    "tokenizer empty": (write("tokenizer.json", ""), "tokenizer"),
    "tokenizer not JSON": (write("tokenizer.json", "{"), "tokenizer"),
    "tokenizer dangling": (dangle("tokenizer.json"), "model must have a tokenizer, such as tokenizer.json"),
    "generation config not JSON": (write("generation_config.json", "{"), "generation_config.json"),
    "generation config a list": (write("generation_config.json", "[]"), "generation_config.json"),
    "generation config of wrong types": (change("generation_config.json", num_beams="four"), "num_beams"),
    "generation config out of range": (change("generation_config.json", num_beams=-1), "num_beams"),
}
# One function loads models for all commands, so the others get a sample.
SAMPLE = ("no folder", "config nested deeply", "weights truncated")
MODELS = [
    pytest.param(arguments, damage, words, id=f"{command}: {name}")
    for command, arguments in COMMANDS.items()
    for name, (damage, words) in DAMAGE.items()
    if command == "translate" or name in SAMPLE
]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a folder with a tiny model and some text."""
    from tests.tiny import tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("template")
    add_card(save_model_folder(tiny_model(), tiny_tokenizer(), folder / "model"))
    (folder / "a.en").write_text("a b c\nb c d e\nc d\n" * 4)
    (folder / "a.de").write_text("A B C\nB C D E\nC D\n" * 4)
    shutil.copy(CARDS / "demo.yaml", folder / "facts.yaml")
    return folder


@pytest.fixture
def workplace(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("vanilla_transformer.training.trainer.train_step", None)  # nothing gets that far
    return tmp_path


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
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    errors = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and shown.err.splitlines()[-1] == errors[0]
    assert len(errors[0]) < 1000
    assert "[Errno" not in errors[0]
    return errors[0]


@pytest.mark.parametrize("arguments, damage, words", MODELS)
def test_command_names_damage_of_model(workplace, capsys, arguments, damage, words):
    damage(workplace / "model")
    assert re.search(words, refusal(capsys, arguments))
    assert not (workplace / "out").exists()


def occupied_port():
    server = socket.create_server(("127.0.0.1", 0))
    return server, str(server.getsockname()[1])


EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
LATIN = b"\xe4\xf6\n"
# Name: arguments, files to write (None: a folder; a link: its target), words of the message.
FLAGS = {
    "no command of this name": (["trnslate"], {}, "Did you mean 'translate'"),
    "argument that is not UTF-8": (["translate", "model", "a\udce4b"], {}, "UTF-8"),
    "model name that is not UTF-8": (["translate", "mod\udce4l", "A text."], {}, "no model folder|UTF-8"),
    "translate: no model": (["translate"], {}, "Name the folder"),
    "translate: batch size 0": (["translate", "model", "A", "--batch_size", "0"], {}, "batch_size"),
    "translate: batch size -1": (["translate", "model", "A", "--batch_size=-1"], {}, "batch_size"),
    "translate: beam size is text": (["translate", "model", "A", "--num_beams", "four"], {}, "num_beams.*'four'"),
    "translate: more results than beams": (
        ["translate", "model", "A", "--num_beams", "2", "--num_return_sequences", "3"],
        {},
        "num_return_sequences|num_beams",
    ),
    **{
        f"{arguments[0]}: {arguments[-1][:40]}": (arguments, {}, words)
        for arguments, words in (
            (["translate", "model", "A", "--num_beams=3000"], "`num_beams` must be at most 500, got 3000"),
            (["translate", "model", "A", "--num_beams=1" + "0" * 30], "`num_beams` must be at most 500, got 1000"),
            (["translate", "model", "A", "--n_best=1000"], "`n_best` must be at most 500"),
            (["translate", "model", "A", "--max_new_tokens=1000000000"], "`max_new_tokens` must be at most 10,000"),
            (["translate", "model", "A", "--no_repeat_ngram_size=1000000000"], "_ngram_size` must be at most 1,000"),
            (["translate", "model", "A", "--length_penalty=1000000000"], "`length_penalty` must be at most 100"),
            (["translate", "model", "A", "--length_penalty=1000000000"], "`length_penalty` must be at most 100"),
            (["translate", "model", "A", "--length_penalty=-1000000000"], "`length_penalty` must be at least -100"),
            (["evaluate", "--hypotheses", "a.en", "--target", "a.de", "--bootstrap_samples=1000000000"],
             "`bootstrap_samples` must be at most 100,000"),
            (["train-tokenizer", "a.en", "--output_dir", "out", "--vocab_size=1000000000"],
             "`vocab_size` must be at most 10,000,000"),
            (["train", *PAIRS, "--vocab_size=1000000000"], "`vocab_size` must be at most 10,000,000"),
            (["train", *PAIRS, "--vocab_size=300", "--d_model=1" + "0" * 30], "`d_model` must be at most 65,536"),
            (["train", *PAIRS, "--encoder_layers=1" + "0" * 30], "`encoder_layers` must be at most 1,000"),
            (["train", *PAIRS, "--vocab_size=300", "--d_model=65536", "--encoder_layers=1000"],
             "its training needs .* GiB or more, and there are .* GiB"),
            (["train", *PAIRS, "--max_tokens=1000000000"], "`max_tokens` must be at most 10,000,000"),
            (["train", *PAIRS, "--dataloader_num_workers=1000000000"], "`dataloader_num_workers` must be at most 256"),
            (["train", *PAIRS, "--vocab_size=300", "--threads=0"], "`threads` must be from 1 to .*, got 0"),
            (["train", *PAIRS, "--label_smoothing=1"], r"`label_smoothing` must be in \[0, 1\), got 1.0"),
            (["train", *PAIRS, "--dropout=nan"], "`dropout` must be a finite number"),
        )
    },
    "convert: dangling output": (
        ["convert", "model", "l", "--target_format", "marian"],
        {"l": Path("nowhere")},
        "l is a link to nowhere, which does not exist",
    ),
    "train-tokenizer: dangling output": (
        ["train-tokenizer", "a.en", "--output_dir", "l"],
        {"l": Path("nowhere")},
        "l is a link to nowhere, which does not exist",
    ),
    "translate: unknown device": (["translate", "model", "A", "--device", "gpu"], {}, "`device` .*'cpu'.*'gpu'"),
    "translate: unknown backend": (["translate", "model", "A", "--backend", "tf"], {}, "`backend` must be .*'tf'"),
    "translate: unknown dtype": (["translate", "model", "A", "--dtype", "int8"], {}, "`dtype` must be .*'int8'"),
    "translate: dtype and precision": (
        ["translate", "model", "A", "--dtype", "float32", "--precision", "float32"],
        {},
        "Give `dtype` or `precision`, not both",
    ),
    "translate: dtype and backend": (
        ["translate", "model", "A", "--dtype", "float32", "--backend", "ctranslate2"],
        {},
        "`dtype` is for PyTorch's weights, but `backend` is 'ctranslate2'. Convert",
    ),
    "translate: no threads": (["translate", "model", "A", "--threads", "0"], {}, "`threads` must be from 1 to"),
    "score: threads of a cluster": (
        ["score", "model", "--source", "en", "--target", "de", "--threads", "1", "--engine", "ray", "--output", "out"],
        {},
        "--threads is for this process. Give --ray_threads with --engine ray",
    ),
    "translate: n-best twice": (
        ["translate", "model", "A", "--n_best", "2", "--num_return_sequences", "2"],
        {},
        "Give --n_best .* or --num_return_sequences .*, not both",
    ),
    "translate: n-best 0": (["translate", "model", "A", "--n_best", "0"], {}, "`n_best` must be 1 or more, got 0"),
    "translate: sentence and input": (["translate", "model", "A", "--input", "a.en"], {}, "Give sentences or a file"),
    "translate: missing input": (["translate", "model", "--input", "none"], {}, "There is no file none"),
    "translate: empty input": (["translate", "model", "--input", "e"], {"e": b""}, "e is empty"),
    "translate: input not UTF-8": (["translate", "model", "--input", "l"], {"l": LATIN}, "l must be UTF-8, but line"),
    "translate: output not UTF-8": (
        ["translate", "model", "--input", "l", "--output", "o"],
        {"l": LATIN},
        "l must be UTF-8, but line",
    ),
    "translate: output a folder": (["translate", "model", "A", "--output", "model"], {}, "model is a folder"),
    "translate: output is the input": (
        ["translate", "model", "--input", "a.en", "--output", "./a.en"],
        {},
        "must be another file than the inputs, but a.en is the same as ./a.en|a.en is the same as a.en. Choose",
    ),
    **{
        f"{command[0]}: {option} is the input {name}": (
            [*command, option, name], {"link": Path("a.en")}, "must be another file than the inputs"
        )
        for command, option in (
            (["translate", "model", "--input", "a.de", "--target_prefixes", "a.en"], "--output"),
            (["translate", "model", "A", "--glossary", "a.en"], "--output"),
            (["score", "model", "--source", "a.en", "--target", "a.de"], "--output"),
            (["write-alignments", "--source", "a.de", "--target", "a.en"], "--output"),
            (["evaluate", "--hypotheses", "a.de", "--target", "a.en"], "--output_file"),
            (["evaluate", "--hypotheses", "a.de", "--target", "a.en"], "--json"),
            (["evaluate-directions", "model", "--text", "a"], "--json"),
            (["check-language", "a.en", "a.de"], "--json"),
        )
        for name in (("./a.en", "link") if command[0] == "score" else ("./a.en",))
    },
    **{
        f"{' '.join([command[0], option])} exists": (
            [*command, option, "theirs.tsv"], {"theirs.tsv": b"A\n"}, "new file, but theirs.tsv exists.*--overwrite"
        )
        for command, option in (
            (["translate", "model", "A"], "--output"),
            (["score", "model", "--source", "a.en", "--target", "a.de"], "--output"),
            (["write-alignments", "--source", "a.de", "--target", "a.en"], "--output"),
            (["explain", "model", "A"], "--output"),
            (["back-translate", "model", "--input", "a.en"], "--output"),
            (["evaluate", "--hypotheses", "a.de", "--target", "a.en"], "--output_file"),
            (["evaluate", "--hypotheses", "a.de", "--target", "a.en"], "--json"),
            (["evaluate", "--hypotheses", "a.de", "--target", "a.en"], "--report"),
            (["evaluate-directions", "model", "--text", "a"], "--json"),
            (["check-language", "a.en", "a.de"], "--json"),
        )
    },
    "back-translate: output is the input": (
        ["back-translate", "model", "--input", "a.tsv", "--output", "a.tsv"],
        {"a.tsv": b"A\n"},
        "must be another file",
    ),
    "evaluate: an output twice": (
        ["evaluate", "--hypotheses", "a.de", "--target", "a.en", "--json", "o", "--output_file", "./o"],
        {},
        "got o twice",
    ),
    "check-language: output is a text of the recipe": (
        ["check-language", "--recipe", "r.yaml", "--json", "a.en", "--overwrite"],
        {"r.yaml": b"train_source: a.en\ntrain_target: a.de\n"},
        "must be another file",
    ),
    "render-card: the template is the card": (
        ["render-card", "model", "--facts", "demo", "--template", "model/README.md"],
        {"model/README.md": b"mine"},
        "must be another file",
    ),
    "write-corpus: a file of others": (["write-corpus", "--output_dir", "o"], {"o/train.en": b"mine"}, "has train.en"),
    "clean-corpus: a file of others": (
        ["clean-corpus", *PAIRS[:4], "--output_dir", "o"],
        {"o/train.source": b"mine"},
        "has train.source",
    ),
    "train-tokenizer: a file of others": (
        ["train-tokenizer", "a.en", "--output_dir", "o"],
        {"o/tokenizer_config.json": b"{}"},
        "already holds a tokenizer",
    ),
    "download-data: a file of others": (
        ["download-data", "multi30k", "--output_dir", "o"],
        {"o/train.en": b"mine"},
        "o/train.en must be new or the file",
    ),
    "average: a file of others": (
        ["average-checkpoints", "model", "model", "--output_dir", "o"],
        {"o/config.json": b"{}"},
        "has config.json",
    ),
    "demo: a file of others": (
        ["demo", "--output_dir", "o"],
        {"o/corpus/train.en": b"mine"},
        "has train.en",
    ),
    "translate: output below a file": (["translate", "model", "A", "--output", "a.en/out"], {}, "a.en"),
    "translate: resume without files": (["translate", "model", "A", "--resume"], {}, "Give its --input and --output"),
    "translate: resume a device": (
        ["translate", "model", "--input", "a.en", "--output", "/dev/null", "--resume"],
        {},
        "needs an ordinary file as --output, but /dev/null",
    ),
    "translate: a path of a file": (["translate", "a.en", "A"], {}, "a.en"),
    "translate: a path with folders": (["translate", "runs/none/model/x", "A"], {}, "runs/none/model/x"),
    "evaluate: no source": (["evaluate", "model", "--target", "a.de"], {}, "source"),
    "evaluate: missing source": (["evaluate", "model", "--source", "x", "--target", "a.de"], {}, "There is no file x"),
    "evaluate: other number of lines": (
        ["evaluate", "model", "--source", "a.en", "--target", "b.de"],
        {"b.de": b"A\n"},
        "same number of lines",
    ),
    "evaluate: empty target": (
        ["evaluate", "--hypotheses", "a.en", "--target", "b.de"],
        {"b.de": b""},
        "b.de is empty",
    ),
    "evaluate: target not UTF-8": (
        ["evaluate", "--hypotheses", "a.en", "--target", "b.de"],
        {"b.de": LATIN},
        "b.de must be UTF-8",
    ),
    "evaluate: target a folder": (["evaluate", "--hypotheses", "a.en", "--target", "d"], {"d": None}, "no file d"),
    "evaluate: dangling link": (["evaluate", "--hypotheses", "a.en", "--target", "l"], {"l": Path("x")}, "no file l"),
    "serve: port below 0": (["serve", "model", "--port=-1"], {}, "port"),
    "serve: port above 65535": (["serve", "model", "--port", "65536"], {}, "port"),
    "serve: port is text": (["serve", "model", "--port", "http"], {}, "port"),
    "serve: no such host": (["serve", "model", "--host", "nowhere.invalid"], {}, "nowhere.invalid"),
    "serve: unknown backend": (["serve", "model", "--backend", "tf"], {}, "backend"),
    "serve: two models": (["serve", "model", "model"], {}, "Name one model"),
    "convert: no format": (["convert", "model", "out"], {}, "source_format or --target_format"),
    "convert: both formats": (
        ["convert", "model", "out", "--source_format", "marian", "--target_format", "marian"],
        {},
        "got 2 of them",
    ),
    "convert: unknown format": (["convert", "model", "out", "--target_format", "gguf"], {}, "target_format.*gguf"),
    "convert: output not empty": (
        ["convert", "model", "full", "--target_format", "marian"],
        {"full/notes": b"mine"},
        "full is not empty",
    ),
    "convert: sentences empty": (
        ["convert", "model", "out", "--target_format", "marian", "--sentences", "e"],
        {"e": b""},
        "e is empty",
    ),
    **{
        f"convert from {name}: {kind}": (["convert", source, "out", "--source_format", name], files, source)
        for name, suffix in {
            **dict.fromkeys(("marian", "fsmt", "joeynmt", "eole"), ""),
            **{"fairseq": ".pt", "marian-npz": ".npz", "opennmt-py": ".pt"},
        }.items()
        for kind, source, files in (
            ("missing", f"none{suffix}", {}),
            ("empty", f"empty{suffix}", {f"empty{suffix}": b"" if suffix else None}),
            ("garbage", f"bad{suffix}", {f"bad{suffix}" if suffix else "bad/config.json": b"\xff" * 90}),
            ("another archive", f"zip{suffix}", {f"zip{suffix}" if suffix else "zip/config.yaml": EMPTY_ZIP}),
        )
    },
    "compile: no model": (["compile"], {}, "Name one model"),
    "compile: missing model": (["compile", "none"], {}, "no model folder none"),
    "compile: unknown precision": (["compile", "model", "--precision", "int4"], {}, "precision.*'int4'"),
    "compile: beam size 0": (["compile", "model", "--num_beams", "0"], {}, "must be an integer of 1 or more"),
    "translate: unknown engine": (
        ["translate", "model", "--engine", "rai", "--input", "a", "--output", "b"],
        {"a": b"a\n"},
        "`engine` must be 'ray' or left out, got 'rai'.",
    ),
    "translate: cluster without file": (
        ["translate", "model", "--engine", "ray", "--input", "a"],
        {"a": b"a\n"},
        "Give its --output.",
    ),
    "translate: cluster without input": (
        ["translate", "model", "--engine", "ray", "--output", "b"],
        {},
        "--engine ray is for searches of the lines of an --input",
    ),
    "score: workers without cluster": (
        ["score", "model", "--source", "a", "--target", "a", "--ray_workers", "2"],
        {"a": b"a\n"},
        "Add --engine ray or leave them out.",
    ),
    "score: no workers": (
        ["score", "model", "--source", "a", "--target", "a", "--engine", "ray", "--ray_workers", "0"],
        {"a": b"a\n"},
        "`ray_workers` must be 1 or more, got 0.",
    ),
    "score: resume without cluster": (
        ["score", "model", "--source", "a", "--target", "a", "--resume"],
        {"a": b"a\n"},
        "--resume is for --engine ray. Leave it out.",
    ),
    **{
        f"{command}: {number} workers": (
            [command, "model", *flags, "--workers", number],
            {"a": b"a\n"},
            f"`workers` must be an integer from 1 to .*, got {got}",
        )
        for command, flags, numbers in (
            ("translate", ["A."], {"0": "0", "x": "'x'", "-1": "'-1'", "9999": "9999"}),
            ("compile", [], {"0": "0"}),
            ("evaluate", ["--source", "a", "--target", "a"], {"0": "0"}),
        )
        for number, got in numbers.items()
    },
    "average: one model": (["average-checkpoints", "model", "--output_dir", "out"], {}, "at least two"),
    "average: too few weights": (
        ["average-checkpoints", "model", "model", "--output_dir", "out", "--weights", "1"],
        {},
        "`weights` must be 2 positive numbers",
    ),
    "average: output holds a model": (
        ["average-checkpoints", "model", "model", "--output_dir", "model"],
        {},
        "already holds a model",
    ),
    "render-card: the card is another's": (
        ["render-card", "model", "--facts", "demo"], {"model/README.md": b"mine\n"}, "model/README.md is another"
    ),
    "render-card: no facts": (["render-card", "model", "--facts", "none.yaml"], {}, "none.yaml"),
    "render-card: facts not YAML": (["render-card", "model", "--facts", "f"], {"f": b"a: [\n"}, "f must be YAML"),
    "render-card: facts a list": (["render-card", "model", "--facts", "f"], {"f": b"- a\n"}, "f is wrong: .*dict"),
    "render-card: integer keys": (["render-card", "model", "--facts", "f"], {"f": b"1: 2\n"}, "f is wrong: `name`"),
    **{
        f"render-card: number for {name}": (
            ["render-card", "model", "--facts", "f"],
            {"f": re.sub(rf"(?m)^{name}: .*", f"{name}: 3", (CARDS / "demo.yaml").read_text()).encode()},
            f"f is wrong: `{name}`: Input should be a valid string",
        )
        for name in ("name", "license", "example", "source_language", "validation_text")
    },
    "render-card: nested facts": (["render-card", "model", "--facts", "f"], {"f": b"[" * 99_999}, "nested|YAML"),
    "render-card: no model": (["render-card", "none", "--facts", "facts.yaml"], {}, "none"),
    "check-model: no folder": (["check-model", "none"], {}, "no model folder none"),
    "check-model: a file": (["check-model", "a.en"], {}, "a.en"),
    "push-to-hub: no place": (["push-to-hub", "model"], {}, "got 1 names"),
    "push-to-hub: no folder": (["push-to-hub", "none", "user/name"], {}, "no model folder none"),
    "push-to-hub: token flag": (["push-to-hub", "model", "user/name", "--token", "hf_x"], {}, "token"),
    "clean-corpus: no text": (["clean-corpus", "--output_dir", "out"], {}, "`train_source` must be given"),
    "clean-corpus: no folder": (["clean-corpus", *PAIRS[:4]], {}, "`output_dir` must be given"),
    "clean-corpus: unknown flag": (["clean-corpus", *PAIRS, "--min_scor"], {}, "Did you mean 'min_score'"),
    "clean-corpus: output a file": (["clean-corpus", *PAIRS[:4], "--output_dir", "a.de"], {}, "a.de"),
    "train-tokenizer: no file": (["train-tokenizer", "--output_dir", "out"], {}, "at least one text file"),
    "train-tokenizer: missing file": (["train-tokenizer", "none", "--output_dir", "out"], {}, "There is no file none"),
    "train-tokenizer: empty file": (["train-tokenizer", "e", "--output_dir", "out"], {"e": b""}, "e is empty"),
    "train-tokenizer: spaces": (["train-tokenizer", "e", "--output_dir", "out"], {"e": b" \n \n"}, "empty|needs text"),
    "train-tokenizer: not UTF-8": (["train-tokenizer", "e", "--output_dir", "out"], {"e": LATIN}, "must be UTF-8"),
    "train-tokenizer: small vocabulary": (
        ["train-tokenizer", "a.en", "--output_dir", "out", "--vocab_size", "9"],
        {},
        "vocab_size.* at least 259",
    ),
    "train-tokenizer: negative vocabulary": (
        ["train-tokenizer", "a.en", "--output_dir", "out", "--vocab_size=-5"],
        {},
        "vocab_size",
    ),
    "train-tokenizer: negative frequency": (
        ["train-tokenizer", "a.en", "--output_dir", "out", "--min_frequency=-5"],
        {},
        "min_frequency",
    ),
    "train-tokenizer: output a file": (["train-tokenizer", "a.en", "--output_dir", "a.de"], {}, "a.de"),
    "write-corpus: negative": (["write-corpus", "--output_dir", "out", "--train=-1"], {}, "train"),
    "write-corpus: too many": (["write-corpus", "--output_dir", "out", "--train", "99999999"], {}, "train"),
    "write-corpus: output a file": (["write-corpus", "--output_dir", "a.en"], {}, "a.en"),
    "download-data: unknown": (["download-data", "wmt99"], {}, "wmt99|multi30k"),
    "download-data: two": (["download-data", "multi30k", "x"], {}, "got 2 names"),
    "demo: output a file": (["demo", "--output_dir", "a.en"], {}, "a.en is a file"),
    "demo: negative minutes": (["demo", "--output_dir", "out", "--max_minutes=-1"], {}, "max_minutes"),
    "train: no recipe": (["train", "none.yaml"], {}, "none.yaml"),
    "train: recipe a folder": (["train", "r.yaml", *PAIRS], {"r.yaml": None}, "There is no recipe"),
    "train: dangling recipe": (["train", "r.yaml", *PAIRS], {"r.yaml": Path("x")}, "There is no recipe"),
    "train: integer key": (["train", "r.yaml", *PAIRS], {"r.yaml": b"1: 2\n"}, "must be a name, got 1"),
    "train: key that is a date": (["train", "r.yaml", *PAIRS], {"r.yaml": b"2026-01-01: 2\n"}, "must be a name"),
    "train: nested recipe": (["train", "r.yaml", *PAIRS], {"r.yaml": b"a: " + b"[" * 99_999}, "nested|YAML"),
    "train: recursive alias": (["train", "r.yaml", *PAIRS], {"r.yaml": b"corpora: &a [*a]\n"}, "aliases"),
    "train: NUL in recipe": (["train", "r.yaml", *PAIRS], {"r.yaml": b"a: \0\n"}, "must be YAML"),
    "train: 10^40 steps": (["train", *PAIRS, "--max_steps", "1" + "0" * 40], {}, "max_steps"),
    "train: digits without end": (["train", *PAIRS, "--max_steps", "1" * 5000], {}, "max_steps"),
    "train: nested corpora": (["train", "--corpora", "[" * 9_999, "--output_dir", "out"], {}, "nested|corpora"),
    "train: corpora with integer keys": (["train", "--corpora", "[{1: 2}]", "--output_dir", "out"], {}, "1"),
    "train: other number of lines": (
        ["train", "--train_source", "a.en", "--train_target", "b.de", "--output_dir", "out"],
        {"b.de": b"A\n"},
        "same number of lines, got 12 in a.en and 1 in b.de",
    ),
    "train: validation missing": (
        ["train", *PAIRS, "--validation_source", "x", "--validation_target", "a.de"],
        {},
        "There is no file x",
    ),
    "train: output is a file": (["train", *PAIRS[:-1], "a.en"], {}, "a.en is a file"),
    "train: output below a file": (["train", *PAIRS[:-1], "a.en/run"], {}, "a.en is a file"),
    "train: dangling output": (["train", *PAIRS[:-1], "l"], {"l": Path("nowhere")}, "l is a link to nowhere"),
    "translate: temperature": (["translate", "model", "A.", "--temperature", "0.5"], {}, "--temperature is for --do"),
    "translate: seed": (["translate", "model", "A.", "--seed", "3"], {}, "--seed is for --do_sample and --mbr"),
    "translate: overwrite": (["translate", "model", "A.", "--overwrite"], {}, "--overwrite replaces the file of"),
    "translate: splitter": (
        ["translate", "model", "A.", "--sentence_splitter", "abbreviations"],
        {},
        "--sentence_splitter is for documents and --split_sentences, got neither",
    ),
    "score: ray_threads": (
        ["score", "model", "--source", "a.en", "--target", "a.de", "--ray_threads", "1"],
        {},
        "--ray_workers and --ray_threads are for a cluster",
    ),
    "evaluate: beams": (
        ["evaluate", "--hypotheses", "a.en", "--target", "a.de", "--num_beams", "4"],
        {},
        "--num_beams is for a model that translates, got it with --hypotheses",
    ),
    "evaluate: workers": (
        ["evaluate", "--hypotheses", "a.en", "--target", "a.de", "--workers", "1"],
        {},
        "--workers is for a model that translates",
    ),
    "train: tokenizer without folder": (["train", *PAIRS, "--tokenizer", "none/x"], {}, "none/x"),
    "train: enormous model": (
        ["train", *PAIRS, "--vocab_size", "300", "--d_model", str(2**40)],
        {},
        "memory|d_model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("arguments, files, words", FLAGS.values(), ids=FLAGS)
def test_command_names_mistake(workplace, capsys, arguments, files, words):
    for name, content in files.items():
        path = workplace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif isinstance(content, Path):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    assert re.search(words, refusal(capsys, arguments))
    assert not (workplace / "out").exists()
    for name, content in files.items():
        assert not isinstance(content, bytes) or (workplace / name).read_bytes() == content


def test_serve_names_occupied_port(workplace, capsys):
    server, port = occupied_port()
    with server:
        assert port in refusal(capsys, ["serve", "model", "--port", port])
