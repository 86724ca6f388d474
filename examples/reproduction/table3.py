"""Table 3 of the paper: one training run for each row and seed, with equal steps, on Multi30k
English-German.

vanilla-transformer download-data multi30k
python examples/reproduction/table3.py --dry_run
python examples/reproduction/table3.py
"""

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from experiment import ROWS, TEXT, Experiment

from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.evaluation.scores import validation_scores
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.metrics import read_entries
from vanilla_transformer.training.recipe import Recipe, parse_recipe
from vanilla_transformer.training.trainer import train

TIMED_STEPS = 2


def read_rows(path: str) -> dict[str, dict[str, Any]]:
    """Return the settings of each row by its name, `paper` among them."""
    content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or {*content} != {"recipe", "base", "rows"}:
        raise UserError(
            f"{path} must have the mappings base, recipe, rows, as {ROWS['rows'][0]} has."
        )
    return {
        str(name): content["recipe"] | content["base"] | (row or {})
        for name, row in content["rows"].items()
    }


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return a training run for each row and seed; all rows have a run before one has two."""
    table = read_rows(options.rows)
    slugs = {name: re.sub(r"[\W_]+", "-", name.lower()).strip("-") for name in table}
    if len({*slugs.values()}) < len(slugs):
        raise UserError(
            f"The names of rows must differ in letters or digits, got {', '.join(slugs)}."
        )
    for name, row in table.items():
        try:
            recipe_of(row, 0, options.budget, options.data, options.output)
        except UserError as error:
            raise UserError(f"The row {name} is wrong: {error}") from error
    return {
        f"{slugs[name]}-seed-{seed}": partial(
            train_row, name, row, seed, options.budget, options.data
        )
        for seed in range(options.seeds)
        for name, row in table.items()
    }


def identity(options: Any) -> dict[str, Any]:
    """Return the rows and the hashes of the text, which all runs of a folder share."""
    return {"rows": read_rows(options.rows), "text": hash_text(options.data)}


def hash_text(data: str) -> dict[str, str]:
    """Return the hash of each file of the text."""
    return {name: hash_file(path) for name, path in text_files(data).items()}


def plan(options: Any) -> str:
    """Print the hours of each row, and return the steps and hours of all runs, and the most memory
    of a row.
    """
    table, plans = read_rows(options.rows), []
    for name, row in table.items():
        recipe = recipe_of(row, 0, options.budget, options.data, options.output / "planned")
        print(f"{name}:", flush=True)
        plans.append(plan_run(recipe, TIMED_STEPS))
        print(f"about {plans[-1]['hours_without_validation']:.1f} hours for each seed", flush=True)
    hours = options.seeds * sum(values["hours_without_validation"] for values in plans)
    peak = max(values["peak_memory_gib"] for values in plans)
    steps = options.seeds * len(table) * options.budget
    return (
        f"{steps:,} steps, about {hours:.1f} hours here without validation, at most "
        f"{peak:.1f} GiB of memory."
    )


def recipe_of(
    row: Mapping[str, Any], seed: int, steps: int, data: str, folder: Path, **changes: Any
) -> Recipe:
    """Return the recipe of a row. It validates at its end alone.

    Args:
        changes: Values that differ; None leaves a key out.
    """
    values = {name: value for name, value in row.items() if name != "paper"}
    for name in {"layers", "attention_heads", "ffn_dim"} & values.keys():
        values |= dict.fromkeys((f"encoder_{name}", f"decoder_{name}"), values.pop(name))
    values |= {
        "max_steps": steps,
        "eval_steps": steps,
        "save_steps": max(1, steps // 20),
        "seed": seed,
    }
    values |= {**text_files(data), "output_dir": folder, **changes}
    return parse_recipe(
        [f"--{name}={value}" for name, value in values.items() if value is not None]
    )


def text_files(data: str) -> dict[str, Path]:
    """Return the files of the text, by the keys of a recipe."""
    files = {"train_source": "train.en", "train_target": "train.de"}
    files |= {"validation_source": "val.en", "validation_target": "val.de"}
    paths = {key: Path(data, name) for key, name in files.items()}
    missing = [path for path in paths.values() if not path.is_file()]
    if missing:
        raise UserError(
            f"There is no file {missing[0]}. Get the text by `vanilla-transformer download-data "
            "multi30k`, or name its folder by --data."
        )
    return paths


def train_row(
    name: str, row: Mapping[str, Any], seed: int, steps: int, data: str, folder: Path
) -> dict[str, Any]:
    """Train a row, and return the scores of its final model. A run that was interrupted resumes."""
    recipe = recipe_of(row, seed, steps, data, folder)
    train(recipe, evaluate=validation_scores)
    final = read_entries(folder)[-1]
    # Machines may differ within a table.
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    parameters = count_parameters(recipe.model, recipe.data.vocab_size)
    return {
        "row": name,
        "seed": seed,
        "parameters": parameters,
        "paper": row.get("paper"),
        **{key: final[key] for key in ("validation_loss", "bleu", "chrf", "minutes", "step")},
        **{key: machine[key] for key in ("hardware", "mixed_precision")},
    }


def count_parameters(model: Any, vocab_size: int) -> int:
    """Return the number of weights of matrices, by the paper's sizes: embeddings once, attention
    and feed-forward.
    """
    width, heads = model.d_model, model.encoder_attention_heads
    key = model.attention_key_dim or width // heads
    value = model.attention_value_dim or width // heads
    attention = 2 * width * heads * (key + value)
    encoder = model.encoder_layers * (attention + 2 * width * model.encoder_ffn_dim)
    decoder = model.decoder_layers * (2 * attention + 2 * width * model.decoder_ffn_dim)
    return vocab_size * width + encoder + decoder


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each row: means over the seeds, with half of the range as the spread."""
    table = []
    for name in dict.fromkeys(run["row"] for run in values.values()):
        seeds = [run for run in values.values() if run["row"] == name]
        perplexities = [math.exp(run["validation_loss"]) for run in seeds]
        paper = seeds[0]["paper"] or [None, None]
        table.append(
            {
                "row": name,
                "parameters": seeds[0]["parameters"],
                "perplexity": statistics.fmean(perplexities),
                "±": spread(perplexities),
                "BLEU": statistics.fmean(run["bleu"] for run in seeds),
                "± ": spread([run["bleu"] for run in seeds]),
                "paper: perplexity": paper[0],
                "paper: BLEU": paper[1],
                "seeds": len(seeds),
                "minutes": statistics.fmean(run["minutes"] for run in seeds),
            }
        )
    return table


def spread(values: Sequence[float]) -> float | None:
    """Return half of the range, or None for a single value."""
    return (max(values) - min(values)) / 2 if len(values) > 1 else None


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure of the differences from the base model in BLEU, here, with their spread, and
    in the paper.
    """
    figure = new_figure(8, 0.8 + 0.3 * len(table))
    axes = figure.subplots()
    base = table[0]
    for key, label, marker in (("BLEU", "here", "o"), ("paper: BLEU", "paper, newstest2013", "x")):
        known = [(place, row) for place, row in enumerate(table) if row[key] is not None]
        if known:
            differences = [row[key] - base[key] for _, row in known]
            spreads = [row["± "] or 0.0 for _, row in known] if key == "BLEU" else None
            axes.errorbar(
                differences, [place for place, _ in known], xerr=spreads, fmt=marker, label=label
            )
    axes.set_yticks(range(len(table)), [row["row"] for row in table])
    axes.invert_yaxis()
    axes.axvline(0.0, color="gray", linewidth=0.8)
    axes.set(xlabel=f"BLEU above the row {base['row']}")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


TITLE = "Variations of the model (table 3, rows A to E), with sizes scaled down, on {data}"
UNIT = "training steps of each run"
EXPERIMENT = Experiment("table3", TITLE, 3000, UNIT, runs, rows, draw, TEXT | ROWS, identity, plan)
if __name__ == "__main__":
    EXPERIMENT.run_script()
