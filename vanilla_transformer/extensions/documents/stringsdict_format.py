"""Plurals of Apple's programs: .stringsdict."""

from typing import TYPE_CHECKING

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, plural_categories
from vanilla_transformer.text.protection import SIGN, Range

from .message_keys import Entries
from .xml_format import MarkupDocument

if TYPE_CHECKING:
    from lxml.etree import _Element

_TYPE, _VALUE_TYPE = "NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey"
_PLURAL_TYPE = "NSStringPluralRuleType"


class StringsDictDocument(MarkupDocument):
    """The texts of a property list of plurals, but not its keys and types."""

    signs = SIGN

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        opened = list[int]()
        for index, token in enumerate(self.tokens):
            if token.kind == "open":
                opened.append(index)
            if len(opened) == 2:
                break
        names = [self.tokens[index].name for index in opened]
        if names != ["plist", "dict"]:
            raise UserError("A property list must be a <dict> in <plist>.")
        self.root = opened[1]
        categories = plural_categories(direction.target)
        # The key before a text, and the texts and the type of the variable that they are of
        key, texts, kind = 0, dict[str, Range](), ""
        for index, token in enumerate(self.tokens):
            if token.name == "dict":
                if token.kind == "close" and kind == _PLURAL_TYPE and "other" in texts:
                    first, last = texts["other"]
                    start = self.text.index("other", self.tokens[first].end)
                    category = start, start + len("other")
                    self.add_plural(first, last, category, categories, texts)
                texts, kind = {}, ""
            elif token.kind == "open" and token.name == "key":
                key = index
            elif token.kind == "open" and token.name == "string":
                name = self.text_of(key, self.tokens[key].after)
                texts[name] = key, token.after
                if name == _TYPE:
                    kind = self.text_of(index, token.after)
                elif name != _VALUE_TYPE:
                    self.add_run(index + 1, self.end(token), keeps_space=True)

    def read_entries(self) -> Entries:
        return self.read_children(_find_key)


def _find_key(element: "_Element") -> str | None:
    """Return the key of an element that is a value, or None."""
    key = element.getprevious()
    return None if key is None or key.tag != "key" else key.text
