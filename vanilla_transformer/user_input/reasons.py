"""
The cores, the cache of oneDNN and the compiler of this process, the numbers that a device
multiplies, and how it is kept busy.

A GPU computes while Python prepares what comes next. A plain read of a value, or a copy from
pageable memory, makes Python wait until the GPU has caught up. Here the host waits in
[`HostCopy.wait`] only.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from vanilla_transformer.errors import UserError, UserErrors


def first_line(error: Exception) -> str:
    """Return the first line of the message of a driver or a compiler, which may have many, or the
    name of its type.
    """
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# Where a mistake is: the keys and positions on the way to it, such as `("corpora", 1, "weight")`.
Key = tuple[str | int, ...]
MOST_REASONS = 20  # reasons that somebody reads


class Reasons:
    """
    Collect reasons, and refuse with all of them at the end of the block.

        >>> with Reasons() as reasons:
        ...     reasons.add("`vocab_size` must be given.", "vocab_size")

    A single reason is raised as it is.

    Args:
        name: The file that has the mistakes.
        find_lines: Returns the lines of its keys, from 1; called if there are several reasons.
    """

    def __init__(self, name: str = "", find_lines: Callable[[], Mapping[Key, int]] = dict):
        self._name = name
        self._find_lines = find_lines
        self._errors: list[UserError] = []

    def __enter__(self) -> "Reasons":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self._refuse()

    def __bool__(self) -> bool:
        """Return whether there is a reason."""
        return bool(self._errors)

    @contextmanager
    def collect(
        self, *key: str | int, prefix: str = "", refused: Collection[str] = ()
    ) -> Iterator[None]:
        """Collect the reasons of an error in a block, and continue after it.

        Args:
            key: The place that the block reads.
            prefix: Text before each reason.
            refused: Keys whose values are refused. A reason that names one is left out, since it
                would judge the default.
        """
        try:
            yield
        except UserError as error:
            for mistake in mistakes_of(error):
                if not {*refused} & {*re.findall(r"`(\w+)", str(mistake))}:
                    self.take(mistake, *key, prefix=prefix)

    def add(self, reason: str, *key: str | int) -> None:
        """Add a reason, with the key of the mistake."""
        self.take(UserError(reason), *key)

    def take(self, error: UserError, *key: str | int, prefix: str = "") -> None:
        """Add the reasons of an error, as [`collect`] does."""
        for mistake in mistakes_of(error):
            if prefix:
                renamed = UserError(f"{prefix}{mistake}")
                renamed.key = mistake.key
                mistake = renamed
            mistake.key = (*key, *mistake.key)
            self._errors.append(mistake)

    def _refuse(self) -> None:
        errors = {str(error): error for error in self._errors}
        if len(errors) == 1:
            raise next(iter(errors.values()))
        if not errors:
            return
        known_lines = self._find_lines()
        lines = {}
        for reason, error in errors.items():
            lines[reason] = find_line(error.key, known_lines)
        mistakes = list[UserError]()
        for reason in sorted(errors, key=lambda reason: lines[reason] or 0):
            mistake = errors[reason]
            if lines[reason]:
                mistake = UserError(f"{self._name}, line {lines[reason]}: {reason}")
                mistake.key = errors[reason].key
            mistakes.append(mistake)
        if len(mistakes) > MOST_REASONS:
            count = len(mistakes) - MOST_REASONS
            mistakes[MOST_REASONS:] = [UserError(f"There are {count:,} more mistakes.")]
        raise UserErrors(mistakes)


def find_line(key: Key, lines: Mapping[Key, int]) -> int | None:
    """Return the line of a key, or of the nearest one around it."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key)


def mistakes_of(error: UserError) -> tuple[UserError, ...]:
    """Return the mistakes that an error has, each with its own line."""
    return error.mistakes if isinstance(error, UserErrors) else (error,)
