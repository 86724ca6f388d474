"""
Compare training speed and peak memory of this package, `Seq2SeqTrainer`, JoeyNMT and eole on the
same text.

    python -m benchmarks.bench_training
    python -m benchmarks.bench_training train.en train.de --seconds 20 --repeats 3 --note "nothing
    else ran" python -m benchmarks.bench_training --vocab_size 32000 --fill_vocabulary --seconds 10
    --updates 10 --repeats 1

`Seq2SeqTrainer` trains `MarianMTModel`; JoeyNMT and eole train by their own commands in their own
environments (`peers`). All have the same model size, vocabulary, optimizer and label smoothing.
Each measurement is a separate process, and the systems take turns (A B A B …), so that other work
on the machine affects all of them. No GPU is used. The last command compares memory, which is
largest with a large vocabulary.
"""

import functools
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from benchmarks import peers
from benchmarks.harness import BenchmarkArguments, is_worker, progress, read_arguments, write_report
from benchmarks.peers import Peer, ThroughputMeter, work_as_named
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.cli import run
from vanilla_transformer.data.tokenizer_training import tokenizer_from_state, train_tokenizer

_ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9}


class OurLoop(Peer):
    """The training command of this package."""

    ours = True
    worker = "bench_training"

    def __init__(self, bf16: bool):
        self.name, self.bf16 = f"ours, {'bf16' if bf16 else 'float32'}", bf16

    def train(self, folder: Path, options: Mapping[str, Any], meter: ThroughputMeter) -> None:
        from vanilla_transformer.training.recipe import parse_recipe
        from vanilla_transformer.training.trainer import train

        watch(meter, VanillaTransformerModel)
        flags = sizes_of(options) | {"label_smoothing": 0.1}
        flags |= {
            name: options[name] for name in ("warmup_steps", "max_tokens", "attn_implementation")
        }
        flags |= {
            f"train_{side}": folder / f"train.{end}"
            for side, end in (("source", "en"), ("target", "de"))
        }
        flags |= {
            "tokenizer": folder / "tokenizer",
            "cache_dir": folder / "cache",
            "output_dir": folder / "out",
        }
        flags |= {"mixed_precision": "bf16" if self.bf16 else "no", "overwrite_output_dir": True}
        flags |= {"max_steps": 10**6, "save_steps": 10**6}
        recipe = parse_recipe(
            [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        )
        train(recipe, evaluate=lambda *_, **__: {})


class StockTrainer(Peer):
    """`Seq2SeqTrainer` of transformers, which trains `MarianMTModel` in batches of so many
    sentences.
    """

    worker = "bench_training"
    trainer = "Seq2SeqTrainer"

    def __init__(self, bf16: bool, sampling: str = "group_by_length", marian: bool = True):
        words = [self.trainer + (" + Marian" if marian else "")]
        words += ["group_by_length"] * (sampling == "group_by_length") + [
            "bf16" if bf16 else "float32"
        ]
        self.name, self.bf16, self.sampling, self.marian = ", ".join(words), bf16, sampling, marian

    def train(self, folder: Path, options: Mapping[str, Any], meter: ThroughputMeter) -> None:
        from datasets import load_from_disk

        watch(meter, MarianMTModel if self.marian else VanillaTransformerModel)
        tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
        model = build_model(self.marian, tokenizer, options)
        shared: dict[str, Any] = _ADAM | {
            "output_dir": str(folder / "out"),
            "bf16": self.bf16,
            "use_cpu": True,
        }
        shared |= {
            "max_steps": 10**6,
            "warmup_steps": options["warmup_steps"],
            "max_grad_norm": 0.0,
        }
        shared |= {
            "label_smoothing_factor": 0.1,
            "optim": "adamw_torch_fused",
            "save_strategy": "no",
        }
        shared |= {"logging_steps": 50, "report_to": "none", "disable_tqdm": True}
        trainer_class, arguments = self.trainer_and_arguments(shared, options)
        trainer = trainer_class(
            model,
            arguments,
            train_dataset=load_from_disk(folder / "dataset"),
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
        )
        trainer.train()

    def trainer_and_arguments(
        self, shared: dict[str, Any], options: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """Return the class of the trainer and its arguments."""
        shared |= {
            "per_device_train_batch_size": options["sentences"],
            "train_sampling_strategy": self.sampling,
        }
        peak = (options["d_model"] * options["warmup_steps"]) ** -0.5  # the peak of equation 3
        return Seq2SeqTrainer, Seq2SeqTrainingArguments(
            lr_scheduler_type="inverse_sqrt", learning_rate=peak, **shared
        )


class OurTrainer(StockTrainer):
    """`VanillaSeq2SeqTrainer`, whose batches have so many tokens."""

    ours = True
    trainer = "VanillaSeq2SeqTrainer"

    def __init__(self, bf16: bool, marian: bool = False):
        super().__init__(bf16, "budget", marian)

    def trainer_and_arguments(
        self, shared: dict[str, Any], options: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        from vanilla_transformer.training.seq2seq_trainer import (
            TokenBudgetTrainingArguments,
            VanillaSeq2SeqTrainer,
        )

        return VanillaSeq2SeqTrainer, TokenBudgetTrainingArguments(
            max_tokens=options["max_tokens"], **shared
        )


_PRECISIONS = (False, True)  # in bfloat16
_SYSTEMS: list[Peer] = [
    *map(OurLoop, _PRECISIONS),
    *map(OurTrainer, _PRECISIONS),
    *(StockTrainer(bf16, "random") for bf16 in _PRECISIONS),
    *map(StockTrainer, _PRECISIONS),
    *(peer for peer in peers.PEERS.values() if isinstance(peer, peers.Toolkit)),
    *(OurTrainer(bf16, marian=True) for bf16 in _PRECISIONS),
]
PEERS: dict[str, Peer] = {system.name: system for system in _SYSTEMS}


@dataclass
class ModelSizes:
    """Model and vocabulary of all systems."""

    d_model: int = field(default=256, metadata={"help": "Width of the model."})
    heads: int = field(default=4, metadata={"help": "Attention heads per layer."})
    layers: int = field(
        default=3, metadata={"help": "Layers of the encoder and of the decoder each."}
    )
    ffn_dim: int = field(default=1024, metadata={"help": "Width of the feed-forward layers."})
    vocab_size: int = field(
        default=8000, metadata={"help": "Maximum size of the joint vocabulary."}
    )


@dataclass
class TrainingArguments(BenchmarkArguments, ModelSizes):
    """Model, batches, and length of the measurements."""

    SHORT: ClassVar[dict[str, Any]] = {
        "seconds": 5.0,
        "updates": 5,
        "repeats": 1,
        "sides": [0, 1, 6, 7],
    }

    fill_vocabulary: bool = field(
        default=False,
        metadata={"help": "Fill the vocabulary up to `vocab_size` with unused entries."},
    )
    max_tokens: int = field(
        default=2048,
        metadata={"help": "Maximum tokens per batch, for this package and the toolkits."},
    )
    seed: int = field(default=1, metadata={"help": "Random seed of the toolkits."})
    warmup_steps: int = field(
        default=4000, metadata={"help": "Warm-up updates of the learning rate, for all systems."}
    )
    sentences: int = field(
        default=128, metadata={"help": "Sentences per batch of `Seq2SeqTrainer`."}
    )
    attn_implementation: str = field(
        default="sdpa", metadata={"help": "Attention of all systems: sdpa or eager."}
    )
    sides: list[int] | None = field(
        default=None,
        metadata={
            "help": "Numbers of the systems to measure, by default all: "
            + "; ".join(f"{i} {n}" for i, n in enumerate(PEERS))
        },
    )
    seconds: float = field(
        default=12.0, metadata={"help": "Seconds per measurement, without warm-up."}
    )
    warm_up: int = field(default=5, metadata={"help": "Warm-up updates before each measurement."})
    updates: int = field(
        default=50,
        metadata={
            "help": "Minimum number of updates per measurement: `group_by_length` sorts so many "
            "batches at a time, the longest first."
        },
    )
    repeats: int = field(default=2, metadata={"help": "Measurements per system."})
    passive_wait: bool = field(
        default=False,
        metadata={
            "help": "Let waiting threads sleep (OMP_WAIT_POLICY=passive), so that CPU seconds "
            "count work only. By default they spin for a while, as in training outside of "
            "benchmarks, which is faster."
        },
    )


def main(arguments: Sequence[str]) -> None:
    files, options = read_arguments(
        TrainingArguments, arguments, "bench_training SOURCE TARGET", (0, 2)
    )
    if options.updates < 1 or options.warm_up < 1:
        raise ValueError(
            f"`updates` and `warm_up` must be at least 1, got {options.updates} and "
            f"{options.warm_up}."
        )
    sides = options.sides or range(len(PEERS))
    if not set(sides) <= set(range(len(PEERS))):
        raise ValueError(f"`sides` must be from 0 to {len(PEERS) - 1}, got {sides}.")
    systems = [list(PEERS.values())[number] for number in sides]
    reasons = [reason for system in systems if (reason := system.reason_to_leave_out())]
    systems = [system for system in systems if system.reason_to_leave_out() is None]
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        prepare(Path(folder), files, options.vocab_size, options.fill_vocabulary)
        results = measure_in_turns(Path(folder), systems, options)
    text = " and ".join(Path(name).name for name in files) or "the demo corpus"
    write_report(
        "training",
        options,
        rows(results, options),
        [*reasons, f"Training on {text}.", *about(results)],
    )


def measure_in_turns(
    folder: Path, systems: Sequence[Peer], options: TrainingArguments
) -> dict[str, list[dict[str, Any]]]:
    """Return the measurements of each system."""
    results: dict[str, list[dict[str, Any]]] = {system.name: [] for system in systems}
    for turn in range(-1, options.repeats):
        # Turn -1 fills the caches of tokens and bytecode and is not counted.
        for system in systems if turn >= 0 else (systems[0], systems[-1]):
            shortened = {} if turn >= 0 else {"seconds": 0.0, "warm_up": 1, "updates": 1}
            request = (
                asdict(options) | {"output": str(folder / f"model-{system.toolkit}")} | shortened
            )
            found = system.measure_training(folder, request, _environment(folder, options))
            if turn >= 0:
                results[system.name].append(found)
                progress(
                    f"{turn + 1}/{options.repeats} {system.name}: {found['tokens_per_second']:.0f}"
                )
    sizes = [each["parameters"] for found in results.values() for each in found]
    if max(sizes) > 1.005 * min(sizes):  # some have biases or a normalization that others lack
        raise RuntimeError(f"The models differ in size: {results}")
    return results


def _environment(folder: Path, options: TrainingArguments) -> dict[str, str]:
    environment = {"OMP_WAIT_POLICY": "passive"} if options.passive_wait else {}
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):  # share compiled bytecode between the processes
        environment |= {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        }
    return environment


def about(results: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the sizes of the models, and how many cores other work kept busy."""
    every = [each for found in results.values() for each in found]
    sizes = [each["parameters"] for each in every]
    busy = max(each["cores_busy_with_others"] for each in every)
    yield (
        f"Models of {min(sizes):,} to {max(sizes):,} parameters. Other work kept at most "
        f"{busy:.1f} cores busy."
    )


def rows(
    results: Mapping[str, list[dict[str, Any]]], options: TrainingArguments
) -> list[dict[str, Any]]:
    """Return a row of the table for each system, with ratios to the best system that is not
    ours.
    """

    def of(found: Sequence[Mapping[str, Any]], name: str) -> list[float]:
        return [each[name] for each in found]

    others = [found for name, found in results.items() if not PEERS[name].ours]
    speeds = {"tokens_per_second": ("target tokens/s", "ratio to the best other")}
    if options.passive_wait:
        speeds["tokens_per_cpu_second"] = (
            "target tokens per CPU second",
            "CPU ratio to the best other",
        )
    lines = []
    for name, found in results.items():
        row: dict[str, Any] = {"system": name}
        for speed, (column, ratio) in speeds.items():
            best = max((median(of(other, speed)) for other in others), default=None)
            row[column] = of(found, speed)
            row[ratio] = None if best is None else median(of(found, speed)) / best
        row["peak memory, MiB"] = of(found, "peak_mib")
        leanest = min((median(of(other, "peak_mib")) for other in others), default=None)
        row["ratio to the leanest other"] = (
            None if leanest is None else median(of(found, "peak_mib")) / leanest
        )
        row["added by training, MiB"] = of(found, "peak_over_resident_mib")
        row["padding, %"] = 100 * median(of(found, "target_padding"))
        row["target tokens per update"] = round(median(of(found, "target_tokens_an_update")))
        row["updates"] = round(median(of(found, "updates")))
        lines.append(row)
    return lines


def prepare(folder: Path, files: Sequence[str], vocab_size: int, fill: bool = False) -> None:
    """Write the shared vocabulary and text, as text files and as a dataset."""
    from vanilla_transformer.data.demo_corpus import write_demo_corpus
    from vanilla_transformer.training.seq2seq_trainer import encoded_dataset

    if not files:
        write_demo_corpus(folder, train=25_000, validation=1, test=1)
    for end, name in zip(("en", "de"), files, strict=False):
        (folder / f"train.{end}").write_text(
            Path(name).read_text(encoding="utf-8"), encoding="utf-8"
        )
    sides = [folder / "train.en", folder / "train.de"]
    texts = chain.from_iterable(side.read_text(encoding="utf-8").splitlines() for side in sides)
    tokenizer = train_tokenizer(texts, vocab_size=vocab_size)
    if fill:
        tokenizer = fill_vocabulary(tokenizer, vocab_size)
    tokenizer.save_pretrained(folder / "tokenizer")
    encoded_dataset(tokenizer, *sides).save_to_disk(folder / "dataset")


def fill_vocabulary(
    tokenizer: VanillaTransformerTokenizer, vocab_size: int
) -> VanillaTransformerTokenizer:
    """Return a tokenizer with further entries that no merge makes, so that no text has them.

    Added tokens would do the same, but each text is searched for them, which takes minutes.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["vocab"] |= {
        f"filler{number}": number for number in range(len(tokenizer), vocab_size)
    }
    return tokenizer_from_state(state, tokenizer)


def sizes_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the configurations of both packages share."""
    fields: dict[str, Any] = {
        "d_model": options["d_model"],
        "dropout": 0.1,
        "activation_function": "relu",
    }
    for part in ("encoder", "decoder"):
        fields |= {f"{part}_layers": options["layers"], f"{part}_ffn_dim": options["ffn_dim"]}
        fields |= {f"{part}_attention_heads": options["heads"]}
    return fields


def build_model(marian: bool, tokenizer: Any, options: Mapping[str, Any]) -> Any:
    """Build a model of transformers or of this package with random weights."""
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.bos_token_id, "vocab_size": len(tokenizer)}
    fields = sizes_of(options) | special
    if marian:
        model: Any = MarianMTModel(
            MarianConfig(**fields, scale_embedding=True, forced_eos_token_id=None)
        )
    else:
        model = VanillaTransformerForConditionalGeneration(
            VanillaTransformerConfig(**fields, attention_bias=True)
        )
    model.set_attn_implementation(options["attn_implementation"])
    return model


def watch(meter: ThroughputMeter, model_class: Any) -> None:
    """Count the target tokens that pass the model's `forward`, in any training loop."""
    forward = model_class.forward
    signature = inspect.signature(forward)  # tensors come by position or by name

    @functools.wraps(forward)
    def counted(model: Any, *arguments: Any, **tensors: Any) -> Any:
        if model.training:
            decoder_input_ids = signature.bind(model, *arguments, **tensors).arguments[
                "decoder_input_ids"
            ]
            meter.count(model, *target_tokens(decoder_input_ids, model.config.eos_token_id))
        return forward(model, *arguments, **tensors)

    model_class.forward = counted


def target_tokens(decoder_input_ids: torch.Tensor, eos_token_id: int) -> tuple[int, int]:
    """
    Return the number of labels of a batch, without and with padding.

    The decoder reads the start symbol and then all labels but the last. A row shorter than the
    longest one contains its EOS, the last label, after as many tokens as it has labels.
    """
    ends = decoder_input_ids == eos_token_id
    lengths = (
        ends.int().argmax(dim=1).where(ends.any(dim=1), decoder_input_ids.new_tensor(ends.shape[1]))
    )
    return int(lengths.sum()), ends.numel()


if __name__ == "__main__":
    if is_worker():
        work_as_named("benchmarks.bench_training")
    else:
        sys.exit(run(main))
