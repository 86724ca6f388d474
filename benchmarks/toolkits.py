"""
JoeyNMT, eole and CTranslate2: an environment for each, and the recipe that JoeyNMT and eole train by.

    python -m benchmarks.toolkits [NAME ...]

installs the named toolkits, by default all, into `.venv-peers/`. All sides get the same text in the same subwords,
the same model size, optimizer and learning rate.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoTokenizer

from benchmarks.harness import ROOT, run_command, run_worker

_FOLDER = ROOT / ".venv-peers"


@dataclass(frozen=True)
class Packages:
    """Packages of a toolkit; those in `alone` are installed without their dependencies."""

    packages: list[str]
    alone: list[str] = field(default_factory=list)


TOOLKITS = {
    "ctranslate2": Packages(["ctranslate2==4.8.5"]),
    "joeynmt": Packages(["torch", "joeynmt==2.3.0", "importlib-metadata<9", "psutil"]),
    # Its dependencies include servers, speech and trackers, which training and translation do not need.
    "eole": Packages(
        ["torch", "psutil", "pyonmttok", "configargparse", "rapidfuzz", "pyahocorasick", "six", "pyyaml", "tqdm"]
        + ["sacrebleu", "pydantic", "safetensors", "huggingface_hub", "requests", "sentencepiece", "subword-nmt"]
        + ["transformers", "aiohttp", "uvicorn", "fastapi", "pillow"],
        alone=["eole==0.6.4"],
    ),
}


class InstallationFailed(Exception):
    """A toolkit cannot be installed; the message says why and appears in the table."""


def python_of(name: str) -> Path:
    """
    Return the interpreter of a toolkit's environment, which is created first if necessary.

    Raises:
        InstallationFailed: the package index is unreachable or has no package for this machine.
    """
    folder = _FOLDER / name
    if not (folder / ".ready").exists():
        print(f"Installing {name} ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _install(folder, name, TOOLKITS[name].packages)
        _install(folder, name, TOOLKITS[name].alone, "--no-deps")
        (folder / ".ready").touch()
    return folder / "bin" / "python"


def _install(folder: Path, name: str, packages: list[str], *options: str) -> None:
    if not packages:
        return
    # the same version of torch for all systems
    wanted = [f"torch=={version('torch').split('+')[0]}" if package == "torch" else package for package in packages]
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ended = subprocess.run([*command, *options, *wanted], capture_output=True, text=True)
    if ended.returncode:
        raise InstallationFailed(f"{name} cannot be installed: {ended.stderr.strip().splitlines()[-1]}")


SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
_FOREVER = 10**7


def write_subwords(folder: Path, names: Iterable[str]) -> None:
    """Write text files of `folder` as subwords separated by spaces to `folder/subwords`, with the vocabulary."""
    subwords = folder / "subwords"
    subwords.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    own = set(tokenizer.all_special_tokens)
    vocabulary = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])]
    (subwords / "vocabulary").write_text("\n".join([*SPECIAL, *(t for t in vocabulary if t not in own)]) + "\n")
    for name in names:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        encoded = tokenizer(lines, add_special_tokens=False)["input_ids"]
        text = "\n".join(" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in encoded)
        (subwords / name).write_text(text + "\n", encoding="utf-8")


def as_text(folder: Path, lines: Sequence[str]) -> list[str]:
    """Decode lines of subwords separated by spaces."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    ids = [
        tokenizer.convert_tokens_to_ids([token for token in line.split() if token not in SPECIAL]) for line in lines
    ]
    return [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]


def write_config(toolkit: str, folder: Path, output: Path, options: dict[str, Any]) -> Path:
    """Write the configuration of one training run, whose model goes to `output`."""
    path = output.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(_CONFIGS[toolkit](folder / "subwords", output, options)))
    return path


def _joeynmt(text: Path, output: Path, options: dict[str, Any]) -> dict[str, Any]:
    side = {"type": "transformer", "num_layers": options["layers"], "num_heads": options["heads"], "dropout": 0.1}
    side |= {"embeddings": {"embedding_dim": options["d_model"], "scale": True, "dropout": 0.1}, "layer_norm": "post"}
    side |= {"hidden_size": options["d_model"], "ff_size": options["ffn_dim"], "activation": "relu"}
    model = {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "tied_embeddings": True}
    one = {"level": "word", "voc_file": str(text / "vocabulary"), "lowercase": False, "max_length": 256}
    special = {f"{name}_token": token for name, token in zip(("unk", "pad", "bos", "eos"), SPECIAL, strict=True)}
    training = {"random_seed": options["seed"], "optimizer": "adam", "adam_betas": [0.9, 0.98], "loss": "crossentropy"}
    training |= {"scheduling": "noam", "learning_rate_factor": 1.0, "learning_rate_warmup": options["warmup_steps"]}
    training |= {"learning_rate": 1.0, "learning_rate_min": 0.0, "label_smoothing": 0.1, "normalization": "tokens"}
    training |= {"batch_size": options["max_tokens"], "batch_type": "token", "epochs": _FOREVER, "updates": _FOREVER}
    training |= {"validation_freq": _FOREVER, "logging_freq": 100, "keep_best_ckpts": 1, "shuffle": True}
    return {
        "name": "benchmark",
        "model_dir": str(output),
        "use_cuda": False,
        "random_seed": options["seed"],
        "data": {
            "train": str(text / "train"),
            "dev": str(text / "train"),
            "dataset_type": "plain",
            "src": one | {"lang": "en"},
            "trg": one | {"lang": "de"},
            "sample_dev_subset": 8,
            "special_symbols": special | {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
        },
        "model": model | {"tied_softmax": True, "encoder": side, "decoder": side},
        "training": training | {"overwrite": True, "early_stopping_metric": "loss"},
        "testing": {"beam_size": 4, "beam_alpha": 1.0, "max_output_length": 60, "batch_size": 64, "n_best": 1}
        | {"batch_type": "sentence", "eval_metrics": []},
    }


def _eole(text: Path, output: Path, options: dict[str, Any]) -> dict[str, Any]:
    width = options["d_model"]
    model = {"architecture": "transformer", "hidden_size": width, "heads": options["heads"], "norm_eps": 1e-5}
    model |= {"transformer_ff": options["ffn_dim"], "mlp_activation_fn": "relu", "add_qkvbias": False}
    model |= {"encoder": {"layers": options["layers"]}, "decoder": {"layers": options["layers"]}}
    model |= {"embeddings": {"word_vec_size": width, "position_encoding_type": "SinusoidalInterleaved"}}
    model |= {"share_embeddings": True, "share_decoder_embeddings": True}
    training = {"optim": "adam", "adam_beta1": 0.9, "adam_beta2": 0.98, "learning_rate": 1.0, "decay_method": "noam"}
    training |= {"warmup_steps": options["warmup_steps"], "label_smoothing": 0.1, "dropout": [0.1]}
    training |= {"attention_dropout": [0.0], "normalization": "tokens", "batch_size": options["max_tokens"]}
    training |= {"batch_type": "tokens", "num_workers": 0, "train_steps": _FOREVER, "valid_steps": _FOREVER}
    training |= {"save_checkpoint_steps": _FOREVER, "world_size": 0, "model_path": str(output), "max_grad_norm": 0.0}
    training |= {"param_init_method": "xavier_uniform", "bucket_size": 32768}
    corpus = {"path_src": str(text / "train.en"), "path_tgt": str(text / "train.de"), "transforms": []}
    return {
        "data": {"corpus": corpus},
        "src_vocab": str(text / "vocabulary"),
        "tgt_vocab": str(text / "vocabulary"),
        "share_vocab": True,
        "seed": options["seed"],
        "model": model,
        "training": training,
    }


_CONFIGS = {"joeynmt": _joeynmt, "eole": _eole}
NAMES = tuple(_CONFIGS)


def train(toolkit: str, config: Path, options: dict[str, Any], environment: dict[str, str]) -> dict[str, float]:
    """Train and return the measurements of the meter."""
    request = {"toolkit": toolkit, "config": str(config), "options": options}
    return run_worker("toolkit_training_worker", request, toolkit, environment, python_of(toolkit))


def translate(toolkit: str, output: Path, source: Path) -> list[str]:
    """Translate a file of subwords with beam 4 by the toolkit's own command; return lines of subwords."""
    python, answers = str(python_of(toolkit)), output.with_suffix(".answers")
    if toolkit == "joeynmt":
        command = [python, "-m", "joeynmt", "translate", str(output.with_suffix(".yaml"))]
        return run_command(command, toolkit, {}, source.read_text(encoding="utf-8")).splitlines()
    without_spacy = "import sys, types; sys.modules['spacy'] = types.ModuleType('spacy'); "
    command = [python, "-c", without_spacy + "from eole.bin.main import main; main()", "predict"]
    command += ["-model_path", str(output), "-src", str(source), "-output", str(answers), "-beam_size", "4"]
    run_command([*command, "-batch_size", "64", "-world_size", "0"], toolkit, {})
    return answers.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    for toolkit in sys.argv[1:] or TOOLKITS:
        print(python_of(toolkit))
