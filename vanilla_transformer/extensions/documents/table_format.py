"""Columns of tables: CSV and TSV."""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from textwrap import shorten

from vanilla_transformer.decoding.protection.blocks import (
    BYTE_ORDER_MARK,
    SpanBuilder,
    unify_line_ends,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .message_format import MessageDocument, add_lines
from .message_keys import Entries, Entry, group_entries
from .source_text import Place

_SEPARATORS = {"csv": ",;|\t", "tsv": "\t"}
# Other programs than Excel write quotation marks of TSV as they are.
_TEXTS = {
    "csv": r'"(?P<quoted>(?:[^"]++|"")*+)"|(?!")(?P<plain>[^{0}\r\n]*+)',
    "tsv": r'"(?P<quoted>(?:[^"{0}]++|"")*+)"|(?P<plain>[^{0}\r\n]*+)',
}
# The end of the text is no cell, except after a separator.
_CELL = r"(?!(?<![{0}])\Z)(?P<cell>TEXT)(?P<end>{0}|\r*+\n|\r|\Z)|(?P<mistake>.)"
_QUOTED = re.compile(r'"[^"]*+"')
_LONGEST_SHOWN = 200  # characters of the names of columns
_Row = list[re.Match[str]]


class TableDocument(MessageDocument):
    """
    The cells of some columns of a table, which are quoted as their sources are or as they must be.

    Args:
        form: csv or tsv. In CSV the one of `,`, `;`, `|` and the tab that the first row has most
            separates cells.
        columns: Names in the first row, which is not translated then, or numbers from 1, with
            commas between them.
    """

    def __init__(
        self, text: str, direction: Direction = NO_DIRECTION, form: str = "csv", columns: str = ""
    ):
        super().__init__(text, keeps_line_ends=True)
        first_line = _QUOTED.sub("", text.partition("\n")[0])
        self._form, self._separator = form, max(_SEPARATORS[form], key=first_line.count)
        pattern = _CELL.replace("TEXT", _TEXTS[form]).format(re.escape(self._separator))
        self._cell = re.compile(pattern)
        self._columns = next(csv.reader([columns], skipinitialspace=True), [])
        self._has_names = not columns or not all(map(str.isdecimal, self._columns))
        if len({*self._columns}) < len(self._columns):
            raise UserError(f"The columns to translate must be different ones, got {columns}.")
        rows = self._read_rows(text)
        first_row = next(rows, [])
        self._names = self._name_columns(first_row)
        if not columns or not {*self._columns} <= {*self._names}:
            names = shorten(", ".join(self._names), _LONGEST_SHOWN, placeholder=" …")
            raise UserError(
                "The columns to translate must be names in the first row or numbers from 1, of "
                f"{names}, got {columns or 'none'}. Name them by `columns`."
            )
        if not self._has_names:
            rows = chain([first_row], rows)
        for row in rows:
            for name, cell in zip(self._names, row, strict=False):
                if name in self._columns:
                    message = unify_line_ends(_text_of(cell))[2]
                    builder = add_lines(SpanBuilder(keeps_space=True), message)
                    self._add_block(builder, Place(*cell.span("cell")))

    def _read_rows(self, text: str) -> Iterator[_Row]:
        """Yield the cells of each row."""
        row = _Row()
        for cell in self._cell.finditer(text, int(text.startswith(BYTE_ORDER_MARK))):
            if cell["mistake"]:
                raise self.error(self._form, cell.start())
            row.append(cell)
            if cell["end"] != self._separator:
                yield row
                row = _Row()

    def _name_columns(self, first_row: _Row) -> list[str]:
        """Return the names of columns, or their numbers if they have none."""
        if self._has_names:
            return [_text_of(cell).strip() for cell in first_row]
        numbers = range(1, len(first_row) + 1)
        return [*map(str, numbers)]

    def escape(self, text: str, position: Place) -> str:
        source = self.text[position.start : position.end]
        text = text.replace("\n", unify_line_ends(source)[1])
        if self._is_plain(source) and self._is_plain(text):
            return text
        return '"{}"'.format(text.replace('"', '""'))

    def _is_plain(self, text: str) -> bool:
        """Return whether a text is a cell without quotation marks around it."""
        cell = self._cell.fullmatch(text)
        return cell is not None and cell["plain"] == text

    def read_entries(self) -> Entries:
        names = self._name_columns(next(self._read_rows(self.sample), []))
        keys = [name for name in names if name not in self._columns]
        if names != self._names or not keys:
            raise UserError(
                "Its first row must have the separator and the columns of the source, one of which "
                "is not translated: its texts are the keys."
            )
        entries, end = Entries(), 0
        for row in self._read_rows(self.text):
            texts = dict(zip(names, map(_text_of, row), strict=False))
            start, end = end, row[-1].end("cell")
            key = texts.get(keys[0])
            if not key:
                continue
            if (key,) in entries or len(row) < len(names):
                raise UserError(
                    f"Each row must have {len(names)} cells and another key in the column "
                    f"{keys[0]}, but the one of {key!r:.60} has not."
                )
            entries[(key,)] = Entry(start, end, (start, end), False, is_group=True)
            for name, cell in zip(names, row, strict=False):
                if name in self._columns:
                    span = cell.span("cell")
                    entries[key, name] = Entry(*span, span, not texts[name].strip())
        return group_entries(entries, self.text, end)


def _text_of(cell: re.Match[str]) -> str:
    """Return the text of a cell."""
    return cell["plain"] or (cell["quoted"] or "").replace('""', '"')
