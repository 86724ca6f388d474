"""Catalogs of messages of programs: PO and TS of Qt."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from gettext import c2py
from itertools import chain
from typing import TYPE_CHECKING, Any

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
from vanilla_transformer.text.changes import CHANGED, KEPT, Change, Segment, find_changes
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, name_language
from vanilla_transformer.text.protection import WIDTH, find_protected
from vanilla_transformer.text.translation_warnings import describe_doubts
from vanilla_transformer.text.xml_tree import DECLARATION

from .message_format import LINE_BREAK, add_lines
from .xliff_format import TargetLanguageError, check_direction

if TYPE_CHECKING:
    from translate.storage.base import TranslationUnit

# Numbers below 1000 from which on msgfmt takes a form to be of several numbers, which it must then
# name
_OFTEN = 5
DONE = "with a translation"
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
        doubts: These become comments of a translator.
    """

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
        self._has_keys = uses_access_keys(self._text)
        for unit in self._store.units:
            kind = _kind_of(unit)
            self._counts[kind] += 1
            if kind == OPEN:
                self._open(unit, _previous_source(unit))

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        blocks = leave_open(self.blocks, blocks)
        written = [write_block(block, str, lambda mark, content: mark) for block in blocks]
        count = 0
        for unit, number, forms in self._units:
            numbers = [number + form for form in forms]
            if self.blocks[number].written is not None:
                continue
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
            _clear_previous(unit)
            names = chain.from_iterable(self.doubts.get(at, ()) for at in numbers)
            if comment := describe_doubts(names):
                unit.addnote(comment, origin="translator")
        done = self._counts[OPEN] - count
        total = self._counts.total() - self._counts[""]
        done_of_all = f"Translated {done} of {total} messages."
        self.summary = summarize(done_of_all, count if blocks else None, self._counts)
        if count == len(self._units) and not self._counts[KEPT]:
            return self._mark + self._text.replace("\n", self._line_end)
        if self._form == "po" and self._store.header():
            self._name_language()
        text = bytes(self._store).decode().replace("\r\n", "\n").rstrip("\n")
        declaration = DECLARATION.match(self._text)
        text = declaration[0] + DECLARATION.sub("", text) if declaration else text
        text += self._text[len(self._text.rstrip("\n")) :]
        return self._mark + text.replace("\n", self._line_end)

    def _open(self, unit: "TranslationUnit", before: str) -> None:
        """Add the blocks of a message, whose translation is the one of another source."""
        forms = self._plural_forms(unit) if unit.hasplural() else [0]
        used, sources = sorted({*forms}), strings_of(unit.source, self._has_keys)
        positions = [used.index(form) for form in forms]
        self._units.append((unit, len(self.blocks), positions))
        for index in used:
            self.blocks.append(_build_block(sources[index]))
        if any(strings_of(unit.target)):
            self._draft(len(self.blocks) - len(used), positions, before, unit.target)

    def _draft(self, number: int, positions: Sequence[int], before: str, after: str) -> None:
        """Let the blocks of a message know its earlier source and the translation of that."""
        sources, translations = strings_of(before), strings_of(after)
        for position in {*positions}:
            source = sources[min(position, len(sources) - 1)]
            form = min(positions.index(position), len(translations) - 1)
            earlier = _build_block(source).text, _build_block(translations[form]).text
            at = number + position
            self.blocks[at] = replace(self.blocks[at], earlier=earlier)

    def update(self, *previous: Document) -> list[Change]:
        """Copy the translations of messages that an earlier translation of the catalog has."""
        (earlier,) = previous
        assert isinstance(earlier, CatalogDocument)
        known = [unit for unit in earlier._store.units if _kind_of(unit) == DONE]
        versions, sources = [*map(_segment, known)], dict[tuple[str, ...], Any]()
        for unit in known:
            sources[tuple(strings_of(unit.target))] = unit.source
        translated = {*versions}
        for unit in self._store.units:
            is_fuzzy = unit.isfuzzy() and _kind_of(unit) == DONE
            if is_fuzzy and _segment(unit) not in translated:  # a guess of msgmerge
                self._counts = self._counts - Counter([DONE]) + Counter([OPEN])
                self._open(unit, sources.get(tuple(strings_of(unit.target)), ""))
        changes = find_changes([_segment(unit) for unit, *_ in self._units], versions)
        for at, (unit, number, positions) in enumerate(self._units):
            kind, position = changes[at]
            if kind != KEPT and self.blocks[number].earlier is not None:
                changes[at] = Change(CHANGED)
            elif position is not None:
                before = known[position]
                if kind != KEPT:
                    self._draft(number, positions, before.source, before.target)
                    continue
                self._counts.update({OPEN: -1, KEPT: 1})
                if self._form == "po":  # with its line breaks
                    unit.msgstr = before.msgstr
                else:
                    unit.target = before.target
                unit.markfuzzy(before.isfuzzy())
                for position in {*positions}:
                    self.blocks[number + position].written = ""
        return changes

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
    is_done = any(strings_of(unit.target)) and not _previous_source(unit)
    return DONE if is_done else OPEN


def _build_block(text: str) -> Block:
    return add_lines(SpanBuilder(True), text, f"{LINE_BREAK}|{ACCELERATOR}").finish()


def _segment(unit: "TranslationUnit") -> Segment:
    text = " ".join(strings_of(unit.source))
    return Segment(text, f"{unit.getcontext()}\4{text}")


def _previous_source(unit: "TranslationUnit") -> str:
    """Return the source of which a fuzzy message has the translation, if its tool noted it."""
    if not unit.isfuzzy():
        return ""
    element = getattr(unit, "xmlelement", None)
    return unit.prev_source if element is None else element.findtext("oldsource", "")


def _clear_previous(unit: "TranslationUnit") -> None:
    element = getattr(unit, "xmlelement", None)
    if element is None:
        unit.prev_source = unit.prev_context = ""
    else:
        for before in element.findall("oldsource"):
            element.remove(before)
