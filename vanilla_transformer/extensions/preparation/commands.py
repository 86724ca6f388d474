"""Prepare a corpus for training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from vanilla_transformer.cli.flags import Count, register_models
from vanilla_transformer.machine.imports import show_progress
from vanilla_transformer.training.recipe import parse_recipe_with
from vanilla_transformer.user_input.schemas import Schema

# The flags that `--help` shows.
_MAIN = (
    *("output", "shard_pairs", "tasks", "train_source", "train_target", "corpora", "dataset"),
    *("source_language", "target_language", "drop", "tokenizer", "vocab_size"),
)


class PrepareArguments(Schema):
    """Flags of `prepare`."""

    output: str = Field(description="Folder for the prepared corpus, which `train_data` names.")
    shard_pairs: int = Field(
        200_000, ge=1, le=100_000_000, description="Pairs of a shard, before cleaning."
    )
    tasks: Count = Field(
        1, description="Parts of each step, which run on all cores; more than 1 need datatrove."
    )


def prepare_command(arguments: Sequence[str]) -> None:
    def complete(values: dict[str, Any]) -> dict[str, Any]:
        return {"output_dir": "unused"} | values  # of training, and not of this command

    sections = {"prepare": PrepareArguments}
    program = "vanilla-transformer prepare"
    recipe, options = parse_recipe_with(sections, arguments, program, _MAIN, complete)
    register_models()
    from .preparation import prepare

    with show_progress():
        manifest = prepare(recipe, options.output, options.shard_pairs, options.tasks)
    report = Path(options.output) / "report.json"
    shards = len(manifest.shards)
    print(f"{manifest.pairs:,} pairs in {shards:,} shards are in {options.output}.")
    print(f"What cleaning dropped is in {report}. Train with: --train_data {options.output}")
