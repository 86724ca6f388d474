"""XML of known vocabularies and of any other one."""

import re
from abc import ABC
from collections.abc import Callable, Container, Sequence
from functools import partial
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vanilla_transformer.text.languages import NO_DIRECTION, Direction, plural_categories
from vanilla_transformer.text.protection import SIGN, Range
from vanilla_transformer.text.xml_tree import DECLARATION, local_name, parse_xml, translate_value

from .html_format import HtmlDocument
from .its_rules import find_its_rules
from .line_breaks import ITEM
from .message_keys import Entries, Entry, group_entries
from .paragraphs import Context, PageDocument, find_side
from .source_text import (
    CDATA,
    TEMPLATE,
    Edit,
    Place,
    Plural,
    SourceDocument,
    Token,
    read_tokens,
    unescape_xml,
)
from .vocabularies import HTML, VOCABULARIES, Vocabulary

if TYPE_CHECKING:
    from lxml.etree import _Element

_ENCODING = re.compile(r"encoding\s*=\s*[\"']([^\"']*)[\"']")
ENTITY = r"&(?!(?:amp|lt|gt|quot|apos);)[^\s#;&]+;"
# What no reader of HTML within XML sees, as HIDDEN of messages
_INNER = r"(?:[^<>&]++|&(?![lg]t;))*+"
_TAG_ENDS = r"(?:&gt;|>)"
HIDDEN = (
    rf"&lt;!--(?:[^-<&]++|-(?!-{_TAG_ENDS})|&(?!lt;!--))*+--{_TAG_ENDS}"
    rf"|&lt;![Dd][Oo][Cc][Tt][Yy][Pp][Ee]\s{_INNER}{_TAG_ENDS}"
) + "".join(
    rf"|&lt;{name}(?:\s{_INNER})?{_TAG_ENDS}(?:[^<&]++|&(?!lt;/?{name}\b))*+&lt;/{name}\s*+{_TAG_ENDS}"
    for name in ("script", "style")
)
XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_BREAKS = {"lb", "line-break", "linebreak", "tab"}
_MODE = "style:writing-mode"  # of OpenDocument
# Elements of DrawingML that say where lines begin
_DIRECTED = {"defPPr", "pPr", "tblPr", *(f"lvl{level}pPr" for level in range(1, 10))}
_LEVELS = {"yes": "inline", "no": "block", "nested": "nested"}  # of `withinText`
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--")
_PREFIX = re.compile(r"(?<![\w.-])[\w.-]++(?=:)")
_PARAGRAPH = re.compile(r"<p\b", re.IGNORECASE)
_SHORTCODES = rf"(?P<space>\[/?[a-z][\w-]*(?:\s[^\[\]]*)?\])|{TEMPLATE}"  # of WordPress
# https://developer.android.com/guide/topics/resources/string-resource
MARKUP = f"(?P<hidden>{HIDDEN})|(?P<kept>{ENTITY})"
# The mark of the letter that chooses an item of a menu
ACCESS_KEY_IN_XML = r"(?P<key>(?<![^\s(>\"])&amp;(?=[^\W\d_])(?!\w*[;=_(]))"
_ANDROID = (
    rf"{ACCESS_KEY_IN_XML}|(?P<kept>{ENTITY}|(?<!\w)[@?](?:\+?[\w.]+:)?[a-z]+/\w+|\\u[dD][89a-fA-F]..)|(?P<break>(?:(?<!\s)\s++)?\\n\s*+{ITEM}?|(?<![^>]){ITEM})"
    r"|(?P<space>\\t|\\u0020|\")|(?P<letter>\\(?:u[0-9a-fA-F]{4}|&\w+;|.))"
)


def _place_android(start: int, end: int, quote: str | None = None) -> Place:
    escapes = {character: f"\\{character}" for character in "'\"\\"}
    return Place(start, end, escapes, quote, _ANDROID)


class MarkupDocument(SourceDocument, ABC):
    """
    The text of a well-formed XML document, which names the encoding UTF-8 if it names one.

    Attributes:
        special: See [`Place`].
    """

    special = MARKUP

    def __init__(self, text: str):
        elements = parse_xml(text).getroot().iter("*")
        super().__init__(text, read_tokens(text), unescape_xml)
        self.spelling = partial(Place, special=self.special)
        opened = list[Token]()
        for index, token in enumerate(self.tokens):
            if token.kind == "close":
                opened.pop().after = index + 1
            elif token.kind == "open":
                token.after, token.element = index + 1, next(elements)
                opened += [] if token.is_empty else [token]
        kinds = [token.kind for token in self.tokens]
        self.root = kinds.index("open")
        declaration = DECLARATION.match(text)
        encoding = _ENCODING.search(declaration[0]) if declaration else None
        if encoding and encoding[1].lower() not in ("utf-8", "utf8"):
            self.replaced.append((*encoding.span(1), "UTF-8"))

    def read_children(
        self, key_of: Callable[[Any], str | None], holder: str | None = None
    ) -> Entries:
        """
        Return the elements in the root that are messages.

        Args:
            key_of: Returns the key of an element, or None if it is no message.
            holder: The element that has the value, if the message itself has not.
        """
        root, index = self.tokens[self.root], self.root + 1
        entries, start, last = Entries(), root.end, self.end(root)
        while index < last:
            token, first = self.tokens[index], index
            index = max(index + 1, token.after)
            if token.kind != "open":
                continue
            end, key = self.tokens[index - 1].end, key_of(token.element)
            if key is not None:
                names = [part.name for part in self.tokens[first:index]]
                first += names.index(holder) if holder in names else 0
                inner = self.tokens[first : self.tokens[first].after]
                texts = [self.text[part.start : part.end] for part in inner if not part.name]
                value = inner[0].start, inner[-1].end
                entries[(key,)] = Entry(start, end, value, not "".join(texts).strip(' \t\r\n"'))
            if token.name != "key":  # of the next element, in a property list
                start = end
        whole = group_entries(entries, self.text, start)
        whole[()].is_empty = not self.text[root.end : self.tokens[last - 1].end].strip()
        whole[()].value = root.start, self.tokens[root.after - 1].end
        return whole

    def add_plural(
        self, first: int, last: int, category: Range, categories: Sequence[str], forms: Container
    ) -> None:
        """
        Add a plural.

        Args:
            first, last: Numbers of the first token of the form `other`, and of the one after it.
            category: The place of the word `other` in that form.
            categories: Categories of the target language.
            forms: Categories that the plural has.
        """
        before = self.tokens[first - 1]
        space = self.text[before.start : before.end]
        if not space.isspace():
            space = ""
        missing = dict.fromkeys(name for name in categories if name not in forms)
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        self.plurals.append(Plural(start, end, category, space, missing))

    def declare(self, text: str, source: SourceDocument) -> list[Edit]:
        root, used, edits = self.tokens[self.root], {*_PREFIX.findall(text)}, list[Edit]()
        end = root.start + 1 + len(root.name)
        source_root = next(token for token in source.tokens if token.kind == "open")
        for prefix, name in source_root.element.nsmap.items():
            is_declared = prefix in root.element.nsmap or f"xmlns:{prefix}=" in text
            if prefix in used and not is_declared:
                edits.append((end, end, f' xmlns:{prefix}="{escape(name)}"'))
        return edits


class XmlDocument(MarkupDocument, PageDocument):
    """
    The blocks of an XML text.

    Its vocabulary and its rules of ITS 2.0 say which elements are paragraphs and which are not
    translated. In others, an element that has text is a paragraph, with the elements in it, but for
    those that are paragraphs elsewhere. Elements in another language than the root, comments,
    processing instructions and entities are not translated.

    Args:
        direction: The languages, as far as they are known. The language of the root is the source
            language unless that is given, and its attribute `xml:lang` becomes the target language.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        self._direction, root = direction, self.tokens[self.root].element
        elements = root.iter("*")
        self._vocabularies = {element: _find_vocabulary(element, root) for element in elements}
        self._rules = find_its_rules(root)
        self.turns = find_side(direction.target) not in ("", find_side(direction.source) or "ltr")
        self._texts, self._levels = set[Any](), dict[Any, str]()
        self._html_spelling: Callable[..., Place] = partial(Place, special=_SHORTCODES)
        self._find_levels()
        if self._vocabularies[root] is VOCABULARIES["resources"]:
            self.spelling = self._html_spelling = _place_android
            self.signs = SIGN
            self._find_plurals(plural_categories(direction.target))
        self.find_languages([self.tokens[self.root]], ("xml:lang",), direction)
        self.add_paragraphs()
        self.blocks += [block for *_, part in self.parts for block in part.blocks]

    def _find_levels(self) -> None:
        """Find the elements that have text, and the levels of those whose level does not depend on
        the ones around.

        An element is a block if it contains one, or if one of its name stands beside another
        element, on another line, in an element without text.
        """
        filled, beside = set[Any](), set[str]()
        elements = []
        for element in reversed(self._vocabularies):
            elements.append((element, [*element.iterchildren("*")]))
        for element, children in elements:
            tails = [child.tail or "" for child in element]
            text = "".join([element.text or "", *tails])
            if any(map(str.isalpha, text)):
                self._texts.add(element)
            else:
                pairs = [pair for pair in pairwise(children) if {*pair} <= filled]
                for pair in pairs:
                    if not pair[0].tail or "\n" in pair[0].tail:
                        beside |= {element.tag for element in pair}
            if element in self._texts or not filled.isdisjoint(children):
                filled.add(element)
        for element, children in elements:
            by_rule = self._rules["withinText"].get(element)
            within = element.get("{http://www.w3.org/2005/11/its}withinText", by_rule)
            vocabulary = self._vocabularies[element]
            level = _LEVELS.get(within) or vocabulary.level(local_name(element))
            levels = map(self._levels.get, children)
            has_blocks = level != "nested" and "block" in levels
            if has_blocks or (not level and element.tag in beside):
                level = "block"
            self._levels[element] = level

    def enter(self, index: int, around: Context) -> Context:
        token = self.tokens[index]
        element, vocabulary = token.element, self._vocabularies[token.element]
        by_text = "inline" if around.has_text and vocabulary is not HTML else "block"
        level = self._levels[element] or by_text
        value, rules = translate_value(element), self._rules["translate"]
        of_android = {"false": "no"}.get(element.get("translatable"))
        value = value or of_android or rules.get(element)
        attributes = vocabulary.attributes_of(token.local_name)
        for name in self.attributes(token):
            verdict = rules.get((element, name.rpartition(":")[2]))
            if verdict == "yes":
                attributes = attributes | {name}
            elif verdict == "no":
                attributes = attributes - {name}
        translate = {"yes": True, "no": False}.get(value or "")
        context = self.judge(token, around, vocabulary, level, translate, attributes)
        self._write_sides(token)
        if context.is_translated and self._add_html(index):
            context = context._replace(translates=False)
        space = element.get(XML_SPACE) or self._rules["space"].get(element)
        keeps_space = context.keeps_space if space is None else space == "preserve"
        has_text = context.has_text or element in self._texts
        return context._replace(keeps_space=keeps_space, has_text=has_text)

    def _write_sides(self, token: Token) -> None:
        """Write where lines begin, and for DrawingML also their alignment at that side."""
        if _MODE in self.attributes(token):
            self.write_side(token, _MODE, True, ("lr-tb", "rl-tb"))
        elif self.turns and token.local_name in _DIRECTED and "drawingml" in token.element.tag:
            self.write_side(token, "rtl", True, ("0", "1"))
            self.write_side(token, "algn", "algn" in self.attributes(token), ("l", "r"))

    def _find_plurals(self, categories: Sequence[str]) -> None:
        """Find the plurals of Android."""
        items = dict[str | None, int]()
        for index, token in enumerate(self.tokens):
            if token.kind == "open" and token.name == "plurals":
                items = {}
            elif token.kind == "open" and token.name == "item":
                items[token.element.get("quantity")] = index
            elif token.kind == "close" and token.name == "plurals" and "other" in items:
                other = self.tokens[items["other"]]
                quantity = self.attributes(other)["quantity"]
                category = quantity.start + 1, quantity.end - 1
                self.add_plural(items["other"], other.after, category, categories, items)

    def _add_html(self, index: int) -> bool:
        """Translate the HTML that is the text of an element.

        Return whether the text is no text of XML.
        """
        token = self.tokens[index]
        vocabulary = self._vocabularies[token.element]
        inner = []
        if len(token.element) == 0:
            inner = self.tokens[index + 1 : token.after - 1]
        pieces = [token for token in inner if not self.is_blank(token)]
        if len(pieces) != 1:
            # Its tags may be in several sections.
            return vocabulary.has_html and len(pieces) > 1
        start, end = pieces[0].start, pieces[0].end
        if section := CDATA.fullmatch(self.text, start, end):
            start, end = section.span(1)
        text = self.text[start:end] if section else self.read(self.text[start:end])
        if bool(_TAG.search(text)) + bool(section) + vocabulary.has_html < 2:
            return False
        has_lines = vocabulary is VOCABULARIES["rss"] and not _PARAGRAPH.search(text)
        part = HtmlDocument(text, self._direction, self._html_spelling, has_lines)
        escaped = str if section else partial(escape, quote=False)
        self.parts.append((start, end, escaped, part))
        return True

    def role_of(self, token: Token) -> str:
        has_content = not (token.is_empty or self.text.startswith("</", token.end))
        is_named = token.local_name in _BREAKS and not self._levels[token.element]
        is_break = is_named or token.local_name == "br"
        is_alone = is_break and not has_content
        return "break" if is_alone and token.role == "inline" else token.role

    def read_entries(self) -> Entries:
        if self.signs is None:
            return super().read_entries()
        return self.read_children(_find_android_key)


def _find_android_key(element: "_Element") -> str | None:
    """Return the kind and the name of a string of Android that is translated, or None."""
    is_fixed = element.get("translatable") == "false"
    if is_fixed or element.tag not in ("string", "plurals", "string-array"):
        return None
    return "/".join(filter(None, (element.tag, element.get("name"), element.get("product"))))


def _find_vocabulary(element: "_Element", root: "_Element") -> Vocabulary:
    """Return the vocabulary of the namespace of an element, or else the one of a root without a
    namespace.
    """
    namespace = element.tag.rpartition("}")[0].removeprefix("{")
    return VOCABULARIES.get(namespace) or VOCABULARIES.get(root.tag) or VOCABULARIES["*"]
