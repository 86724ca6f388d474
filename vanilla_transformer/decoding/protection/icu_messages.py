"""Messages of ICU, such as `{count, plural, one {# file} other {# files}}`, whose branches are
texts themselves.
"""

from collections.abc import Iterator, Mapping, Sequence

import regex

from vanilla_transformer.decoding.token_texts import Token, move_tokens
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.text.protection import Range

_CHOICE = regex.compile(
    r"\{\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset:\s*\d+\s*)?"
)
_BRANCH = regex.compile(r"\s*(?:=\d+|[\w-]+)\s*\{")
_NAME = regex.compile(r"(?r)(=\d+|[\w-]+)\s*\{\Z")  # of a branch
_END = regex.compile(r"\s*\}")
_QUOTED = regex.compile(r"'[{}#](?:[^']|'')*(?:'|$)")
_STAND_IN = regex.compile(r"\{(\d+)\}")
_MOST_DEPTH = 6


class _UnknownSyntaxError(ValueError):
    """Raised where something else follows than in a message of ICU."""


class Message:
    """
    A message, or a branch of one.

    Attributes:
        text: Its text, with `{0}`, `{1}` and so on instead of arguments, quotations and `#`.
        syntax: Their parts: syntax that stays, and branches.
        spaces: The white space before and after the text.
        moved: Place of each part of the syntax: in `text`, and in the text that was parsed.
        doubles: Whether the whole message doubles apostrophes also where it need not.

    Args:
        is_plural: Whether `#` is syntax.
        is_branch: Whether syntax follows.
    """

    doubles = False

    def __init__(
        self,
        text: str,
        syntax: Sequence[list["str | Message"]],
        places: Sequence[Range],
        is_plural: bool,
        is_branch: bool,
    ):
        self.text, self.syntax, self._is_branch = text.strip(), syntax, is_branch
        self._special = "{}#" if is_plural else "{}"
        shown = (match.span() for match in _STAND_IN.finditer(self.text))
        self.moved = [*zip(shown, places, strict=True)]
        self.spaces = text, ""
        if self.text:
            start, _, end = text.partition(self.text)
            self.spaces = start, end

    def messages(self) -> Iterator["Message"]:
        """Yield the message and its branches, with the branches of these."""
        yield self
        for parts in self.syntax:
            for part in parts:
                if isinstance(part, Message):
                    yield from part.messages()

    def render(
        self, translations: Iterator[Translation]
    ) -> tuple[Translation, list[tuple[Range, Range]]]:
        """Return the message with translations, in the order of [`messages`], and where its syntax
        is.

        Returns: the message, without scores; and the place of each part of the syntax in the first
        one and in it.
        """
        message = next(translations)
        syntax = [self._render_parts(parts, translations) for parts in self.syntax]
        # Without syntax, braces are the model's own.
        stand_ins = _STAND_IN.finditer(message.text) if syntax else ()
        text, end = self.spaces[0], 0
        moved: list[tuple[Range, Range]] = []
        tokens: list[Token] = []
        for match in stand_ins:
            text += self._quote(message.text[end : match.start()], text, True)
            end, start = match.end(), len(text)
            for part in syntax[int(match[1])]:
                before = len(text)
                tokens += [token._replace(end=token.end + before) for token in part.tokens]
                text += part.text
            moved.append((match.span(), (start, len(text))))
        is_before_syntax = self._is_branch and not self.spaces[1]
        text += self._quote(message.text[end:], text, is_before_syntax) + self.spaces[1]
        # Some apostrophes are new.
        blank_message, blank_text = message.text.replace("'", " "), text.replace("'", " ")
        tokens += move_tokens(message.tokens, blank_message, blank_text, moved)
        tokens.sort(key=lambda token: token.end)
        return Translation(text, tokens=tokens), moved

    def _render_parts(
        self, parts: "Sequence[str | Message]", translations: Iterator[Translation]
    ) -> list[Translation]:
        rendered = []
        for part in parts:
            if isinstance(part, str):
                rendered.append(Translation(part))
            else:
                rendered.append(part.render(translations)[0])
        return rendered

    def _quote(self, text: str, before: str, is_before_syntax: bool) -> str:
        """Return a text as a message writes it: one apostrophe beside syntax or another one would
        begin a quotation.
        """
        start = r"|\A" if before.endswith("'") else ""
        end = r"|\Z" if is_before_syntax else ""
        beside = rf"(?<=[{self._special}]{start})'|'(?=['{self._special}]{end})"
        text = regex.sub("'" if self.doubles else beside, "''", text)
        return regex.sub(f"[{self._special}]++", r"'\g<0>'", text)


def parse_message(text: str) -> Message | None:
    """Return a message, or None for a text without branches or whose braces do not match."""
    if not _CHOICE.search(text):
        return None
    try:
        message, _ = _read_message(text, 0, False, 0)
    except _UnknownSyntaxError:
        return None
    messages = [*message.messages()]
    for part in messages:
        part.doubles = "''" in text
    return message if len(messages) > 1 else None


def complete_plurals(text: str, categories: Mapping[str, Sequence[str]]) -> str:
    """
    Return a message whose plurals have all categories of a language: new ones are as `other`.

    Plurals within plurals stay as they are, since each would double the message.

    Args:
        categories: Categories of `plural` and `selectordinal`.
    """
    message = parse_message(text) if categories else None
    if message is None or not _add_categories(message, categories):
        return text
    translations = list[Translation]()
    for part in message.messages():
        translations.append(Translation(part.text))
    return message.render(iter(translations))[0].text


def _add_categories(message: Message, categories: Mapping[str, Sequence[str]]) -> bool:
    """Add categories to the plurals of a message. Return whether any was missing."""
    is_changed = False
    for parts in message.syntax:
        choice = _CHOICE.match(str(parts[0]))
        kind = choice[1] if choice else ""
        if kind == "select":
            for branch in parts:
                is_changed |= isinstance(branch, Message) and _add_categories(branch, categories)
        numbers = dict[str, int]()
        for number, part in enumerate(parts[:-1:2]):
            name = _NAME.search(str(part))
            if name:
                numbers[name[1]] = number
        missing = [name for name in categories.get(kind, ()) if name not in numbers]
        if "other" in numbers and missing:
            at = 2 * numbers["other"]
            opening, _, end = str(parts[at]).rpartition("other")
            branches = list[str | Message]()
            for category in missing:
                branches += [opening + category + end, parts[at + 1]]
                if at == 0:  # it opens the plural
                    opening = "} "
            parts[at : at + 1] = [*branches, opening + "other" + end]
            is_changed = True
    return is_changed


def _read_message(text: str, at: int, is_plural: bool, depth: int) -> tuple[Message, int]:
    """Return the message at a place, and where it ends: before a closing brace if it is a
    branch.
    """
    shown, places = list[str](), list[Range]()
    syntax = list[list[str | Message]]()
    while at < len(text) and not (depth and text[at] == "}"):
        start, parts = at, list[str | Message]()
        quoted = _QUOTED.match(text, at)
        if text.startswith("''", at):
            shown.append("'")
            at += 2
        elif quoted and (is_plural or text[at + 1] != "#"):
            parts, at = [quoted[0]], quoted.end()
        elif text[at] == "{":
            parts, at = _read_argument(text, at, is_plural, depth)
        elif text[at] == "#" and is_plural:
            parts, at = ["#"], at + 1
        elif text[at] == "}":
            raise _UnknownSyntaxError
        else:
            shown.append(text[at])
            at += 1
        if parts:
            shown.append(f"{{{len(syntax)}}}")
            syntax.append(parts)
            places.append((start, at))
    return Message("".join(shown), syntax, places, is_plural, bool(depth)), at


def _read_argument(
    text: str, at: int, is_plural: bool, depth: int
) -> tuple[list["str | Message"], int]:
    """Return the parts of the argument at a place and its end.

    One of an unknown kind is one part.
    """
    choice = _CHOICE.match(text, at)
    if choice and depth < _MOST_DEPTH:
        has_number = is_plural or choice[1] != "select"
        try:
            return _read_branches(text, at, choice, has_number, depth)
        except _UnknownSyntaxError:
            pass
    end, open_braces = at, 0
    while end == at or open_braces:
        if end >= len(text):
            raise _UnknownSyntaxError
        quoted = _QUOTED.match(text, end)
        if quoted:
            end = quoted.end()
            continue
        open_braces += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return [text[at:end]], end


def _read_branches(
    text: str, at: int, choice: regex.Match[str], is_plural: bool, depth: int
) -> tuple[list["str | Message"], int]:
    parts = list[str | Message]()
    start, end = at, choice.end()
    while branch := _BRANCH.match(text, end):
        message, end = _read_message(text, branch.end(), is_plural, depth + 1)
        if not text.startswith("}", end):
            raise _UnknownSyntaxError
        parts += [text[start : branch.end()], message]
        start, end = end, end + 1
    closing = _END.match(text, end)
    if not closing or not parts:
        raise _UnknownSyntaxError
    return [*parts, text[start : closing.end()]], closing.end()
