"""Catalogs of messages of programs: PO and TS of Qt."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from gettext import c2py
from itertools import chain
from typing import Any

import regex

from vanilla_transformer.data.readers.gettext_catalogs import (
    ACCELERATOR,
    find_catalog_languages,
    read_catalog,
    strings_of,
    uses_access_keys,
)
from vanilla_transformer.decoding.protection.blocks import (
    OPEN,
    Block,
    Document,
    SpanBuilder,
    leave_open,
    summarize,
    unify_line_ends,
    write_block,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, name_language
from vanilla_transformer.text.protection import WIDTH, find_protected
from vanilla_transformer.text.translation_warnings import describe_doubts
from vanilla_transformer.text.xml_tree import DECLARATION

from .message_format import LINE_BREAK, add_lines
from .xliff_format import TargetLanguageError, check_direction

# Numbers below 1000 from which on msgfmt takes a form to be of several numbers, which it must then
# name
_OFTEN = 5
# A number of forms; the languages that gettext knows have up to 6.
_COUNT = re.compile(r"\s*0*+([1-9]|10)\s*")

# The flag of a message in PO.
_FORMAT = regex.compile(r"(?<!no-)\b\w++(?:-brace)?-format\b")
# What gettext takes for a field where a message has such a flag: in "50% of" a space is a flag of
# the conversion o.
_FIELD = regex.compile(
    rf"%(?:\d++\$|\(\w++\))?[-+ 0#'I]*+{WIDTH}[A-Za-z%@]?|\{{[^{{}}]*+\}}", regex.V1
)


class CatalogDocument(Document):
    """
    The messages of a PO or TS file without a translation. New ones are fuzzy in PO, and unfinished
    in TS.

    Args:
        form: See [`read_catalog`].

    Attributes:
        directions: The languages of the file, as far as they are named.
        summary: Numbers of messages: translated ones, and others with the reason.
        doubts: Warnings about translations of blocks, which become comments of a translator.
    """

    doubts: Mapping[int, Sequence[str]] = {}

    def __init__(self, text: str, direction: Direction = NO_DIRECTION, form: str = "po"):
        self._mark, self._line_end, self._text = unify_line_ends(text)
        self._store, self._form, self.blocks = read_catalog(self._text, form), form, []
        self._units = list[tuple[Any, int, Sequence[int]]]()
        self._counts = Counter[str]()
        named = find_catalog_languages(self._store, form)
        check_direction(named, direction)
        language = named.target or name_language(direction.target or "")
        self.directions = [named]
        self._target = language.replace("-", "_")
        if form == "ts":
            self._store.settargetlanguage(None if named.target else self._target)
        has_keys = uses_access_keys(self._text)
        for unit in self._store.units:
            kind = _kind_of(unit)
            self._counts[kind] += 1
            if kind == OPEN:
                forms = self._plural_forms(unit) if unit.hasplural() else [0]
                used, sources = sorted({*forms}), strings_of(unit.source, has_keys)
                positions = [used.index(form) for form in forms]
                self._units.append((unit, len(self.blocks), positions))
                marks = f"{LINE_BREAK}|{ACCELERATOR}"
                for index in used:
                    builder = add_lines(SpanBuilder(True), sources[index], marks)
                    self.blocks.append(builder.finish())

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        blocks = leave_open(self.blocks, blocks)
        written = [write_block(block, str, lambda mark, content: mark) for block in blocks]
        count = 0
        for unit, number, forms in self._units:
            numbers = [number + form for form in forms]
            is_formatted = _FORMAT.search(" ".join(getattr(unit, "typecomments", ())))
            if any(
                blocks[at].is_open
                or (is_formatted and _fields(self.blocks[at]) != _fields(blocks[at]))
                for at in numbers
            ):
                count += 1
                continue
            if unit.hasplural():
                unit.target = [written[at] for at in numbers]
            else:
                unit.target = written[number]
            unit.markfuzzy()
            names = chain.from_iterable(self.doubts.get(at, ()) for at in numbers)
            if comment := describe_doubts(names):
                unit.addnote(comment, origin="translator")
        done = self._counts[OPEN] - count
        total = self._counts.total() - self._counts[""]
        done_of_all = f"Translated {done} of {total} messages."
        self.summary = summarize(done_of_all, count if blocks else None, self._counts)
        if count == len(self._units):
            return self._mark + self._text.replace("\n", self._line_end)
        if self._form == "po" and self._store.header():
            self._name_language()
        text = bytes(self._store).decode().replace("\r\n", "\n").rstrip("\n")
        declaration = DECLARATION.match(self._text)
        text = declaration[0] + DECLARATION.sub("", text) if declaration else text
        text += self._text[len(self._text.rstrip("\n")) :]
        return self._mark + text.replace("\n", self._line_end)

    def _name_language(self) -> None:
        """Fill the language and the encoding into the header of PO if it is a template."""
        fields = {}
        if self._target and not self.directions[0].target:
            fields["Language"] = self._target
        if self._store.parseheader().get("Content-Type", "").endswith("=CHARSET"):
            fields["Content_Type"] = "text/plain; charset=UTF-8"
        if fields:
            self._store.updateheader(add=True, **fields)

    def _plural_forms(self, unit: Any) -> Sequence[int]:
        """Return the number of the source of each plural form."""
        if self._form == "ts":
            num_forms = self._store.nplural() if self._target else 1
            return [0] * max(len(strings_of(unit.target)), num_forms)
        count, equation = self._store.getheaderplural()
        if count is None or equation is None:
            from translate.lang.factory import getlanguage

            language = getlanguage(self._target or None)
            count, equation = language.nplurals, language.pluralequation
            if not count:
                hint = "Add `Plural-Forms`, or name the language by --target_language"
                raise TargetLanguageError(
                    f"A PO file with plurals must say how many its language has. {hint}."
                )
            self._store.updateheaderplural(count, equation)
        if not _COUNT.fullmatch(str(count)):
            raise UserError(
                f"`nplurals` of `Plural-Forms` must be from 1 to 10, got {count!s:.20}."
            )
        try:
            form_of = c2py(equation)
            numbers = Counter(map(form_of, range(1000)))
        except (ValueError, ArithmeticError) as error:
            raise UserError(
                f"`Plural-Forms` must be an expression of C, got {equation:.60}: {error}."
            ) from None
        kept = []
        for text in strings_of(unit.source):
            kept.append({text[start:end] for start, end in find_protected(text)})
        is_often = numbers[form_of(1)] >= _OFTEN
        has_all = int(count) == 1 or (is_often and kept[1] - kept[0])
        singular = -1 if has_all else form_of(1)
        return [int(form != singular) for form in range(int(count))]


def _fields(block: Block) -> Counter[str]:
    return Counter(_FIELD.findall(block.text))


def _kind_of(unit: Any) -> str:
    """Return `open`, why a message is not translated, or an empty text for a unit that holds no
    message.
    """
    if not unit.istranslatable() or not any(strings_of(unit.source)):
        return "obsolete" if unit.isobsolete() else ""
    return "with a translation" if any(strings_of(unit.target)) else OPEN
