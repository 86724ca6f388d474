"""Messages in one language, translated where they are in a text: JSON, ARB, .strings, .properties,
Fluent and RESX.
"""

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import regex

from vanilla_transformer.data.readers.gettext_catalogs import (
    ACCESS_KEY,
    MESSAGE_FORMAT,
    RESX_TEXTS,
    strings_of,
    uses_access_keys,
)
from vanilla_transformer.decoding.protection.blocks import (
    Block,
    SpanBuilder,
    unify_line_ends,
    write_block,
)
from vanilla_transformer.decoding.protection.icu_messages import complete_plurals
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import has_invalid_unicode
from vanilla_transformer.text.languages import (
    CATEGORIES,
    NO_DIRECTION,
    Direction,
    name_language,
    plural_categories,
)
from vanilla_transformer.text.protection import SIGN

from .line_breaks import ITEM, find_space
from .message_keys import Entries, Entry, group_entries, read_json_entries
from .source_text import Place, Plural, SourceDocument
from .wrapped_text import WrappedText
from .xml_format import ACCESS_KEY_IN_XML, MARKUP, MarkupDocument

# Looked for once in a run of spaces, and before an item of a list
LINE_BREAK = rf"(?<!\s)(?:\A\s++{ITEM}?|\A{ITEM}|[^\S\n]*+\n\s*+{ITEM}?|\s++\Z)"
_MARKS = rf"{LINE_BREAK}|{ACCESS_KEY}"
_STRING = r'"(?:[^"\\]|\\.)*+"'
VALUES = {  # each value, with its quotation marks, after its key
    "json": re.compile(
        rf"(?P<key>{_STRING})\s*:|(?P<value>{_STRING})|[{{}}\[\],]|[^\s{{}}\[\],\"]++", re.DOTALL
    ),
    "strings": re.compile(
        rf"\s+|/\*.*?\*/|//[^\n]*|(?P<pair>(?P<key>{_STRING}|[\w.$/-]+)\s*"
        rf"(?:=\s*(?P<value>{_STRING}|[\w.$/-]+)\s*)?;)"
        r"(?:[ \t]*+(?://[^\n]*+|/\*[^\n]*?\*/)(?=\n|\Z))?|(?P<mistake>.)",
        re.DOTALL,
    ),
    "properties": re.compile(
        r"\n[ \t\f]*+\n|^[ \t\f]*+(?:[#!].*+|(?P<pair>(?P<key>(?:\\.|[^\\\s:=])++)"
        r"(?:[ \t\f]*+[:=][ \t\f]*+|[ \t\f]++|$)(?P<value>(?:\\(?s:.)|[^\\\n])*+)))$",
        re.MULTILINE,
    ),
}
_SIGN = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<sign>[^\w\n]))")
_ESCAPE = re.compile(r'\\\n[ \t\f]*|\\(?P<letter>.)|"')


def add_lines(builder: SpanBuilder, text: str, marks: str = LINE_BREAK) -> SpanBuilder:
    """Add a text with marks in it, around which lines are translated apart but at accelerators and
    where a line was full.

    Comments, scripts and so on are marks, too. A tag over several lines is text of one line.
    """
    from vanilla_transformer.decoding.protection.inline_markup import HIDDEN

    end, wraps = 0, WrappedText(text).find_wraps()
    pattern = rf"(?P<hidden>{HIDDEN})|(?P<tag></?[A-Za-z][^<>]*+>)|{marks}"
    for match in regex.finditer(pattern, text):
        if match["tag"]:
            continue
        builder.add_text(text[end : match.start()])
        start, end = match.span()
        if not match["hidden"] and text.find("\n", start, end) in wraps:
            builder.add_wrap(match[0], find_space(text, 0, start, text[end : end + 1]))
        else:
            builder.add_mark(match[0], breaks=bool(match["hidden"]) or match[0][-1].isspace())
    builder.add_text(text[end:])
    return builder


def load_json(text: str) -> Any:
    """Return the value of JSON, in which integers are texts."""
    try:
        # int() takes no more than 4,300 digits.
        return json.loads(text, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise UserError(f"The text must be JSON: {error}.") from None


class MessageDocument(SourceDocument):
    """
    A text of which messages are translated, and all else is written as it was.

    Args:
        keeps_line_ends: Whether each line ends as in the source, and not as most lines do.
    """

    signs: regex.Pattern[str] | None = SIGN
    characters: dict[int, str] = {}  # how characters between marks are written

    def __init__(self, text: str, keeps_line_ends: bool = False):
        self._mark, self._line_end = "", "\n"
        if not keeps_line_ends:
            self._mark, self._line_end, text = unify_line_ends(text)
        super().__init__(text, ())

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        return self._mark + super().render(blocks).replace("\n", self._line_end)

    def write(self, place: Place, source: Block, block: Block) -> str:
        """Return a translated block, of which a mark is a text, or a place that is written as it
        is.
        """

        def write_mark(mark: Any, content: str | None) -> str:
            return mark if isinstance(mark, str) else self.slice(*mark)

        written = write_block(block, lambda text: text.translate(self.characters), write_mark)
        return self.escape(written, place)

    def error(self, form: str, at: int) -> UserError:
        """Return the error for a text that is not of its format from a place on."""
        number = self.text.count("\n", 0, at) + 1
        line = self.text.split("\n")[number - 1].strip()
        return UserError(
            f"The text must be in the format {form}, but line {number} is not: {line[:60]}"
        )

    def escape(self, text: str, place: Place) -> str:
        """Return a message as it is written at its place."""
        return text


class ValuesDocument(MessageDocument):
    """
    The values of a text of pairs, but of JSON those in keys that begin with `@`, as in ARB, and
    in messages of Chrome those that are no `message`.

    Args:
        direction: `@@locale` becomes the target language, if it is known.
        form: json, strings or properties.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION, form: str = "json"):
        super().__init__(text)
        self._form, keys = form, [""]
        self.separator = "," if form == "json" else ""
        matches = VALUES[form].finditer(self.text) if form == "properties" else ()
        values = [match["value"] or "" for match in matches]
        formats = "".join(filter(MESSAGE_FORMAT.search, values))
        # As Java reads them, unless all of the file has single ones
        has_doubled = "''" in formats or "'" not in formats
        self._doubles_apostrophes = form == "properties" and has_doubled
        has_keys, is_chrome = uses_access_keys(self.text), False
        if form == "json":
            is_chrome = _are_of_chrome(load_json(self.text))
        for match in VALUES[form].finditer(self.text):
            value = match["value"]
            if match.lastgroup == "mistake":
                raise self.error(form, match.start())
            if match[0] in ("{", "}"):
                keys = [*keys, ""] if match[0] == "{" else keys[:-1]
            elif form == "json" and match["key"] is not None:
                keys[-1] = json.loads(match["key"])
            elif is_chrome and (value is None or keys[2:] != ["message"]):
                continue
            elif value is not None and not any(key.startswith("@") for key in keys):
                message = self._read(value, match.start("value"))
                if has_keys:
                    (message,) = strings_of(message, has_keys)
                # Such as half an emoji, which no model reads.
                if not has_invalid_unicode(message):
                    builder = add_lines(SpanBuilder(keeps_space=True), message, _MARKS)
                    self._add_block(builder, Place(*match.span("value")))
            elif keys[-1] == "@@locale" and value and direction.target:
                language = name_language(direction.target).replace("-", "_")
                self.replaced.append((*match.span(), f'"{language}"'))
        self._categories = dict[str, list[str]]()
        if form == "json" and direction.target:
            ordinals = plural_categories(direction.target, is_ordinal=True)
            plurals = plural_categories(direction.target)
            self._categories = {"plural": plurals, "selectordinal": ordinals}
        if self._categories and self.text.lstrip().startswith("{"):
            self._find_plurals()

    def _find_plurals(self) -> None:
        """Find plurals of i18next, whose forms are messages."""
        entries = self.read_entries()
        for path, entry in entries.items():
            if not path or not path[-1].endswith("_other") or entry.is_group:
                continue
            name = path[-1].removesuffix("other")
            forms = {category: (*path[:-1], name + category) for category in CATEGORIES}
            if len(entries.keys() & {*forms.values()}) > 1:
                kind = "selectordinal" if name.endswith("_ordinal_") else "plural"
                new = self._categories[kind]
                missing = dict[str, tuple[str, ...]]()
                for form in new:
                    if forms[form] not in entries:
                        missing[form] = forms[form]
                start = self.text.index('"', entry.start)
                end = self.text.rindex('"', start, entry.value[0])
                separator = "," + self.text[entry.start : start].removeprefix(",")
                category = end - len("other"), end
                self.plurals.append(Plural(start, entry.end, category, separator, missing))

    def escape(self, text: str, place: Place) -> str:
        raw, is_java = self.text[place.start : place.end], self._form == "properties"
        text = complete_plurals(text, self._categories)
        in_ascii = self.sample.isascii() and (is_java or "\\u" in self.sample)
        if self._doubles_apostrophes and MESSAGE_FORMAT.search(raw):
            text = text.replace("'", "''")
        bare, escapes = {*_SIGN.sub("", raw)}, {'"': '"' if is_java else '\\"'}
        for match in _SIGN.finditer(raw):
            character = match["sign"] or chr(int(match["code"], 16))
            if character not in bare:  # or the value would have it in two ways
                escapes[character] = match[0]
        pieces = re.split(f"([{re.escape(''.join(escapes))}])", text)
        written = ""
        for piece in pieces:
            written += escapes.get(piece) or json.dumps(piece, ensure_ascii=in_ascii)[1:-1]
        return re.sub(r"\A(?= )", r"\\", written) if is_java else f'"{written}"'

    def _read(self, raw: str, start: int) -> str:
        """Return the text of a value."""

        def write_json(match: re.Match) -> str:
            letter = match["letter"]
            if letter is None:
                return '\\"' if match[0] == '"' else ""
            if letter in 'nrtfbu"\\':
                return match[0]
            return "\\u" if letter == "U" else letter

        quote = '"' * raw.startswith('"') * (self._form != "properties")
        inner = _ESCAPE.sub(write_json, raw[len(quote) : len(raw) - len(quote)])
        try:
            text = json.loads(f'"{inner}"', strict=False)
        except ValueError:
            raise self.error(self._form, start) from None
        is_doubled = self._doubles_apostrophes and MESSAGE_FORMAT.search(raw)
        return text.replace("''", "'") if is_doubled else text

    def read_entries(self) -> Entries:
        if self._form == "json":
            return read_json_entries(self.text, VALUES["json"])
        entries, start = Entries(), 0
        for match in VALUES[self._form].finditer(self.text):
            if match["key"] is not None:
                key, value = self._read(match["key"], match.start("key")), match["value"]
                is_empty = value is not None and not value.strip('" ')
                pair = match.span("pair")
                entries[(key,)] = Entry(start, pair[1], pair, is_empty)
                start = match.end()
            elif not entries and match[0].count("\n") > 1:
                start = match.start()  # after the comment about the file
        end = start if entries else len(self.text.rstrip())
        return group_entries(entries, self.text, end)


def _are_of_chrome(messages: object) -> bool:
    """Return whether the content of a JSON file is messages of an extension of Chrome."""
    return (
        isinstance(messages, dict)
        and bool(messages)
        and all(isinstance(value, dict) and "message" in value for value in messages.values())
    )


class FluentDocument(MessageDocument):
    """The values, attributes and variants of the messages of a Fluent text, and of its terms but
    `-brand-…`.
    """

    # But no braces, which are written as text.
    signs = regex.compile(r"[%<>$&]|\s{2,}+")
    characters = str.maketrans({brace: f'{{"{brace}"}}' for brace in "{}"})

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        from fluent.syntax import FluentParser, ast, visitor

        document = self

        class Patterns(visitor.Visitor):
            def visit_Junk(self, junk: Any) -> None:
                raise document.error("fluent", junk.annotations[0].span.start)

            def visit_Term(self, term: Any) -> None:
                if not term.id.name.startswith("brand"):
                    self.generic_visit(term)

            def visit_Pattern(self, pattern: Any) -> None:
                self.generic_visit(pattern)
                builder = SpanBuilder()
                for element in pattern.elements:
                    mark = element.span.start, element.span.end
                    if isinstance(element, ast.TextElement):
                        value = element.value.replace("\n\n", "\n\n    ")
                        add_lines(builder, value, r"\n\n+ *")
                    else:
                        is_choice = isinstance(element.expression, ast.SelectExpression)
                        content = "" if is_choice else document.text[slice(*mark)]
                        builder.add_mark(mark, content)
                first, last = pattern.elements[0], pattern.elements[-1]
                place = Place(first.span.start, last.span.end)
                document._add_block(builder, place)

        self._resource: Any = FluentParser().parse(self.text)
        Patterns().visit(self._resource)

    def read_entries(self) -> Entries:
        entries, end = Entries(), 0
        for part in self._resource.body:
            start, end = end, part.span.end
            if not hasattr(part, "attributes"):  # a comment
                continue
            key = self.text[max(0, part.id.span.start - 1) : part.id.span.end].strip()
            entry = entries[(key,)] = Entry(start, end, (start, end), False)
            entry.content = self.text.index("=", part.id.span.end) + 1
            if part.value is not None:
                entry.content = part.value.span.end
            last = entry.content
            for attribute in part.attributes:
                start, last = last, attribute.span.end
                entries[key, attribute.id.name] = Entry(start, last, (start, last), False)
        return group_entries(entries, self.text, end)


class ResxDocument(MarkupDocument):
    """The texts of a RESX file of .NET, but not its files and the names of controls."""

    signs = SIGN

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        self.spelling = partial(Place, special=rf"{ACCESS_KEY_IN_XML}|{MARKUP}")
        root = self.tokens[self.root].element
        if root.tag != "root":
            raise UserError(f"The root element must be <root>, got <{root.tag}>.")
        values = {*root.xpath(f"{RESX_TEXTS}/value")}
        for index, token in enumerate(self.tokens):
            if token.kind == "open" and token.element in values:
                self.add_run(index + 1, self.end(token), keeps_space=True)

    def read_entries(self) -> Entries:
        texts = {*self.tokens[self.root].element.xpath(RESX_TEXTS)}
        return self.read_children(
            lambda element: element.get("name") if element in texts else None, "value"
        )
