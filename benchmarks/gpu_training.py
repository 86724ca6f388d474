"""
The part `training` of `bench_gpu`: target tokens a second, MFU, memory and idle time of updates on
synthetic batches.

    python -m benchmarks.gpu_training training ROWS

The package's own `TrainState` and `train_step` train the base and the big model (table 3 of the
paper) in bf16, as a recipe does by default: compiled and captured, with packed batches. Updates
have 25,000 tokens on each side. They also train without captured steps, and with padded batches,
compiled and not. `VanillaSeq2SeqTrainer` trains the base model on packed batches, as it does by
default, and on padded ones. `Seq2SeqTrainer` trains a MarianMTModel of the same size on padded
batches, and each row has the ratio to its rate. The exit status is 1 if the package's own training
failed.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.state import AcceleratorState
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from benchmarks.gpu_report import (
    ON_GPU,
    Rows,
    describe_device,
    describe_utilization,
    first_line,
    judge,
    model_flops_utilization,
    release_memory,
    synchronize,
)
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.batches import (
    IGNORED_LABEL,
    MicroBatch,
    TokenCounts,
    plan_batches,
    round_up,
)
from vanilla_transformer.data.packing import pack_pairs, packed_shape, plan_packed_batches
from vanilla_transformer.machine.cuda_graphs import WARM_UPS
from vanilla_transformer.training.compilation import choose_padding
from vanilla_transformer.training.distributed import create_accelerator
from vanilla_transformer.training.graphed_train_step import capture_steps
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.train_state import TrainState
from vanilla_transformer.training.train_step import compile_train_step, train_step

OURS, PEER = "train_step", "Seq2SeqTrainer with MarianMTModel"
NOT_CAPTURED = "train_step, not captured"
PADDED, EAGER = "train_step, padded", "train_step, padded, not compiled"
TRAINER, PADDED_TRAINER = "VanillaSeq2SeqTrainer", "VanillaSeq2SeqTrainer, padded"
# The recipe keys in which each system differs from the first.
_CHANGES: dict[str, dict[str, str]] = {
    OURS: {},
    NOT_CAPTURED: {},
    PADDED: {"packing": "False"},
    EAGER: {"compile": "False"},
}
# Of updates of 25,000 tokens by the first system.
GOALS = {
    "base": {"tokens_per_second": 700_000, "mfu": 0.27, "ratio": 2.5},
    "big": {"tokens_per_second": 320_000, "mfu": 0.42, "ratio": 2.0},
}
PAD: Any = VanillaTransformerConfig().pad_token_id


def _fields(d_model: int, heads: int, d_ff: int, layers: int, vocab_size: int) -> dict[str, Any]:
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": d_ff}
    sides = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()
    }
    return {"d_model": d_model, "vocab_size": vocab_size} | sides


class Setting(NamedTuple):
    """Models to train, tokens of an update on each side, and how long it is measured.

    Without `variants`, this package trains in one way only.
    """

    models: dict[str, dict[str, Any]]
    tokens: int
    least_updates: int
    seconds: float
    variants: bool = True


GPU_MODELS = {"base": _fields(512, 8, 2048, 6, 37_000), "big": _fields(1024, 16, 4096, 6, 37_000)}
TINY_MODELS = {"tiny": _fields(16, 2, 32, 1, 100)}
TINY_SETTING = Setting(TINY_MODELS, 300, 2, 0.0, variants=False)
SETTING = Setting(GPU_MODELS, 25_000, 8, 2.0) if ON_GPU else TINY_SETTING
_DIFFERENT_BATCHES = 8  # which are repeated, of an epoch of many
_BATCHES_PER_EPOCH = 128
_PROFILED = 4  # updates


def synthetic_batches(
    tokens: int, vocab_size: int, pad_to_multiple_of: int = 1
) -> list[MicroBatch]:
    """Return updates of random tokens with the lengths of sentences, planned as in training, on the
    host.
    """
    lengths = _synthetic_lengths(tokens)
    plan = plan_batches(lengths, lengths, tokens, pad_to_multiple_of=pad_to_multiple_of)
    updates = [lengths[plan[step][0]] for step in range(min(_DIFFERENT_BATCHES, len(plan)))]
    return [
        _fill(each, round_up(int(each.max()), pad_to_multiple_of), vocab_size) for each in updates
    ]


def packed_batches(tokens: int, vocab_size: int) -> list[MicroBatch]:
    """Return packed updates of such sentences, planned as in training, on the host."""
    lengths, random = _synthetic_lengths(tokens), np.random.default_rng(1)
    shape = packed_shape(lengths, lengths, tokens)
    plan = plan_packed_batches(lengths, lengths, shape)
    batches = []
    for step in range(min(_DIFFERENT_BATCHES, len(plan))):
        (pairs,), (rows,) = plan[step], plan.rows_of(step)
        assert rows is not None
        count = int(lengths[pairs].sum())
        source, target = ((random.integers(3, vocab_size, count), lengths[pairs]) for _ in range(2))
        arrays, _, _ = pack_pairs(source, target, rows, shape, PAD)
        padded = shape.rows * (shape.source_length + shape.target_length)
        tensors = _pinned({name: torch.from_numpy(array) for name, array in arrays.items()})
        batches.append(MicroBatch(tensors, pairs, TokenCounts(count, count, padded), count))
    return batches


def _synthetic_lengths(tokens: int) -> np.ndarray:
    """Return the lengths of the sentences of an epoch."""
    longest, sentences = min(150, tokens), _BATCHES_PER_EPOCH * tokens // 25
    return np.random.default_rng(0).lognormal(3.1, 0.6, size=sentences).astype(int).clip(4, longest)


def _pinned(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.pin_memory() for name, tensor in tensors.items()} if ON_GPU else tensors


def _fill(lengths: np.ndarray, longest: int, vocab_size: int) -> MicroBatch:
    columns = torch.arange(longest)
    seen = columns < torch.as_tensor(lengths)[:, None]  # (B, L)
    source, target = (torch.randint(3, vocab_size, seen.shape) for _ in range(2))
    tensors = {"input_ids": source.where(seen, torch.tensor(PAD)), "attention_mask": seen.long()}
    tensors["labels"] = target.where(seen, torch.tensor(IGNORED_LABEL))
    tokens = int(lengths.sum())
    return MicroBatch(
        _pinned(tensors),
        np.arange(len(lengths)),
        TokenCounts(tokens, tokens, 2 * seen.numel()),
        tokens,
    )


def create_state(fields: dict[str, Any], **changes: str) -> TrainState:
    """Return a new run of the package's training, as a recipe with `changes` would create it."""
    # Accelerate keeps the options of the first run otherwise.
    AcceleratorState._reset_state(reset_partial_state=True)
    flags = {"train_source": "a", "train_target": "b", "output_dir": "c"}  # which nothing reads
    flags |= {"mixed_precision": "bf16"} | changes
    recipe = parse_recipe([word for name, value in flags.items() for word in (f"--{name}", value)])
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**fields))
    if recipe.optimization.attn_implementation is not None:
        model.set_attn_implementation(recipe.optimization.attn_implementation)
    tokenizer: Any = SimpleNamespace(pad_token_id=PAD, eos_token_id=model.config.eos_token_id)
    state = TrainState(recipe, model, tokenizer, create_accelerator(recipe), {})
    state.wrapped_model.train()
    return state


def measure_updates(
    state: TrainState, batches: Sequence[MicroBatch], setting: Setting
) -> dict[str, Any]:
    """Return the speed of updates after a warm-up, the seconds to compile them, their memory, and
    the idle time.
    """
    updates, compiling = cycle(batches), time.perf_counter()
    if state.compiled:
        compile_train_step(state, [[batch] for batch in batches])
    synchronize()
    compiled = round(time.perf_counter() - compiling, 1) if state.compiled else None
    for _ in [*batches, *range(WARM_UPS)]:  # so that each shape has been compiled, and captured
        train_step(state, [next(updates)])
    synchronize()
    started, tokens, count = time.perf_counter(), 0, 0
    while count < setting.least_updates or time.perf_counter() - started < setting.seconds:
        batch = next(updates)
        train_step(state, [batch])
        tokens, count = tokens + batch.counts.target_tokens, count + 1
    synchronize()
    seconds = time.perf_counter() - started
    busy = busy_seconds(lambda: train_step(state, [next(updates)]))
    idle = None if busy is None else round(max(0.0, 1 - busy * count / seconds), 3)
    row = figures(tokens / seconds, state.unwrapped_model)
    return row | {"idle": idle, "update_tokens": tokens // count, "compile_seconds": compiled}


def figures(rate: float, model: torch.nn.Module) -> dict[str, Any]:
    """Return the cells that every system has: speed, MFU and peak memory since the last release."""
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    memory = round(torch.cuda.max_memory_allocated() / 2**30, 1) if ON_GPU else None
    return {"tokens_per_second": round(rate), **mfu_cells(parameters, rate), "peak_gib": memory}


def mfu_cells(parameters: int, rate: float) -> dict[str, Any]:
    """Return the cells of the MFU at a rate of target tokens a second, and of its formula."""
    device = describe_device()["device"]
    utilization = model_flops_utilization(parameters, rate, device)
    formula = describe_utilization(parameters, rate, device)
    return {
        "mfu": None if utilization is None else round(utilization, 3),
        "mfu_formula": formula,
    } | {"parameters": parameters}


def busy_seconds(update: Callable[[], Any]) -> float | None:
    """Return the seconds of an update in which the GPU computes or copies.

    The profiler slows the host. Compare with the time of updates without it.
    """
    if not ON_GPU:
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(_PROFILED):
            update()
        synchronize()
    kernels = [event for event in recorded.events() if event.device_type == DeviceType.CUDA]
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in kernels
        if not event.is_user_annotation
    ]
    return covered_time(spans) / 1e6 / _PROFILED if spans else None


def covered_time(spans: Sequence[tuple[float, float]]) -> float:
    """Return the time that at least one span covers."""
    ordered = sorted(spans)
    busy, covered = 0.0, ordered[0][0]
    for start, end in ordered:
        busy += max(0.0, end - max(start, covered))
        covered = max(covered, end)
    return busy


def measure_ours(
    fields: dict[str, Any], tokens: int, system: str, setting: Setting
) -> dict[str, Any]:
    state = create_state(fields, **_CHANGES[system])
    vocabulary, unit = fields["vocab_size"], choose_padding({}, state.compiled)
    batches = (
        packed_batches(tokens, vocabulary)
        if state.packing
        else synthetic_batches(tokens, vocabulary, unit)
    )
    if system != NOT_CAPTURED:
        capture_steps(state)
    return measure_updates(state, batches, setting)


class _Clock(TrainerCallback):
    """Measure the updates of a `Trainer` after the warm-up."""

    def __init__(self, warm_up: int):
        self._warm_up, self.seconds, self._started = warm_up, 0.0, 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._warm_up:
            synchronize()
            self._started = time.perf_counter()
        elif state.global_step == state.max_steps:
            synchronize()
            self.seconds = time.perf_counter() - self._started


def measure_peer(fields: dict[str, Any], tokens: int, setting: Setting) -> dict[str, Any]:
    """Return the figures of `Seq2SeqTrainer`, which gets the same batches, already padded."""
    batches = synthetic_batches(tokens, fields["vocab_size"])
    shared = {
        "dropout": 0.1,
        "activation_function": "relu",
        "scale_embedding": True,
        "decoder_start_token_id": 1,
    }
    shared |= {"pad_token_id": PAD, "eos_token_id": 2, "forced_eos_token_id": None}
    model = MarianMTModel(MarianConfig(**fields, **shared))
    dataset = [
        batch.tensors
        | {
            "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(
                batch.tensors["labels"]
            )
        }
        for batch in batches
    ]
    mean = sum(batch.counts.target_tokens for batch in batches) / len(batches)
    options = {
        "per_device_train_batch_size": 1,
        "label_smoothing_factor": 0.1,
        "max_grad_norm": 0.0,
    }
    return _time_trainer(
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        model,
        dataset,
        lambda rows: rows[0],
        options,
        mean,
        setting,
    )


def measure_own_trainer(
    fields: dict[str, Any], tokens: int, packing: bool | None, setting: Setting
) -> dict[str, Any]:
    """Return the figures of `VanillaSeq2SeqTrainer`, which plans and pads or packs its batches
    itself.

    Raises:
        ImportError: `datasets` is not installed.
    """
    from vanilla_transformer.training.seq2seq_trainer import (
        TokenBudgetTrainingArguments,
        VanillaSeq2SeqTrainer,
    )

    random, lengths = np.random.default_rng(1), _synthetic_lengths(tokens)
    bounds = np.cumsum(lengths)[:-1]
    sides = (
        np.split(random.integers(3, fields["vocab_size"], lengths.sum()), bounds) for _ in range(2)
    )
    dataset = [
        {"input_ids": source, "labels": target} for source, target in zip(*sides, strict=True)
    ]
    model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**fields))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<pad>": PAD}, "<pad>")), pad_token="<pad>"
    )
    options: dict[str, Any] = {"max_tokens": tokens, "packing": packing}
    if packing is not False and ON_GPU:
        plan = plan_packed_batches(lengths, lengths, packed_shape(lengths, lengths, tokens))
    else:
        plan = plan_batches(lengths, lengths, tokens)
    return _time_trainer(
        VanillaSeq2SeqTrainer,
        TokenBudgetTrainingArguments,
        model,
        dataset,
        DataCollatorForSeq2Seq(tokenizer, model=model),
        options,
        lengths.sum() / len(plan),
        setting,
    )


def _time_trainer(
    trainer_class: Any,
    arguments_class: Any,
    model: Any,
    dataset: Any,
    collate: Callable[[Any], Any],
    options: dict[str, Any],
    tokens: float,
    setting: Setting,
) -> dict[str, Any]:
    """Return the figures of a `Trainer` after as many updates as there are different batches.

    Args:
        tokens: Target tokens of an update, in the mean.
    """
    AcceleratorState._reset_state(reset_partial_state=True)
    clock, measured = _Clock(_DIFFERENT_BATCHES), max(_DIFFERENT_BATCHES, setting.least_updates)
    with tempfile.TemporaryDirectory() as folder:  # which it creates even if it saves nothing
        arguments = arguments_class(
            output_dir=folder,
            max_steps=_DIFFERENT_BATCHES + measured,
            bf16=True,
            optim="adamw_torch_fused",
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not ON_GPU,
            **options,
        )
        trainer_class(
            model, arguments, train_dataset=dataset, data_collator=collate, callbacks=[clock]
        ).train()
    return figures(tokens * measured / clock.seconds, model) | {
        "idle": None,
        "update_tokens": round(tokens),
    }


class Cells:
    """Measure the cells of the table, one after the other, and count the failures of this
    package.
    """

    def __init__(self, rows: Rows, setting: Setting):
        self._rows, self._setting, self.failed = rows, setting, 0
        self._peer_rates: dict[tuple[str, int], int] = {}  # by size and tokens

    def run(self) -> None:
        models, tokens = self._setting.models, self._setting.tokens
        for size in models:
            self._add(PEER, size, tokens)  # first, so that the other rows have their ratios
            self._add(OURS, size, tokens)
        for size in models if self._setting.variants else ():
            for system in (NOT_CAPTURED, PADDED, EAGER):
                self._add(system, size, tokens)
        for system in (TRAINER, PADDED_TRAINER) if self._setting.variants else ():
            self._add(system, next(iter(models)), tokens)

    def _add(self, system: str, size: str, tokens: int) -> None:
        release_memory()
        fields = self._setting.models[size]
        row: dict[str, Any] = {"system": system, "size": size, "max_tokens": tokens}
        try:
            if system == PEER:
                row |= measure_peer(fields, tokens, self._setting)
                self._peer_rates[size, tokens] = row["tokens_per_second"]
            else:
                if system in (TRAINER, PADDED_TRAINER):
                    packing = None if system == TRAINER else False
                    row |= measure_own_trainer(fields, tokens, packing, self._setting)
                else:
                    row |= measure_ours(fields, tokens, system, self._setting)
                peer = self._peer_rates.get((size, tokens))
                row["ratio"] = None if peer is None else round(row["tokens_per_second"] / peer, 2)
        except (
            Exception
        ) as error:  # of a library, the driver or the allocator: the other cells are measured
            row["error"] = first_line(error)
            self.failed += system == OURS
        goals = GOALS.get(size) if system == OURS and tokens == self._setting.tokens else None
        self._rows.add(**judge(row, at_least=goals))


def main(rows_file: str) -> int:
    cells = Cells(Rows(rows_file, "training"), SETTING)
    cells.run()
    return int(cells.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2]))
