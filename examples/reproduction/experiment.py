"""Run an experiment: each of its runs once, then a JSON with all runs, a table in Markdown and a
picture.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets

from vanilla_transformer.cli import run
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure, save_figure
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.outputs import lock_folder

Values = dict[str, Any]
TEXT = {"data": ("data/multi30k", "folder of train.en, train.de, val.en and val.de")}
ROWS = {"rows": (str(Path(__file__).with_name("table3.yaml")), "YAML file of the rows")}
MODEL = {"model": (None, "folder or Hub name of a trained model, such as runs/demo")}


@dataclass(frozen=True)
class Experiment:
    """
    An experiment of the paper.

    Attributes:
        name: Name of its script and of its folder.
        title: Title with the section of the paper, and `{data}` for the name of the text.
        budget: The default budget, in `unit`.
        runs: Returns a function for each run, by a name that is a file name; it gets a folder for
            its files.
        rows: Returns the rows of the table, given the values of all runs by name.
        draw: Returns a figure of the rows.
        flags: Defaults and help of further flags, by name.
        identity: Returns values that all runs in a folder must share.
        plan: Returns a line about steps, hours and memory.
    """

    name: str
    title: str
    budget: int
    unit: str
    runs: Callable[[Any], Mapping[str, Callable[[Path], Values]]]
    rows: Callable[[Mapping[str, Values]], list[Values]]
    draw: Callable[[Sequence[Values]], Any]
    flags: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    identity: Callable[[Any], Values] = lambda options: {}
    plan: Callable[[Any], str] = lambda options: "They take seconds."

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Return the flags of a command line."""
        parser = argparse.ArgumentParser(
            description=f"{self.title_of('Multi30k')}.", allow_abbrev=False
        )
        budget = f"size of the experiment, in {self.unit}; {self.budget} by default"
        parser.add_argument("--budget", type=int, default=self.budget, help=budget)
        parser.add_argument(
            "--seeds", type=int, default=1, help="number of runs of each row that depends on chance"
        )
        parser.add_argument(
            "--output", type=Path, default=Path("runs/reproduce"), help="folder for all experiments"
        )
        parser.add_argument(
            "--dry_run", action="store_true", help="print the runs, and write nothing"
        )
        for name, (default, text) in self.flags.items():
            parser.add_argument(f"--{name}", default=default, help=text)
        options = parser.parse_args(words)
        if min(options.budget, options.seeds) < 1:
            raise UserError("--budget and --seeds must be 1 or more.")
        return options

    def main(self, words: Sequence[str]) -> None:
        """Finish an experiment.

        An interrupted one continues, and a finished run is not repeated.
        """
        options = self.parse(words)
        if not sys.stderr.isatty():  # a log would get a line for each step
            datasets.disable_progress_bars()
        data = Path(getattr(options, "data", "")).name
        title = self.title_of("Multi30k" if data == Path(TEXT["data"][0]).name else data)
        folder, runs = options.output / self.name, self.runs(options)
        identity = self.identity(options) | {"budget": options.budget}
        results = self.read_results(folder, identity, title)
        if options.dry_run:
            finished = results["runs"].keys() & runs.keys()
            print(
                f"{title}: {len(runs)} runs, {len(finished)} of them finished. {self.plan(options)}"
            )
            return
        new_figure(1, 1)  # which needs matplotlib: better now than after hours
        with lock_folder(folder):
            write_json(folder / "results.json", results)
            for number, (key, measure) in enumerate(runs.items(), start=1):
                if key not in results["runs"]:
                    results["runs"][key] = measure(folder / "runs" / key)
                    write_json(folder / "results.json", results)
                    print(f"{number} of {len(runs)}: {key}", flush=True)
            rows = self.rows({key: results["runs"][key] for key in runs})
            write_json(folder / "results.json", results | {"rows": rows})
            text = f"{title}\n\n{markdown_table(rows)}"
            write_text_atomically(folder / "table.md", text)
            save_figure(self.draw(rows), folder / "figure.png")
        print(f"\n{text}\nResults, table and picture are in {folder}.")

    def title_of(self, data: str) -> str:
        """Return the title, given the name of the text that models are trained on."""
        return self.title.replace("{data}", data)

    def read_results(self, folder: Path, identity: Values, title: str) -> Values:
        """Return the results of a folder, whose `runs` have finished; there may be none."""
        results = {"title": title, "identity": identity, "runs": {}, "rows": []}
        if not (folder / "results.json").exists():
            return results
        stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        different = [key for key in identity if stored["identity"].get(key) != identity[key]]
        if different and (stored["runs"] or (folder / "runs").exists()):
            raise UserError(
                f"{folder} has results of another {different[0]}. Give another --output, or delete "
                "the folder."
            )
        return results | {"runs": stored["runs"]}

    def run_script(self) -> None:
        """Run the script with the flags of its command line."""
        sys.exit(run(self.main))


def write_json(path: Path, values: Values) -> None:
    write_text_atomically(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows with the same keys as a table; None is an empty cell, and a list has no
    column.
    """
    heads = [head for head, value in rows[0].items() if not isinstance(value, list)]
    lines = [heads, ["---"] * len(heads), *([_cell(row[head]) for head in heads] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
