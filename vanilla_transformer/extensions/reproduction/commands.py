"""Repeat the experiments of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial

from vanilla_transformer.cli.flags import parse
from vanilla_transformer.errors import UserError


@dataclass
class ReproduceArguments:
    """Flags of `reproduce`."""

    list: bool = field(default=False, metadata={"help": "List the experiments."})
    budget: int | None = field(
        default=None, metadata={"help": "Size of the experiment, in the unit that --list shows; by default its own."}
    )
    seeds: int = field(default=1, metadata={"help": "Number of runs of each row that depends on chance."})
    output: str = field(
        default="runs/reproduce",
        metadata={"help": "Folder; each experiment has a folder in it, and continues there.", "is_folder": True},
    )
    data: str = field(default="data/multi30k", metadata={"help": "Folder of the text, for experiments that train."})
    rows: str | None = field(
        default=None, metadata={"help": "YAML file of the rows of table3; by default the package's own."}
    )
    model: str | None = field(
        default=None, metadata={"help": "Folder or Hub name of a model, for table2 and figures."}
    )
    sentence: str = field(
        default="Tom gave me a red apple.", metadata={"help": "Sentence whose attention figures draws."}
    )
    dry_run: bool = field(
        default=False, metadata={"help": "Print the runs, and their steps, hours and memory here, and write nothing."}
    )


def reproduce_command(arguments: Sequence[str]) -> None:
    names, options = parse(
        ReproduceArguments,
        arguments,
        "reproduce NAME [--flags]",
        {"NAME": "Of an experiment; --list shows all."},
    )
    from .experiments import ReproductionOptions, describe_experiments, plan_experiment, reproduce

    if options.list:
        print("\n".join(f"{name:<20} {text}" for name, text in describe_experiments().items()))
        return
    if len(names) != 1:
        raise UserError(f"Name one experiment, got {len(names)}. `reproduce --list` shows them.")
    chosen = {item.name: getattr(options, item.name) for item in fields(ReproductionOptions)}
    wanted = ReproductionOptions(**chosen)
    if options.dry_run:
        print("\n".join([*plan_experiment(names[0], wanted), "Nothing has been written."]))
        return
    folder = reproduce(names[0], wanted, report=partial(print, flush=True))
    print(f"Results, table and picture are in {folder}.")
