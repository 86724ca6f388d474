"""The messages of a text by their keys, and where they are."""

import json
import re

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.protection import Range

# The keys that lead to a message, or to a group of messages.
Path = tuple[str, ...]


class Entry:
    """
    A message, or a group of messages, in a text.

    Attributes:
        start: The place before the white space and the comments that precede it.
        end: The place after it, its attributes and all messages of the group.
        value: The range that is replaced to give it another text.
        content: The place after the last message of a group, or before the first attribute.
        is_empty: It has no text.
        is_group: It has messages, and is none.
    """

    def __init__(self, start: int, end: int, value: Range, is_empty: bool, is_group: bool = False):
        self.start, self.end, self.content, self.value = start, end, end, value
        self.is_empty, self.is_group = is_empty, is_group


Entries = dict[Path, Entry]


def group_entries(entries: Entries, text: str, end: int) -> Entries:
    """Return the entries of a text without groups, of which the last ends at a place, in one."""
    root = Entry(0, end, (0, len(text)), not text.strip(), is_group=True)
    return {(): root} | entries


def read_json_entries(
    text: str, tokens: re.Pattern[str], hidden: str | tuple[str, ...] = "@"
) -> Entries:
    """Return the values of JSON by their keys, but those in lists and in keys with a hidden
    beginning, which belong to the one before.

    Args:
        tokens: Finds values, keys and signs.
    """
    if not text.lstrip().startswith("{"):
        raise UserError("Messages with keys must be in a JSON object, got a list or a value.")
    path: Path | None = ()
    entries, opened = Entries(), list[tuple[Path | None, Entry]]()
    start = last = 0  # ends of tokens, of which the last is no comma
    for match in tokens.finditer(text):
        sign = match[0]
        if match["key"] is not None:
            around, key = opened[-1][0], json.loads(match["key"])
            path = None if around is None or key.startswith(hidden) else (*around, key)
            start = last
        elif sign in ("}", "]"):
            path, entry = opened.pop()
            entry.is_empty = entry.is_group and text[last - 1] == "{"
            entry.content, entry.end = last, match.end()
            entry.value = entry.value[0], entry.end
        elif sign != ",":
            is_empty = not sign.strip('" ')
            entry = Entry(start, match.end(), match.span(), is_empty, sign == "{")
            if path is not None:
                entries[path] = entry
            if sign in ("{", "["):
                opened.append((path if entry.is_group else None, entry))
                path = None
        if sign != ",":
            last = match.end()
    return entries
