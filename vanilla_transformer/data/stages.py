"""Stages of a run: each has its own mix of the corpora and ends at a step or an epoch."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import Field, Strict

from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.names import check_names
from vanilla_transformer.user_input.schemas import Schema

UNTIL_STEP, UNTIL_EPOCH, UNTIL_SHARE = ENDS = ("until_step", "until_epoch", "until_share")
_Share = Annotated[float, Strict(), Field(gt=0, lt=1e6)]


class StageEntry(Schema, frozen=True, coerce_numbers_to_str=True):  # of names such as 2024
    """A stage as a recipe has it: the shares of corpora by name and, but for the last stage, one of
    three ends.
    """

    corpora: dict[str, _Share] = Field(
        min_length=1,
        title="a mapping of names to shares above 0, such as {clean: 1}",
        description="the shares of corpora by name, such as {clean: 1}.",
    )
    until_step: int | None = Field(None, ge=1, strict=True)
    until_epoch: int | None = Field(None, ge=1, strict=True)
    until_share: float | None = Field(None, gt=0, lt=1, strict=True)

    @property
    def ends(self) -> dict[str, float]:
        """Return where the stage ends, by the names of the keys with a value."""
        return {name: end for name in ENDS if (end := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Stages:
    """
    The stages of a run, in their order.

    Args:
        shares: Share of each corpus by name, for each stage. Shares are relative to their sum.
        ends: The step or the epoch, both counted from the beginning of the run, at which each stage
            but the last ends.
        unit (`str`): "step" or "epoch".
    """

    shares: Sequence[Mapping[str, float]] = ({},)
    ends: Sequence[int] = ()
    unit: str = "step"

    def __len__(self) -> int:
        return len(self.shares)

    def at(self, step: int, epoch: int) -> int:
        """Return the number of the stage, from 0, after `step` steps in epoch `epoch`."""
        return bisect_right(self.ends, step if self.unit == "step" else epoch)

    def describe(self, number: int) -> str:
        """Format the end and the mix of a stage for people."""
        shares = self.shares[number]
        whole = sum(shares.values())
        mix = ", ".join(f"{share / whole:.0%} of {name}" for name, share in shares.items())
        end = "until the end of the run"
        if number < len(self.ends):
            end = f"until {self.unit} {self.ends[number]:,}"
        return f"stage {number + 1} of {len(self)}, {end}: {mix}"


ONE_STAGE = Stages()


def read_stages(section: object, names: Sequence[str], max_steps: int) -> Stages:
    """Return the stages in the section `stages` of a recipe, whose corpora have `names`."""
    if not isinstance(section, list) or not section:
        raise UserError(f"`stages` must be a list with a stage in it, got {section!r}.")
    stages: list[StageEntry] = []
    used: set[str] = set()
    for number, entry in enumerate(section, start=1):
        stage = _read_stage(entry, number, len(section), names)
        stages.append(stage)
        used.update(stage.ends)
    kinds = [kind for kind in ENDS if kind in used]
    if len(kinds) > 1:
        raise UserError(f"All stages must end by the same key, got `{kinds[0]}` and `{kinds[1]}`.")
    unit = "epoch" if kinds == [UNTIL_EPOCH] else "step"
    scale = max_steps if kinds == [UNTIL_SHARE] else 1
    ends = [round(end * scale) for stage in stages for end in stage.ends.values()]
    limits = [0, *ends]
    if unit == "step":
        limits.append(max_steps)
    for number, (begin, end) in enumerate(pairwise(limits), start=1):
        if end <= begin:
            last = " (`max_steps`)" if number == len(section) else ""
            requirement = f"Stage {number} must end after its beginning, {unit} {begin}"
            requirement += f", got {unit} {end}{last}"
            raise UserError(f"{requirement}. Let the ends of `stages` increase.")
    return Stages(tuple(stage.corpora for stage in stages), tuple(ends), unit)


def _read_stage(entry: object, number: int, last: int, names: Sequence[str]) -> StageEntry:
    try:
        if not isinstance(entry, dict):
            raise UserError(
                f"It must be a mapping, such as {{corpora: {{{names[0]}: 1}}}}, got {entry!r}."
            )
        check_names(entry, StageEntry.model_fields, "key")
        stage = StageEntry(**entry)
        check_names(stage.corpora, names, "corpus")
        ends = [*stage.ends]
        if number == last and ends:
            raise UserError(f"The last one lasts until the run ends. Leave `{ends[0]}` out.")
        if number < last and len(ends) != 1:
            got = " and ".join(ends) or "none"
            raise UserError(f"It must have one of {', '.join(ENDS)}, got {got}.")
    except UserError as error:
        raise UserError(f"Stage {number} of `stages`: {error}") from None
    return stage
