"""Print to readers that may end first, and show how much of a text is done."""

import os
import sys
from collections.abc import Iterable
from typing import Any

_PATIENCE = 2  # seconds of work before a progress bar is shown


def print_until_reader_ends(texts: Iterable[str]) -> None:
    """Print each text at once. End quietly if the reader of a pipe ends, such as `head`."""
    try:
        for text in texts:
            print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would fail to flush at its end


def open_bar(total: int | None, done: int, hidden: bool) -> Any:
    """Return a progress bar on standard error that counts sentences, shown on a terminal if work takes seconds."""
    from transformers.utils import logging

    options = {"unit": "sentence", "desc": "Translating", "delay": _PATIENCE, "dynamic_ncols": True}
    return logging.tqdm(total=total, initial=done, disable=True if hidden else None, **options)


class BlockProgress:
    """
    Move a bar that counts the lines of a text while a block of them is translated.

    Args:
        bar: See [`open_bar`].
        lines: Of the block. Each has no sentence, one or several.
    """

    def __init__(self, bar: Any, lines: int):
        self._bar, self._lines, self._place = bar, lines, 0

    def __call__(self, done: int, total: int) -> None:
        """Show that so many of all sentences of the block are done."""
        self._move(self._lines * done // total)

    def finish(self) -> None:
        """Show that the whole block is done."""
        self._move(self._lines)

    def _move(self, place: int) -> None:
        self._bar.update(place - self._place)
        self._place = place


def quiet() -> None:
    """Turn off the warnings and progress bars of the libraries."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
