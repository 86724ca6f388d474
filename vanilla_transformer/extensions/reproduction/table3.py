"""Table 3 of the paper: one training run for each row and seed, with equal steps, on Multi30k English-German."""

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.evaluation.scores import validation_scores
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.metrics import read_entries
from vanilla_transformer.training.recipe import Recipe, parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.utils.file_utils import hash_file
from vanilla_transformer.utils.input_files import read_input
from vanilla_transformer.utils.text_files import decode_text
from vanilla_transformer.utils.user_input import load_yaml

_ROWS = Path(__file__).with_suffix(".yaml")
_FILES = {"train": "train", "validation": "val"}
_SIDES = (("source", "en"), ("target", "de"))
_OF_BOTH_SIDES = ("layers", "attention_heads", "ffn_dim")
_SECTIONS = {"recipe", "base", "rows"}
_TIMED_STEPS = 2


def read_rows(path: str | None) -> dict[str, dict[str, Any]]:
    """Return the settings of each row by its name, `paper` among them."""
    file = _ROWS if path is None else Path(path)
    found = load_yaml(decode_text(read_input(file), str(file)))
    if (
        not isinstance(found, dict)
        or {*found} != _SECTIONS
        or not all(isinstance(one, dict) for one in found.values())
    ):
        raise UserError(
            f"{file} must have the mappings {', '.join(sorted(_SECTIONS))}, as the package's own file has."
        )
    wrong = [name for name, row in found["rows"].items() if not isinstance(row, dict | None)]
    if wrong or not found["rows"]:
        raise UserError(f"`rows` in {file} must be mappings of settings, got {wrong[:1] or 'none'}.")
    rows = {str(name): found["recipe"] | found["base"] | (row or {}) for name, row in found["rows"].items()}
    for name, row in rows.items():
        match row.get("paper"):
            case None | [int() | float() | None, int() | float() | None]:
                continue
        raise UserError(f"`paper` of the row {name} in {file} must be [perplexity, BLEU], got {row['paper']!r}.")
    return rows


def runs(options: Any, budget: int) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return a training run for each row and seed; all rows have a run before one has two."""
    table = read_rows(options.rows)
    folders = {name: re.sub(r"[\W_]+", "-", name.lower()).strip("-") for name in table}
    for name, row in table.items():
        try:
            recipe_of(row, 0, budget, options.data, Path(options.output))
        except ValueError as error:
            raise UserError(f"The row {name} is wrong: {error}") from error
        same = [other for other in table if folders[other] == folders[name]]
        if len(same) > 1:
            raise UserError(f"The names of rows must differ in letters or digits, got {same[0]!r} and {same[1]!r}.")
    return {
        f"{folders[name]}-seed-{seed}": partial(_train, name, row, seed, budget, options.data)
        for seed in range(options.seeds)
        for name, row in table.items()
    }


def identity(options: Any) -> dict[str, Any]:
    """Return the rows and the hashes of the text, which all runs of a folder share."""
    return {
        "rows": read_rows(options.rows),
        "text": hash_files(options.data),
    }


def hash_files(data: str) -> dict[str, str]:
    """Return the hash of each file of the text."""
    return {name: hash_file(path) for name, path in text_files(data).items()}


def plan(options: Any, budget: int) -> list[str]:
    """Return the steps and hours of all runs, and the most memory of a row, from a few steps of each row."""
    table = read_rows(options.rows)
    hours, peak = 0.0, 0.0
    for row in table.values():
        recipe = recipe_of(row, 0, budget, options.data, Path(options.output) / "planned")
        found = plan_run(recipe, _TIMED_STEPS)
        hours, peak = hours + found["hours_without_validation"], max(peak, found["peak_memory_gib"])
    steps, hours = options.seeds * len(table) * budget, options.seeds * hours
    return [f"{steps:,} steps, about {hours:.1f} hours here without validation, at most {peak:.1f} GiB of memory."]


def recipe_of(row: Mapping[str, Any], seed: int, steps: int, data: str, folder: Path, **changes: Any) -> Recipe:
    """Return the recipe of a row. It validates at its end alone.

    Args:
        changes: Values that differ; None leaves a key out.
    """
    values = {name: value for name, value in row.items() if name != "paper"}
    for name in [name for name in _OF_BOTH_SIDES if name in values]:
        values |= dict.fromkeys((f"encoder_{name}", f"decoder_{name}"), values.pop(name))
    values |= {"max_steps": steps, "eval_steps": steps, "save_steps": max(1, steps // 20), "seed": seed}
    values |= {**text_files(data), "output_dir": folder, **changes}
    return parse_recipe([f"--{name}={value}" for name, value in values.items() if value is not None])


def text_files(data: str) -> dict[str, Path]:
    """Return the files of the text, by the keys of a recipe."""
    files = {f"{part}_{side}": Path(data) / f"{name}.{end}" for part, name in _FILES.items() for side, end in _SIDES}
    missing = [path for path in files.values() if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"There is no file {missing[0]}. Get the text by `vanilla-transformer download-data multi30k`, or name "
            "its folder by --data."
        )
    return files


def _train(name: str, row: Mapping[str, Any], seed: int, steps: int, data: str, folder: Path) -> dict[str, Any]:
    """Train a row, and return the scores of its final model. A run that was interrupted resumes."""
    recipe = recipe_of(row, seed, steps, data, folder)
    train(recipe, evaluate=validation_scores)
    final = read_entries(folder)[-1]
    model = recipe.model
    values = {each: final[each] for each in ("validation_loss", "bleu", "chrf", "minutes", "step")}
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))  # may differ within a table
    values |= {each: machine[each] for each in ("hardware", "mixed_precision")}
    parameters = count_parameters(model, recipe.data.vocab_size)
    return {"row": name, "seed": seed, "parameters": parameters, "paper": row.get("paper"), **values}


def count_parameters(model: Any, vocab_size: int) -> int:
    """Return the number of weights of matrices, by the paper's sizes: embeddings once, attention and feed-forward."""
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
    for name in dict.fromkeys(each["row"] for each in values.values()):
        own = [each for each in values.values() if each["row"] == name]
        perplexities = [math.exp(each["validation_loss"]) for each in own]
        paper = own[0]["paper"] or [None, None]
        table.append(
            {
                "row": name,
                "parameters": own[0]["parameters"],
                "perplexity": statistics.fmean(perplexities),
                "±": spread(perplexities),
                "BLEU": statistics.fmean(each["bleu"] for each in own),
                "± ": spread([each["bleu"] for each in own]),
                "paper: perplexity": paper[0],
                "paper: BLEU": paper[1],
                "seeds": len(own),
                "minutes": statistics.fmean(each["minutes"] for each in own),
            }
        )
    return table


def spread(values: Sequence[float]) -> float | None:
    """Return half of the range, or None for a single value."""
    return (max(values) - min(values)) / 2 if len(values) > 1 else None


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure of the differences from the base model in BLEU, here, with their spread, and in the paper."""
    figure = new_figure(8, 0.8 + 0.3 * len(table))
    axes = figure.subplots()
    base = table[0]
    for key, label, marker in (("BLEU", "here", "o"), ("paper: BLEU", "paper, newstest2013", "x")):
        known = [(place, row) for place, row in enumerate(table) if row[key] is not None]
        if known:
            differences = [row[key] - base[key] for _, row in known]
            spreads = [row["± "] or 0.0 for _, row in known] if key == "BLEU" else None
            axes.errorbar(differences, [place for place, _ in known], xerr=spreads, fmt=marker, label=label)
    axes.set_yticks(range(len(table)), [row["row"] for row in table])
    axes.invert_yaxis()
    axes.axvline(0.0, color="gray", linewidth=0.8)
    axes.set(xlabel=f"BLEU above the row {base['row']}")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
