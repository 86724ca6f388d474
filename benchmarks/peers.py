"""
The systems that benchmarks compare: `Peer`, and the toolkits, each with a separate environment.

    python -m benchmarks.peers [NAME ...]

installs the named toolkits, by default all, into `.venv-peers/`. A subclass of `Peer` says how a
system trains or translates. All get the same text in the same subwords, the same model size,
optimizer and learning rate. This package's systems and transformers' are in `bench_training` and
`bench_decoding`.

Training runs in a process of the system's own environment, so this module imports the standard
library only; the environments of toolkits that train have torch and psutil, too.
"""

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import Any, ClassVar

from benchmarks.harness import (
    ROOT,
    is_worker,
    peak_bytes,
    progress,
    run_worker,
    start_worker,
    worker_command,
)

ENVIRONMENTS = ROOT / ".venv-peers"
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>"]
_FOREVER = 10**7
_WARM_UP = 64  # sentences at most, which fill the engine's slots

# Texts, beams and the most new tokens → translations
Translate = Callable[[Sequence[str], int, int], list[str]]


class InstallationFailed(Exception):
    """A toolkit cannot be installed; the message says why and appears in the report."""


class TimeLimitReached(Exception):
    """Stops training after the last measured update."""


class Peer:
    """
    One of the compared systems.

    Attributes:
        name: Name in tables.
        toolkit: The name of its environment; None for the environment of this process.
        packages: Installed into its environment; `alone` without their dependencies.
        ours: Whether it is of this package. The others are what it is compared with.
        worker: The module of its process, whose `PEERS` has it.
    """

    name: str
    toolkit: ClassVar[str | None] = None
    packages: ClassVar[list[str]] = []
    alone: ClassVar[list[str]] = []
    ours: ClassVar[bool] = False
    worker: ClassVar[str] = "peers"

    def python(self) -> Path:
        """
        Return the interpreter of the system's environment, which is created first if necessary.

        Raises:
            InstallationFailed: the package index is unreachable or has no package for this machine.
        """
        if self.toolkit is None:
            return Path(sys.executable)
        folder = ENVIRONMENTS / self.toolkit
        if not (folder / ".ready").exists():
            progress(f"Installing {self.toolkit} ...")
            rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            self._install(folder, self.packages)
            self._install(folder, self.alone, "--no-deps")
            (folder / ".ready").touch()
        return folder / "bin" / "python"

    def _install(self, folder: Path, packages: Sequence[str], *options: str) -> None:
        if not packages:
            return
        # the same version of torch for all systems
        wanted = [
            f"torch=={version('torch').split('+')[0]}" if name == "torch" else name
            for name in packages
        ]
        command = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        ended = subprocess.run([*command, *options, *wanted], capture_output=True, text=True)
        if ended.returncode:
            reason = ended.stderr.strip().splitlines()[-1]
            raise InstallationFailed(f"{self.toolkit} cannot be installed: {reason}")

    def reason_to_leave_out(self) -> str | None:
        """Return why the system cannot run on this machine, or None."""
        try:
            self.python()
        except InstallationFailed as error:
            return str(error)
        return None

    def measure_training(
        self, folder: Path, options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> dict[str, Any]:
        """Train in the system's own process and return the measurements of its meter.

        Args:
            folder: Folder with `train.en`, `train.de` and their encoded forms, see
                `bench_training.prepare`.
            options: `seconds`, `warm_up`, `updates`, the sizes of the model, and `output`, the
                folder of the run.
        """
        request = {"peer": self.name, "folder": str(folder), "options": {**options}}
        return run_worker(self.worker, request, self.name, environment, self.python())

    def train(self, folder: Path, options: Mapping[str, Any], meter: "ThroughputMeter") -> None:
        """Train in this process until the meter stops it."""
        raise NotImplementedError(f"{self.name} does not train.")

    def start(self, folder: Path, threads: int) -> "subprocess.Popen[str]":
        """Start the system's own process, which loads the model of a folder and answers requests;
        see [`serve`].
        """
        command = worker_command(
            self.worker, {"peer": self.name, "folder": str(folder)}, self.python()
        )
        return start_worker(command, {"OMP_NUM_THREADS": str(threads)})

    def load(self, folder: Path) -> Translate:
        """Return a function that translates by the model of a folder, in this process."""
        raise NotImplementedError(f"{self.name} does not load models of this package.")


class CTranslate2(Peer):
    """CTranslate2 with the weights of this package, whose environment has it for conversion,
    too.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.name = f"CTranslate2, {kind}"

    def reason_to_leave_out(self) -> str | None:
        missing = "CTranslate2 is not installed: pip install 'vanilla-transformer[ctranslate2]'."
        return missing if find_spec("ctranslate2") is None else None

    def start(self, folder: Path, threads: int) -> "subprocess.Popen[str]":
        """Convert the model to `{folder}.{kind}`, one of transformers by CTranslate2 alone, and
        start a process.
        """
        from ctranslate2.converters import TransformersConverter

        from vanilla_transformer.extensions.conversion import WRITERS

        converted = folder.with_name(f"{folder.name}.{self.kind}")
        if json.loads((folder / "config.json").read_text())["model_type"] == "marian":
            converter = TransformersConverter(str(folder), copy_files=["tokenizer.json"])
            converter.convert(
                str(converted), quantization=None if self.kind == "float32" else self.kind
            )
        else:
            WRITERS["ctranslate2"](folder, converted, ["a"], quantization=self.kind)
        return super().start(converted, threads)

    def load(self, folder: Path) -> Translate:
        import ctranslate2
        from tokenizers import Tokenizer

        translator = ctranslate2.Translator(
            str(folder), intra_threads=int(os.environ["OMP_NUM_THREADS"])
        )
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        vocabulary = tokenizer.get_vocab()

        def translate(texts: Sequence[str], beams: int, most: int) -> list[str]:
            sentences = [encoding.tokens for encoding in tokenizer.encode_batch(list(texts))]
            options = {"beam_size": beams, "max_decoding_length": most, "length_penalty": 1.0}
            options["use_vmap"] = True  # where the folder has a shortlist
            results = translator.translate_batch(
                sentences, max_batch_size=128, disable_unk=True, **options
            )
            ids = [[vocabulary[token] for token in result.hypotheses[0]] for result in results]
            return [text.strip() for text in tokenizer.decode_batch(ids, skip_special_tokens=True)]

        return translate


class Toolkit(Peer):
    """A toolkit that trains by its own command, from a configuration file and text in subwords."""

    def configuration(self, text: Path, output: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of the configuration file of a training run."""
        raise NotImplementedError

    def measure_training(
        self, folder: Path, options: Mapping[str, Any], environment: Mapping[str, str]
    ) -> dict[str, Any]:
        """Write the configuration and the text in subwords, and train."""
        import yaml

        output = Path(options["output"])
        write_subwords(folder, ["train.en", "train.de"])
        content = self.configuration(folder / "subwords", output, options)
        output.with_suffix(".yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        return super().measure_training(folder, options, environment)


class JoeyNMT(Toolkit):
    name = "JoeyNMT, float32"
    toolkit = "joeynmt"
    packages: ClassVar[list[str]] = ["torch", "joeynmt==2.3.0", "importlib-metadata<9", "psutil"]

    def configuration(self, text: Path, output: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        width, seed = options["d_model"], options["seed"]
        special = {
            f"{name}_token": token
            for name, token in zip(("unk", "pad", "bos", "eos"), SPECIAL, strict=True)
        }
        side = {
            "type": "transformer",
            "num_layers": options["layers"],
            "num_heads": options["heads"],
            "dropout": 0.1,
            "embeddings": {"embedding_dim": width, "scale": True, "dropout": 0.1},
            "layer_norm": "post",
            "hidden_size": width,
            "ff_size": options["ffn_dim"],
            "activation": "relu",
        }
        language = {
            "level": "word",
            "voc_file": str(text / "vocabulary"),
            "lowercase": False,
            "max_length": 256,
        }
        return {
            "name": "benchmark",
            "model_dir": str(output),
            "use_cuda": False,
            "random_seed": seed,
            "data": {
                "train": str(text / "train"),
                "dev": str(text / "train"),
                "dataset_type": "plain",
                "src": language | {"lang": "en"},
                "trg": language | {"lang": "de"},
                "sample_dev_subset": 8,
                "special_symbols": special | {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
            },
            "model": {
                "initializer": "xavier_uniform",
                "embed_initializer": "xavier_uniform",
                "tied_embeddings": True,
                "tied_softmax": True,
                "encoder": side,
                "decoder": side,
            },
            "training": {
                "random_seed": seed,
                "optimizer": "adam",
                "adam_betas": [0.9, 0.98],
                "loss": "crossentropy",
                "scheduling": "noam",
                "learning_rate_factor": 1.0,
                "learning_rate_warmup": options["warmup_steps"],
                "learning_rate": 1.0,
                "learning_rate_min": 0.0,
                "label_smoothing": 0.1,
                "normalization": "tokens",
                "batch_size": options["max_tokens"],
                "batch_type": "token",
                "epochs": _FOREVER,
                "updates": _FOREVER,
                "validation_freq": _FOREVER,
                "logging_freq": 100,
                "keep_best_ckpts": 1,
                "shuffle": True,
                "overwrite": True,
                "early_stopping_metric": "loss",
            },
            "testing": {
                "beam_size": 4,
                "beam_alpha": 1.0,
                "max_output_length": 60,
                "batch_size": 64,
                "n_best": 1,
                "batch_type": "sentence",
                "eval_metrics": [],
            },
        }

    def train(self, folder: Path, options: Mapping[str, Any], meter: "ThroughputMeter") -> None:
        import joeynmt.__main__ as command
        from joeynmt.training import TrainManager

        plain_step = TrainManager._train_step

        def counted(manager: Any, batch: Any) -> Any:
            meter.count(manager.model, int(batch.ntokens), batch.trg.numel())
            return plain_step(manager, batch)

        TrainManager._train_step = counted
        sys.argv = [
            "joeynmt",
            "train",
            str(Path(options["output"]).with_suffix(".yaml")),
            "--skip-test",
        ]
        command.main()


class Eole(Toolkit):
    name = "eole, float32"
    toolkit = "eole"
    # Its dependencies include servers, speech and trackers, which training and translation do not
    # need.
    packages: ClassVar[list[str]] = [
        *(
            "torch",
            "psutil",
            "pyonmttok",
            "configargparse",
            "rapidfuzz",
            "pyahocorasick",
            "six",
            "pyyaml",
            "tqdm",
        ),
        *(
            "sacrebleu",
            "pydantic",
            "safetensors",
            "huggingface_hub",
            "requests",
            "sentencepiece",
            "subword-nmt",
        ),
        *("transformers", "aiohttp", "uvicorn", "fastapi", "pillow"),
    ]
    alone: ClassVar[list[str]] = ["eole==0.6.4"]

    def configuration(self, text: Path, output: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "data": {
                "corpus": {
                    "path_src": str(text / "train.en"),
                    "path_tgt": str(text / "train.de"),
                    "transforms": [],
                }
            },
            "src_vocab": str(text / "vocabulary"),
            "tgt_vocab": str(text / "vocabulary"),
            "share_vocab": True,
            "seed": options["seed"],
            "model": {
                "architecture": "transformer",
                "hidden_size": options["d_model"],
                "heads": options["heads"],
                "norm_eps": 1e-5,
                "transformer_ff": options["ffn_dim"],
                "mlp_activation_fn": "relu",
                "add_qkvbias": False,
                "encoder": {"layers": options["layers"]},
                "decoder": {"layers": options["layers"]},
                "embeddings": {
                    "word_vec_size": options["d_model"],
                    "position_encoding_type": "SinusoidalInterleaved",
                },
                "share_embeddings": True,
                "share_decoder_embeddings": True,
            },
            "training": {
                "optim": "adam",
                "adam_beta1": 0.9,
                "adam_beta2": 0.98,
                "learning_rate": 1.0,
                "decay_method": "noam",
                "warmup_steps": options["warmup_steps"],
                "label_smoothing": 0.1,
                "dropout": [0.1],
                "attention_dropout": [0.0],
                "normalization": "tokens",
                "batch_size": options["max_tokens"],
                "batch_type": "tokens",
                "num_workers": 0,
                "train_steps": _FOREVER,
                "valid_steps": _FOREVER,
                "save_checkpoint_steps": _FOREVER,
                "world_size": 0,
                "model_path": str(output),
                "max_grad_norm": 0.0,
                "param_init_method": "xavier_uniform",
                "bucket_size": 32768,
            },
        }

    def train(self, folder: Path, options: Mapping[str, Any], meter: "ThroughputMeter") -> None:
        sys.modules["spacy"] = ModuleType("spacy")  # imported for transforms that are not used here
        from eole.bin.main import main
        from eole.trainer import Trainer

        plain_step = Trainer._train_step

        def counted(trainer: Any, batches: Any, *arguments: Any, **others: Any) -> Any:
            for batch in batches:
                target = batch["tgt"][:, 1:]
                meter.count(
                    trainer.model,
                    int(target.ne(trainer.train_loss.padding_idx).sum()),
                    target.numel(),
                )
            return plain_step(trainer, batches, *arguments, **others)

        Trainer._train_step = counted
        sys.argv = ["eole", "train", "-config", str(Path(options["output"]).with_suffix(".yaml"))]
        main()


PEERS: dict[str, Peer] = {
    peer.name: peer for peer in (CTranslate2("float32"), CTranslate2("int8"), JoeyNMT(), Eole())
}


class ThroughputMeter:
    """
    Measure training by a hook on the steps of torch's optimizers. The caller counts the tokens of
    each batch.

    Args:
        seconds: Minimum length of the measurement, without the `warm_up` updates before it.
        least: Minimum number of measured updates.
    """

    def __init__(self, seconds: float, warm_up: int, least: int):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.seconds, self.warm_up, self.least = seconds, warm_up, least
        self.updates = self.parameters = 0
        self.tokens = self.padded = self.resident_before = 0
        self.model: Any = None
        self.begin: dict[str, float] = {}
        self.result: dict[str, float] = {}
        self.hook = register_optimizer_step_post_hook(lambda *_: self._updated())

    def count(self, model: Any, tokens: int, padded: int) -> None:
        """Count a batch: its target tokens including EOS, without and with padding."""
        import psutil

        if self.model is None:
            self.model = model
            self.resident_before = psutil.Process().memory_info().rss
            self.parameters = sum(each.numel() for each in model.parameters() if each.requires_grad)
        self.tokens += tokens
        self.padded += padded

    def _updated(self) -> None:
        self.updates += 1
        if self.updates == self.warm_up:
            self.begin, self.tokens, self.padded = _clocks(), 0, 0
        elif (
            self.updates >= self.warm_up + self.least
            and time.monotonic() - self.begin["wall"] >= self.seconds
        ):
            self._finish()
            self.hook.remove()
            raise TimeLimitReached

    def _finish(self) -> None:
        seconds, own, all_busy = (value - self.begin[name] for name, value in _clocks().items())
        self.result = {
            "tokens_per_second": self.tokens / seconds,
            "tokens_per_cpu_second": self.tokens / own,
            "updates": self.updates - self.warm_up,
            "target_tokens_an_update": self.tokens / (self.updates - self.warm_up),
            "target_padding": 1.0 - self.tokens / self.padded,
            "peak_mib": peak_bytes() / 2**20,
            "peak_over_resident_mib": (peak_bytes() - self.resident_before) / 2**20,
            "cores_busy_with_others": max(
                0.0, (all_busy - own) / seconds
            ),  # the clocks have different resolutions
            "parameters": self.parameters,
        }


def _clocks() -> dict[str, float]:
    """Return wall-clock seconds, CPU seconds of this process, and busy seconds of all cores."""
    import psutil

    cores = psutil.cpu_times()
    busy = cores.user + cores.system + getattr(cores, "nice", 0.0) + getattr(cores, "steal", 0.0)
    return {"wall": time.monotonic(), "own": time.process_time(), "busy": busy}


def write_subwords(folder: Path, names: Iterable[str]) -> None:
    """Write text files of `folder` as subwords separated by spaces to `folder/subwords`, with the
    vocabulary.
    """
    from transformers import AutoTokenizer

    subwords = folder / "subwords"
    subwords.mkdir(exist_ok=True)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
    own = set(tokenizer.all_special_tokens)
    vocabulary = [
        token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    ]
    (subwords / "vocabulary").write_text(
        "\n".join([*SPECIAL, *(t for t in vocabulary if t not in own)]) + "\n"
    )
    for name in names:
        if (subwords / name).exists():
            continue
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        encoded = tokenizer(lines, add_special_tokens=False)["input_ids"]
        text = "\n".join(" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in encoded)
        (subwords / name).write_text(text + "\n", encoding="utf-8")


def serve(peer: Peer, folder: str) -> None:
    """Answer each line of JSON by the translations of its `texts`, and the seconds of each call
    with `at_once`.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a system prints goes to standard error
    translate = peer.load(Path(folder))
    for line in sys.stdin:
        request = json.loads(line)
        texts, at_once = request["texts"], request["at_once"]
        outputs, seconds = [], []
        # After others' turns, caches are cold.
        translate(texts[: min(at_once, _WARM_UP)], request["beams"], request["most"])
        for start in range(0, len(texts), at_once):
            started = time.perf_counter()
            outputs += translate(texts[start : start + at_once], request["beams"], request["most"])
            seconds.append(time.perf_counter() - started)
        print(json.dumps({"outputs": outputs, "seconds": seconds}), file=answers, flush=True)


def work(peer: Peer, folder: str, options: dict[str, Any]) -> None:
    """Train in the worker process of a peer and print the measurements as JSON."""
    import torch

    torch.manual_seed(0)
    meter = ThroughputMeter(options["seconds"], options["warm_up"], options["updates"])
    output = os.dup(1)  # toolkits log to standard output
    os.dup2(2, 1)
    with suppress(TimeLimitReached):
        peer.train(Path(folder), options, meter)
    os.write(output, json.dumps(meter.result).encode() + b"\n")
    os._exit(0)  # some threads still read batches


def work_as_named(module: str) -> None:
    """Train or translate as a worker process: a peer of a module, imported by its name, so that
    classes are one.
    """
    request = json.loads(sys.argv[2])
    peers: ModuleType = import_module("benchmarks.peers")
    be_worker = peers.work if "options" in request else peers.serve
    be_worker(import_module(module).PEERS[request.pop("peer")], **request)


if __name__ == "__main__":
    if is_worker():
        work_as_named("benchmarks.peers")
    else:
        for peer in PEERS.values():
            if peer.toolkit and (not sys.argv[1:] or peer.toolkit in sys.argv[1:]):
                print(peer.python())
