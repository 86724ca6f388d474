"""
The Transformer beside an LSTM with attention: equal steps, then equal minutes; and gradients over
the length.

The LSTM has as many parameters as the base row of table 3, and its tokenizer, batches, loss and
search.

    python examples/reproduction/recurrent_baseline.py
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from experiment import ROWS, TEXT, Experiment
from recurrent_model import RecurrentForConditionalGeneration
from table1 import growth_exponent
from table3 import hash_text, read_rows, recipe_of, spread, text_files
from torch import nn

from vanilla_transformer.data.readers import read_text_files
from vanilla_transformer.decoding.pretrained import load_pretrained, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.evaluation.scores import validation_scores
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.metrics import read_entries
from vanilla_transformer.training.run_arguments import ArchitectureArguments, Recipe
from vanilla_transformer.training.run_folder import RunFolder
from vanilla_transformer.training.train_step import train_step
from vanilla_transformer.training.trainer import prepare_run, train

TRANSFORMER, EQUAL_STEPS, EQUAL_MINUTES = "Transformer", "LSTM, equal steps", "LSTM, equal minutes"
_CLASSES = {
    TRANSFORMER: VanillaTransformerForConditionalGeneration,
    EQUAL_STEPS: RecurrentForConditionalGeneration,
    EQUAL_MINUTES: RecurrentForConditionalGeneration,
}
_WIDER = 5 / 4  # an LSTM of this width has as many parameters as the base row
_MAX_GRAD_NORM = 5.0  # of the LSTM, as Wu et al. (2016) clip
_JOINED = (1, 2, 4, 8)  # captions that are one source, one after another
_TEXTS = 16  # of each length
_NEVER = 10**9
_CHECKPOINTS, _PLANNED_STEPS = 20, 2
_UNTIMED_STEPS, _TIMED_STEPS = 3, 15  # the first ones allocate memory


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return the measurement of speed and the runs of each seed, whose last one is as long as the
    first one was.
    """
    return {"speed": partial(_measure_speeds, options)} | {
        f"{name.lower().replace(',', '').replace(' ', '-')}-seed-{seed}": partial(
            _train, name, seed, options
        )
        for seed in range(options.seeds)
        for name in (TRANSFORMER, EQUAL_STEPS, EQUAL_MINUTES)
    }


def settings(options: Any) -> dict[str, dict[str, Any]]:
    """Return the settings of both models: the first row of table 3, and what differs for the
    LSTM.
    """
    base = next(iter(read_rows(options.rows).values()))
    width = base.get("d_model", ArchitectureArguments().d_model)
    lstm = base | {
        "d_model": int(_WIDER * width),
        "max_grad_norm": _MAX_GRAD_NORM,
        "compile": False,
    }
    return {TRANSFORMER: base, EQUAL_STEPS: lstm, EQUAL_MINUTES: lstm}


def identity(options: Any) -> dict[str, Any]:
    """Return the settings and the hashes of the text, which all runs of a folder share."""
    return {"rows": settings(options), "text": hash_text(options.data)}


def plan(options: Any) -> str:
    """Return the steps, and the hours and the memory on this machine."""
    transformer, lstm = (
        plan_run(
            _recipe(name, 0, options, options.output / "planned"),
            _PLANNED_STEPS,
            model_class=_CLASSES[name],
        )
        for name in (TRANSFORMER, EQUAL_STEPS)
    )
    # The third run is as long as the first one.
    hours = options.seeds * (
        2 * transformer["hours_without_validation"] + lstm["hours_without_validation"]
    )
    peak = max(transformer["peak_memory_gib"], lstm["peak_memory_gib"])
    return (
        f"{2 * options.seeds * options.budget:,} steps, then an LSTM for the minutes of the "
        f"Transformer: about {hours:.1f} hours here without validation, at most {peak:.1f} GiB of "
        "memory."
    )


def _recipe(
    name: str, seed: int, options: Any, folder: Path, minutes: float | None = None
) -> Recipe:
    """Return the recipe of a run, of `steps` or of `minutes`, which validates after its end
    alone.
    """
    limits: dict[str, Any] = {"eval_steps": _NEVER}
    if minutes is not None:
        limits |= {"max_steps": None, "max_minutes": minutes}
        limits |= {"save_steps": None, "save_minutes": minutes / _CHECKPOINTS}
    return recipe_of(settings(options)[name], seed, options.budget, options.data, folder, **limits)


def _measure_speeds(options: Any, folder: Path) -> dict[str, Any]:
    """
    Return the target tokens per second of both models, in training steps that they make in turn.

    On a CPU the seconds are of the processor, which other programs affect less.
    """
    with ExitStack() as stack:
        started: dict[str, tuple[Any, Any, list[float]]] = {}
        for name in (TRANSFORMER, EQUAL_STEPS):
            recipe = _recipe(name, 0, options, folder / name)
            run = prepare_run(recipe, RunFolder(recipe), model_class=_CLASSES[name])
            started[name] = run.state, stack.enter_context(closing(iter(run.batches))), []
        for _ in range(_UNTIMED_STEPS + _TIMED_STEPS):
            for state, batches, speeds in started.values():
                step = next(batches)
                clock = (
                    time.process_time
                    if state.accelerator.device.type == "cpu"
                    else time.perf_counter
                )
                begun = clock()
                train_step(state, step)
                state.read_steps()  # waits for the device
                speeds.append(sum(batch.counts[1] for batch in step) / (clock() - begun))
    return {
        "speeds": {
            name: statistics.median(run[2][_UNTIMED_STEPS:]) for name, run in started.items()
        }
    }


def _train(name: str, seed: int, options: Any, folder: Path) -> dict[str, Any]:
    """Train a model, and return its scores and its gradients.

    A run that was interrupted resumes.
    """
    minutes = None
    if name == EQUAL_MINUTES:
        first = folder.with_name(f"{TRANSFORMER.lower()}-seed-{seed}")
        if not (entries := read_entries(first)):
            raise UserError(f"There is no run {first}, whose minutes count. Give another --output.")
        minutes = entries[-1]["minutes"]
    recipe, model_class = _recipe(name, seed, options, folder, minutes), _CLASSES[name]
    train(recipe, evaluate=validation_scores, model_class=model_class)
    final = read_entries(folder)[-1]
    model, tokenizer = load_pretrained(model_class, folder), load_tokenizer(folder)
    torch.manual_seed(seed)
    untrained = model_class(model.config).eval()
    files = text_files(options.data)
    pairs = read_text_files(files["validation_source"], files["validation_target"])
    return {
        "row": name,
        "seed": seed,
        "parameters": model.num_parameters(),
        **{key: final[key] for key in ("validation_loss", "bleu", "chrf", "minutes", "step")},
        "gradients": gradient_norms(model, tokenizer, pairs),
        "untrained_gradients": gradient_norms(untrained, tokenizer, pairs),
    }


def gradient_norms(
    model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]]
) -> list[dict[str, float]]:
    """
    Return for each number of joined captions the mean tokens of a source, and the mean norms of two
    gradients.

    A gradient is that of a loss, in nats, with respect to the embedding of the first source token:
    `first` of the loss of all target tokens, and `end` of the loss of the last quarter of the
    target tokens.
    """
    norms = []
    for joined in _JOINED:
        measured = [
            (len(text[0]), *_first_token_gradients(model, *text))
            for text in _join(tokenizer, pairs, joined)
        ]
        if measured:
            means = map(statistics.fmean, zip(*measured, strict=True))
            norms.append(dict(zip(("tokens", "first", "end"), means, strict=True)))
    return norms


def _join(
    tokenizer: Any, pairs: Sequence[tuple[str, str]], count: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the source and target ids of `count` pairs in a row as one text, with one EOS."""
    for first in range(0, min(len(pairs) - count + 1, _TEXTS * count), count):
        sources, targets = (list(side) for side in zip(*pairs[first : first + count], strict=True))
        yield (
            _concatenate(encode_sentences(tokenizer, sources)),
            _concatenate(encode_sentences(tokenizer, targets, as_target=True)),
        )


def _concatenate(sentences: Sequence[list[int]]) -> list[int]:
    return [*chain.from_iterable(sentence[:-1] for sentence in sentences), sentences[-1][-1]]


def _first_token_gradients(model: Any, source: list[int], target: list[int]) -> tuple[float, float]:
    """Return the norms for the first source token, of the loss of all target tokens and of their
    last quarter.
    """
    embeds = model.get_encoder().embed_tokens(torch.tensor([source])).detach().requires_grad_()
    logits = model(inputs_embeds=embeds, labels=torch.tensor([target])).logits
    losses = nn.functional.cross_entropy(logits[0], torch.tensor(target), reduction="none")  # (T,)
    ends = losses[-max(1, len(losses) // 4) :]
    gradients = (
        torch.autograd.grad(part.sum(), embeds, retain_graph=True)[0] for part in (losses, ends)
    )
    whole, end = (float(gradient[0, 0].norm()) for gradient in gradients)
    return whole, end


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model: means over the seeds, with half of the range as the spread of
    BLEU.
    """
    table, speeds = [], values["speed"]["speeds"]
    for name in (TRANSFORMER, EQUAL_STEPS, EQUAL_MINUTES):
        seeds = [run for run in values.values() if run.get("row") == name]
        scores = [run["bleu"] for run in seeds]
        row: dict[str, Any] = {
            "model": name,
            "parameters": seeds[0]["parameters"],
            "target tokens/s": speeds.get(name, speeds[EQUAL_STEPS]),
            "steps": statistics.fmean(run["step"] for run in seeds),
            "minutes": statistics.fmean(run["minutes"] for run in seeds),
            "perplexity": statistics.fmean(math.exp(run["validation_loss"]) for run in seeds),
            "BLEU": statistics.fmean(scores),
            "±": spread(scores),
        }
        for key, head in (
            ("gradients", "gradient"),
            ("untrained_gradients", "untrained: gradient"),
        ):
            for what, loss in (("first", ""), ("end", " of the end")):
                curve = _mean_curve([run[key] for run in seeds], what)
                row |= {
                    f"{head}{loss}": f"∝ n^{growth_exponent(*zip(*curve, strict=True)):.2f}",
                    f"{key} {what}": curve,
                }
        table.append(row)
    return table


def _mean_curve(
    seeds: Sequence[Sequence[Mapping[str, float]]], what: str
) -> list[tuple[float, float]]:
    """Return the points (tokens, norm), means over the seeds."""
    return [
        (
            statistics.fmean(point["tokens"] for point in points),
            statistics.fmean(point[what] for point in points),
        )
        for points in zip(*seeds, strict=True)
    ]


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure with BLEU, speed, and the gradients over the length."""
    figure = new_figure(13, 4)
    quality, first, end = figure.subplots(1, 3)
    for index, row in enumerate(table):
        quality.plot(row["minutes"], row["BLEU"], "o", color=f"C{index}", label=row["model"])
        for axes, what in ((first, "first"), (end, "end")):
            axes.plot(
                *zip(*row[f"gradients {what}"], strict=True),
                "o-",
                color=f"C{index}",
                label=row["model"],
            )
            axes.plot(
                *zip(*row[f"untrained_gradients {what}"], strict=True),
                "o:",
                color=f"C{index}",
                alpha=0.6,
            )
    quality.set(xlabel="minutes of training", ylabel="BLEU")
    quality.grid(alpha=0.3)
    quality.legend(fontsize="small")
    for axes, what in ((first, "all target tokens"), (end, "the last quarter of the target")):
        axes.set(
            xlabel="source tokens n (dotted: untrained)",
            ylabel="gradient for the first token",
            title=what,
        )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    return figure


TITLE = (
    "The Transformer beside an LSTM with attention: speed, BLEU and gradients over the "
    "length, on {data}"
)
FLAGS = TEXT | ROWS
EXPERIMENT = Experiment(
    "recurrent_baseline", TITLE, 2000, "training steps", runs, rows, draw, FLAGS, identity, plan
)
if __name__ == "__main__":
    EXPERIMENT.run_script()
