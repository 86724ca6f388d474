"""Check names that users write."""

import difflib
import os
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any

from vanilla_transformer.user_input.reasons import MOST_REASONS, Reasons


def check_names(names: Iterable[Any], known: Iterable[str], what: str) -> None:
    """Refuse unknown names, each with the nearest known one."""
    unknown = (str(name) for name in names if name not in known)
    with Reasons() as reasons:
        for name in islice(unknown, MOST_REASONS):
            question = did_you_mean(name, known)
            reasons.add(f"There is no {what} {name!r}.{question}", name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the nearest of the known names, with a space before it, or nothing if
    none is near.
    """
    nearest = find_nearest(name, known)
    return "" if nearest is None else f" Did you mean {nearest!r}?"


# Words of a name that do not tell it from others.
_FILLERS = {"n", "num", "number", "count", "size", "file", "path", "dir", "folder"}


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that somebody meant by an unknown one, or None if none is near.

    The same letters are near, and so is a name with the same words in any order, each perhaps
    misspelled or short: `nbest` and `n_best`, `beam` and `num_beams`, `max_len` and `max_length`.
    It may have one more than several.
    """
    near = []
    for known_name in known:
        if _are_near(name.lower(), known_name.lower()):
            near.append(known_name)

    def similarity(known_name: str) -> tuple[float, str]:
        return difflib.SequenceMatcher(None, name, known_name).ratio(), known_name

    return max(near, key=similarity, default=None)


def _are_near(name: str, known: str) -> bool:
    parts = re.findall("[^-_. ]+", name)
    known_parts = re.findall("[^-_. ]+", known)
    if "".join(parts) == "".join(known_parts):
        return True
    words = [part for part in parts if part not in _FILLERS] or parts
    left = [part for part in known_parts if part not in _FILLERS] or known_parts
    if not 0 <= len(left) - len(words) <= (len(words) > 1):
        return False
    for word in words:
        matches = [known_word for known_word in left if _is_same_word(word, known_word)]
        if not matches:
            return False
        left.remove(matches[0])
    return True


def _is_same_word(first: str, second: str) -> bool:
    """Tell whether one word begins with the other one, differs by a letter or two, or has another
    ending.
    """
    start = len(os.path.commonprefix([first, second]))
    shorter, longer = sorted([len(first) - start, len(second) - start])
    if (start >= 3 and shorter == 0) or (start >= 4 and longer <= 3):
        return True
    return difflib.SequenceMatcher(None, first, second).ratio() >= 0.75
