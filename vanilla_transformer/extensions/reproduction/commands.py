"""Repeat the experiments of the paper."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Annotated

from pydantic import Field

from vanilla_transformer.cli.flags import CommandArguments, parse
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.schemas import ARGUMENT, Input


class ReproduceArguments(CommandArguments):
    """Flags of `reproduce`."""

    name: Annotated[str, ARGUMENT] = Field("", description="Of an experiment; --list shows all.")
    list: bool = Field(False, description="List the experiments.")
    budget: int | None = Field(
        None, description="Size of the experiment, in the unit that --list shows; by default its own."
    )
    seeds: int = Field(1, description="Number of runs of each row that depends on chance.")
    output: str = Field(
        "runs/reproduce",
        description="Folder; each experiment has a folder in it, and continues there.",
    )
    data: str = Field("data/multi30k", description="Folder of the text, for experiments that train.")
    rows: Input | None = Field(None, description="YAML file of the rows of table3; by default the package's own.")
    model: str | None = Field(None, description="Folder or Hub name of a model, for table2 and figures.")
    sentence: str = Field("Tom gave me a red apple.", description="Sentence whose attention figures draws.")
    dry_run: bool = Field(
        False, description="Print the runs, and their steps, hours and memory here, and write nothing."
    )


def reproduce_command(arguments: Sequence[str]) -> None:
    options = parse(ReproduceArguments, arguments)
    from .experiments import ReproductionOptions, describe_experiments, plan_experiment, reproduce

    if options.list:
        print("\n".join(f"{name:<20} {text}" for name, text in describe_experiments().items()))
        return
    if not options.name:
        raise UserError("Name one experiment, got none. `reproduce --list` shows them.")
    chosen = {item.name: getattr(options, item.name) for item in fields(ReproductionOptions)}
    wanted = ReproductionOptions(**chosen)
    if options.dry_run:
        print("\n".join([*plan_experiment(options.name, wanted), "Nothing has been written."]))
        return
    folder = reproduce(options.name, wanted, report=partial(print, flush=True))
    print(f"Results, table and picture are in {folder}.")
