"""Stages of a run: each has its own mix of the corpora and ends at a step or an epoch."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.user_input import check_names

UNTIL_STEP, UNTIL_EPOCH, UNTIL_SHARE = ENDS = ("until_step", "until_epoch", "until_share")
_CORPORA = "corpora"


@dataclass(frozen=True)
class Stages:
    """
    The stages of a run, in their order.

    Args:
        shares: Share of each corpus by name, for each stage. Shares are relative to their sum.
        ends: The step or the epoch, both counted from the beginning of the run, at which each stage but the last ends.
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
        whole = sum(self.shares[number].values())
        mix = ", ".join(f"{share / whole:.0%} of {name}" for name, share in self.shares[number].items())
        end = f"until {self.unit} {self.ends[number]:,}" if number < len(self.ends) else "until the end of the run"
        return f"stage {number + 1} of {len(self)}, {end}: {mix}"


ONE_STAGE = Stages()


def read_stages(section: Any, names: Sequence[str], max_steps: int) -> Stages:
    """
    Return the stages in the section `stages` of a recipe.

    Args:
        names: The names of the corpora.
        max_steps (`int`): The steps of the run, of which `until_share` is a share.
    """
    if not isinstance(section, list) or not section:
        raise UserError(f"`stages` must be a list with a stage in it, got {section!r}.")
    for number, stage in enumerate(section, start=1):
        _check_stage(stage, f"stage {number}", names, is_last=number == len(section))
    kinds = [kind for stage in section for kind in ENDS if kind in stage]
    if len(set(kinds)) > 1:
        raise UserError(
            f"All stages must end by the same key, got `{kinds[0]}` and `{(set(kinds) - {kinds[0]}).pop()}`."
        )
    ends = [stage[kind] for stage, kind in zip(section, kinds, strict=False)]
    if kinds and kinds[0] == UNTIL_SHARE:
        ends = [round(end * max_steps) for end in ends]
    _check_increasing(section, ends, kinds, max_steps)
    unit = "epoch" if UNTIL_EPOCH in kinds else "step"
    shares = ({str(name): share for name, share in stage[_CORPORA].items()} for stage in section)
    return Stages(tuple(shares), tuple(ends), unit)


def _check_stage(stage: Any, name: str, names: Sequence[str], is_last: bool) -> None:
    if not isinstance(stage, dict):
        raise UserError(f"{name.capitalize()} must be a mapping, such as {{corpora: {{a: 1}}}}, got {stage!r}.")
    check_names(stage, {_CORPORA, *ENDS}, f"key of {name}")
    corpora = stage.get(_CORPORA)
    if not isinstance(corpora, dict) or not corpora:
        example = f"`corpora` with the share of a corpus in it, such as {{{names[0]}: 1}}"
        raise UserError(f"{name.capitalize()} must have {example}, got {corpora!r}.")
    check_names(map(str, corpora), names, f"corpus of {name}")
    for corpus, share in corpora.items():
        if type(share) not in (int, float) or not 0 < share < 1e6:
            raise UserError(f"The share of {corpus} in {name} must be a number above 0, got {share!r}.")
    _check_end(stage, name, is_last)


def _check_end(stage: dict[str, Any], name: str, is_last: bool) -> None:
    kinds = [kind for kind in ENDS if kind in stage]
    if is_last and kinds:
        raise UserError(f"The last stage lasts until the run ends, so `{kinds[0]}` must be left out of {name}.")
    if is_last:
        return
    if len(kinds) != 1:
        raise UserError(
            f"{name.capitalize()} must have one of {', '.join(ENDS)}, got {' and '.join(kinds) or 'none'}."
        )
    end = stage[kinds[0]]
    if kinds[0] == UNTIL_SHARE:
        if type(end) is not float or not 0 < end < 1:
            raise UserError(f"`{kinds[0]}` of {name} must be between 0 and 1, the share of `max_steps`, got {end!r}.")
    elif type(end) is not int or end < 1:
        raise UserError(f"`{kinds[0]}` of {name} must be a number of 1 or more, got {end!r}.")


def _check_increasing(section: list[dict[str, Any]], ends: list[int], kinds: list[str], max_steps: int) -> None:
    """Refuse stages without a step."""
    limits = [0, *ends, *([] if UNTIL_EPOCH in kinds else [max_steps])]
    for number, (before, end) in enumerate(pairwise(limits), start=1):
        if end > before:
            continue
        unit = "epoch" if UNTIL_EPOCH in kinds else "step"
        rule = f"after its beginning, {unit} {before}, got {unit} {end}"
        last = " (`max_steps`)" if number == len(section) else ""
        raise UserError(f"Stage {number} must end {rule}{last}. Let the ends of `stages` increase.")
