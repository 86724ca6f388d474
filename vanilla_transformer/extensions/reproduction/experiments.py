"""Run an experiment: each of its runs once, then a JSON with all runs, a table in Markdown and a picture."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure, save_figure
from vanilla_transformer.utils.file_utils import check_output_dir, lock_folder, write_text_atomically

from . import (
    attention_figures,
    layer_costs,
    long_sequences,
    positions,
    recurrent_baseline,
    softmax_scaling,
    table2,
    table3,
)

_RESULTS, _TABLE, _PICTURE = "results.json", "table.md", "figure.png"
Values = dict[str, Any]


@dataclass(frozen=True)
class ReproductionOptions:
    """
    Choices of a user.

    Attributes:
        output: Folder, in which each experiment has a folder.
        budget: The size of the experiment, in its own unit; None for its default.
        seeds: Number of runs of each row that depends on chance.
        data: Folder of the text, for experiments that train.
        rows: File of the rows of table 3; None for the package's.
        model: Folder or Hub name of a model, for experiments on a trained one.
        sentence: Whose attention is drawn.
    """

    output: str = "runs/reproduce"
    budget: int | None = None
    seeds: int = 1
    data: str = "data/multi30k"
    rows: str | None = None
    model: str | None = None
    sentence: str = "Tom gave me a red apple."


@dataclass(frozen=True)
class Experiment:
    """
    An experiment of the paper.

    Attributes:
        title: Title with the section of the paper.
        budget: The default budget, in `unit`.
        runs: Returns a function for each run, by a name that is a file name; it gets a folder for its files.
        rows: Returns the rows of the table, given the values of all runs by name.
        draw: Returns a figure of the rows.
        identity: Returns values that all runs in a folder must share.
        plan: Returns lines about steps, hours and memory; None if the runs take seconds.
    """

    title: str
    budget: int
    unit: str
    runs: Callable[[ReproductionOptions, int], Mapping[str, Callable[[Path], Values]]]
    rows: Callable[[Mapping[str, Values]], list[Values]]
    draw: Callable[[Sequence[Values]], Any]
    identity: Callable[[ReproductionOptions], Values] = lambda options: {}
    plan: Callable[[ReproductionOptions, int], list[str]] | None = None


EXPERIMENTS: dict[str, Experiment] = {
    "scaling-by-sqrt-dk": Experiment(
        "The softmax without and with division by √d_k (section 3.2.1)",
        512,
        "random queries of each width",
        softmax_scaling.runs,
        softmax_scaling.rows,
        softmax_scaling.draw,
    ),
    "positions": Experiment(
        "Attention alone does not know the order of its input (section 3.5)",
        16,
        "tokens of the longest source",
        positions.runs,
        positions.rows,
        positions.draw,
    ),
    "table1": Experiment(
        "The cost of a layer (table 1): operations, sequential steps and path length",
        512,
        "positions of the longest sequence",
        layer_costs.runs,
        layer_costs.rows,
        layer_costs.draw,
    ),
    "table2": Experiment(
        "BLEU and the floating-point operations of training (table 2), of a run beside the paper's rows",
        5,
        "measurements of this machine's speed",
        table2.runs,
        table2.rows,
        table2.draw,
        table2.identity,
    ),
    "figures": Experiment(
        "Self-attention of the encoder for a sentence (figures 3 to 5)",
        2,
        "layers, the last ones",
        attention_figures.runs,
        attention_figures.rows,
        attention_figures.draw,
        attention_figures.identity,
    ),
    "table3": Experiment(
        "Variations of the model (table 3, rows A to E), with sizes scaled down, on Multi30k",
        3000,
        "training steps of each run",
        table3.runs,
        table3.rows,
        table3.draw,
        table3.identity,
        table3.plan,
    ),
    "recurrent-baseline": Experiment(
        "The Transformer beside an LSTM with attention: speed, BLEU and gradients over the length, on Multi30k",
        2000,
        "training steps",
        recurrent_baseline.runs,
        recurrent_baseline.rows,
        recurrent_baseline.draw,
        recurrent_baseline.identity,
        recurrent_baseline.plan,
    ),
    "long-sequences": Experiment(
        "Linear, LSH and Transformer-XL attention and reversible layers: time, memory, and a task at equal time",
        300,
        "seconds of processor time for each training",
        long_sequences.runs,
        long_sequences.rows,
        long_sequences.draw,
        plan=long_sequences.plan,
    ),
}


def describe_experiments() -> dict[str, str]:
    """Return a line about each experiment, by name."""
    return {name: f"{each.title}. Budget: {each.unit}, {each.budget:,}." for name, each in EXPERIMENTS.items()}


def find_experiment(name: str) -> Experiment:
    """Return the experiment with this name."""
    if name not in EXPERIMENTS:
        raise UserError(f"The experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    return EXPERIMENTS[name]


def plan_experiment(name: str, options: ReproductionOptions) -> list[str]:
    """Return lines about the runs, and their steps, hours and memory on this machine. Nothing is written."""
    experiment, budget = find_experiment(name), check_options(name, options)
    runs = experiment.runs(options, budget)
    finished = _read_results(name, options)["runs"].keys() & runs.keys()
    lines = [f"{experiment.title}: {len(runs)} runs, {len(finished)} of them finished."]
    return lines + ([] if experiment.plan is None else experiment.plan(options, budget))


def check_options(name: str, options: ReproductionOptions) -> int:
    """Check the options and the folder, and return the budget."""
    experiment = find_experiment(name)
    budget = experiment.budget if options.budget is None else options.budget
    for key, value in (("budget", budget), ("seeds", options.seeds)):
        if value < 1:
            raise UserError(f"`{key}` must be 1 or more, got {value}.")
    folder, results = _folder(name, options), _read_results(name, options)
    has_begun = results["runs"] or (folder / "runs").exists()
    wanted, found = _identity(experiment, options, budget), results["identity"]
    if has_begun and found and found != wanted:
        key, before, now = _first_difference("settings", found, wanted)
        raise UserError(
            f"{folder} has results of another {key}, {before!r} and not {now!r}. Give another "
            "--output, or delete the folder."
        )
    return budget


def reproduce(name: str, options: ReproductionOptions, report: Callable[[str], Any] = print) -> Path:
    """
    Finish an experiment, and return its folder with `results.json`, `table.md` and `figure.png`.

    An interrupted experiment continues. A finished run is not repeated.

    Args:
        report: Gets a line for each finished run, and the table.
    """
    experiment, budget = find_experiment(name), check_options(name, options)
    folder, runs = _folder(name, options), experiment.runs(options, budget)
    new_figure(1, 1)  # which needs matplotlib: better now than after hours
    with lock_folder(folder):
        results = _read_results(name, options) | {"identity": _identity(experiment, options, budget), "rows": []}
        _write_results(folder, results)
        for number, (key, run) in enumerate(runs.items(), start=1):
            if key not in results["runs"]:
                results["runs"][key] = run(folder / "runs" / key)
                _write_results(folder, results)
                report(f"{number} of {len(runs)}: {key}")
        rows = experiment.rows({key: results["runs"][key] for key in runs})
        _write_results(folder, results | {"rows": rows})
        table = markdown_table(rows)
        write_text_atomically(folder / _TABLE, f"{experiment.title}\n\n{table}")
        save_figure(experiment.draw(rows), folder / _PICTURE)
    report(f"\n{experiment.title}\n\n{table}")
    return folder


def _folder(name: str, options: ReproductionOptions) -> Path:
    return Path(options.output) / name


def _first_difference(name: str, before: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the name of the first value in which two mappings differ, at any depth, and both values."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return name, before, now
    key = next(key for key in [*now, *before] if before.get(key) != now.get(key))
    return _first_difference(key, before.get(key), now.get(key))


def _identity(experiment: Experiment, options: ReproductionOptions, budget: int) -> Values:
    return experiment.identity(options) | {"budget": budget}


def _read_results(name: str, options: ReproductionOptions) -> Values:
    """Return the results in the folder of an experiment, whose `runs` have finished; there may be none."""
    folder = _folder(name, options)
    if (folder / _RESULTS).exists():
        found = json.loads((folder / _RESULTS).read_text(encoding="utf-8"))
        if not (isinstance(found, dict) and {"identity", "runs"} <= found.keys()):
            rule = f"{folder / _RESULTS} must have the results of an experiment, but it has not"
            raise UserError(f"{rule}. Give another --output, or delete the folder.")
        return found
    check_output_dir(folder, replaced=["runs"])
    return {"title": find_experiment(name).title, "identity": {}, "runs": {}}


def _write_results(folder: Path, results: Values) -> None:
    write_text_atomically(folder / _RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as a table; None is an empty cell, and a list has no column."""
    heads = [head for head, value in rows[0].items() if not isinstance(value, list)]
    lines = [heads, ["---"] * len(heads), *([_cell(row[head]) for head in heads] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
