"""String catalogs of Xcode: messages in all languages of an app, with plurals."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from vanilla_transformer.decoding.protection.blocks import (
    OPEN,
    Block,
    SpanBuilder,
    leave_open,
    summarize,
    write_block,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import (
    CATEGORIES,
    NO_DIRECTION,
    Direction,
    name_language,
    plural_categories,
)

from .message_format import VALUES, MessageDocument, add_lines, load_json
from .message_keys import Path, read_json_entries
from .source_text import Edit
from .xliff_format import TargetLanguageError, check_direction


class StringCatalogDocument(MessageDocument):
    """
    The messages of a string catalog that have no translation. New ones need a review.

    Args:
        direction: Its target language is filled.

    Attributes:
        summary: Numbers of messages: translated ones, and others with the reason.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        catalog: Any = load_json(self.text)
        self._entries = read_json_entries(self.text, VALUES["json"], hidden=())
        check_direction(Direction(catalog.get("sourceLanguage")), direction)
        if direction.target is None:
            raise TargetLanguageError(
                "A string catalog has several languages. Name the one to fill by --target_language."
            )
        self._language = name_language(direction.target)
        known = {*plural_categories(self._language)}
        self._counts, self._units = Counter[str](), dict[Path, dict[str, int]]()
        try:
            for key, unit in catalog["strings"].items():
                kind, forms = self._read(key, unit, catalog["sourceLanguage"])
                self._counts[kind] += 1
                if kind != OPEN:
                    continue
                numbers = dict[str, int]()
                for category, form in forms.items():
                    numbers[category] = len(self.blocks)
                    self.blocks.append(add_lines(SpanBuilder(True), form).finish())
                if known and "other" in forms:
                    categories = known | (forms.keys() & {"zero"})
                    ordered = filter(categories.__contains__, CATEGORIES)
                    other = numbers["other"]
                    numbers = {category: numbers.get(category, other) for category in ordered}
                self._units["strings", key] = numbers
        except (AttributeError, KeyError, TypeError):
            raise UserError("A string catalog must have `sourceLanguage` and `strings`.") from None

    def _read(self, key: str, unit: Any, source: str) -> tuple[str, dict[str, str]]:
        """Return whether a message is open, or why it is not, and its texts by the categories of
        plurals; one without plurals has the category `""`.
        """
        localizations = unit.get("localizations", {})
        original = localizations.get(source, {})
        variations = original.get("variations", {})
        forms = dict[str, str]()
        for category, form in variations.get("plural", {"": original}).items():
            forms[category] = form.get("stringUnit", {}).get("value") or key
        translation = json.dumps(localizations.get(self._language, {}))
        kind = OPEN
        if not unit.get("shouldTranslate", True):
            kind = "not to be translated"
        elif unit.get("extractionState") == "stale":
            kind = "obsolete"
        elif '"value": "' in translation and '"state": "new"' not in translation:
            kind = "with a translation"
        elif "substitutions" in original or "device" in variations:
            kind = "with variations"
        return kind if key.strip() else "", forms

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the catalog with translated blocks."""
        blocks = leave_open(self.blocks, blocks)
        edits, count = list[Edit](), 0
        for path, numbers in self._units.items():
            units = dict[str, Any]()
            for category, number in numbers.items():
                value = write_block(blocks[number], str, lambda mark, content: mark)
                units[category] = {"stringUnit": {"state": "needs_review", "value": value}}
            if any(blocks[number].is_open for number in numbers.values()):
                count += 1
            else:
                edits.append(self._edit(path, units.get("") or {"variations": {"plural": units}}))
        total = self._counts.total() - self._counts[""]
        done = f"Translated {self._counts[OPEN] - count} of {total} messages."
        self.summary = summarize(done, count if blocks else None, self._counts)
        return self._mark + self.splice(edits).replace("\n", self._line_end)

    def _edit(self, path: Path, localization: dict[str, Any]) -> Edit:
        """Return the edit that writes the localization of a message as Xcode does."""
        value: Any = {"localizations": {self._language: localization}}
        for name in ("localizations", self._language):
            if (*path, name) in self._entries:
                path, value = (*path, name), value[name]
        entry, margin = self._entries[path], "\n" + "  " * len(path)
        text = json.dumps(value, ensure_ascii=False, indent=2, separators=(",", " : "))
        if entry.is_empty or value is localization:
            return *entry.value, text.replace("\n", margin)
        # Without braces
        return entry.content, entry.content, "," + text[1:-2].replace("\n", margin)
