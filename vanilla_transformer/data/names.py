"""Names that a user has written: flags, recipe keys, keys of a section."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any


def check_names(names: Sequence[str] | Mapping[str, Any], known: set[str], what: str, exactly: bool = False) -> None:
    """
    Raise a `ValueError` for the first unknown name, with the nearest known one.

    Unless names must match `exactly`, spellings that the parser accepts are allowed: dashes, and --no_x for a switch
    that is on by default.
    """
    for name in names:
        spellings = {name.replace("-", "_").removeprefix("no_"), name.replace("-", "_")}
        if not (name in known if exactly else spellings & known):
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
            raise ValueError(f"There is no {what} {name!r}.{hint}")
