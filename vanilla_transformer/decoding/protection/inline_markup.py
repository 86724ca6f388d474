"""Markup, entities and escapes in plain text: the model reads words, and translations are written
as the text was.
"""

from collections.abc import Callable, Collection, Sequence
from html import unescape
from itertools import pairwise

import regex

from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.token_texts import move_tokens
from vanilla_transformer.decoding.translations import Link, Translation, copy_sentence, join_pieces
from vanilla_transformer.text.protection import CODE_ELEMENT, Range, adds_signs

from .block_joining import find_breaks, join_block
from .blocks import LINKS, SpanBuilder, write_block

_WORDS = regex.compile(r"\S(?s:.*\S)?")
# What no reader sees, of which each ends before the next one begins
HIDDEN = (
    r"<!--(?:[^-<]++|-(?!->)|<(?!!--))*+-->|<![Dd][Oo][Cc][Tt][Yy][Pp][Ee]\s[^<>]*+>|<\?xml\s[^<>]*+>"
    + "".join(
        rf"|<{name}(?:\s[^<>]*+)?>(?:[^<]++|<(?!/?{name}\b))*+</{name}\s*+>"
        for name in ("script", "style")
    )
)
# This, escapes of white space and tags of blocks, which part text; and other tags. C:\new and
# \textbf{} have none.
_TOKEN = regex.compile(
    r"(?:(?<!\\|\b[A-Za-z]:\\?\S{0,99})\\(?:[nrtN](?![a-z]+\{)|u00(?:0[aA]|20|[aA]0))"
    rf"|</?(?:br|div|h[1-6r]|li|[ou]l|p|t[dhr])(?:\s[^<>]*+)?/?>|<(?:body|html|meta|table)\s[^<>]*+>|{HIDDEN})++"
    rf"|(?P<code>{CODE_ELEMENT})"
    r"|<(?P<end>/?)(?P<name>[A-Za-z][\w:.-]*+)(?:\s[^<>]*+)?>"
    r"|&lt;(?P<end>/?)(?P<name>[A-Za-z][\w:.-]*+)(?:\s(?:[^<>&]++|&(?![lg]t;))*+)?&gt;"
)
_CHARACTER = regex.compile(
    r"&(?:amp;)*(#\d{1,7}|#[xX]\p{AHex}{1,6}|[A-Za-z]+\d*);|\\(u\p{AHex}{4}|[\"'])"
)
_DEEPEST = 99
_MARKUP = regex.compile(r"[<>&]")


class MarkedText:
    """
    A text as a block whose spans are its paired tags.

    Args:
        tokens: Its breaks, each with None, and its paired tags, each with the one that opens.
    """

    def __init__(
        self, text: str, tokens: Sequence[tuple[regex.Match[str], regex.Match[str] | None]]
    ):
        outside, end = list[str](), 0
        for mark, _ in tokens:
            outside.append(text[end : mark.start()])
            end = mark.end()
        outside.append(text[end:])
        self._bare = {*_CHARACTER.sub("", "".join(outside))}
        self._written = dict[str, str]()
        self._length = len(text)
        builder = SpanBuilder(keeps_space=True)
        ended = [*tokens, (None, None)]
        for (token, opening), before in zip(ended, outside, strict=True):
            builder.add_text(_CHARACTER.sub(self._read, before))
            if token and not opening:
                builder.add_mark([token[0], ""], breaks=True)
            elif token is opening and token:
                builder.open(token, [token[0]], is_apart=token["name"] in LINKS)
            elif span := builder.close(opening):
                span.payload.append(token[0])
        self._block = builder.finish()
        borders = [0, *find_breaks(self._block), len(self._block.text)]
        self._parts = list[tuple[int, Sentence]]()
        for low, high in pairwise(borders):
            match = _WORDS.search(self._block.text, low, high)
            if match:
                self._parts.append((match.start(), Sentence(match[0], "", ())))
        self._parts = self._parts or [(0, Sentence("", "", ()))]
        self.is_plain = not (tokens or self._written)

    def _read(self, match: regex.Match[str]) -> str:
        """Return the letter, quotation mark, & < or > that is written so, unless the text has it as
        it is, too.
        """
        name, code = match.groups()
        character = code
        if name:
            character = unescape(f"&{name};")
        elif code[1:]:
            character = chr(int(code[1:], 16))
        if len(character) != 1 or character in self._bare:
            return match[0]
        if not (character.isalpha() or character in "'\"&<>"):
            return match[0]
        self._written[character] = match[0]
        return character

    def messages(self) -> list[Sentence]:
        """Return what the model reads: the text between breaks."""
        return [part for _, part in self._parts]

    def join(self, translations: Sequence[Translation]) -> Translation:
        """Return the translation of the text, given the ones of [`messages`], linked as a whole,
        without scores.
        """
        sentences = list[tuple[int, Sentence, Translation]]()
        for (start, part), translation in zip(self._parts, translations, strict=True):
            kept = list[Range]()
            for link in translation.alignment:
                source_text = part.text[link.source_start : link.source_end]
                target_text = translation.text[link.target_start : link.target_end]
                if link.weight == 1 and source_text == target_text:
                    kept.append(link[:2])
            sentences.append((start, part._replace(kept=kept), translation))
        pieces = [(start, part.text, translation) for start, part, translation in sentences]
        joined = join_pieces(self._block.text, pieces)
        block = join_block(self._block, sentences)
        is_open = block is not None and adds_signs(self._block.text, block.text, _MARKUP)
        if block is None or is_open:
            block = self._block
            joined = copy_sentence(block.text, joined.tokens)

        def write(written: dict[str, str], write_tag: Callable[[str], str]) -> str:
            table = str.maketrans(written)

            def write_span(tags: Sequence[str], content: str | None) -> str:
                return (content or "").join(map(write_tag, tags))

            return write_block(block, lambda text: text.translate(table), write_span)

        # The text with white space for tags, as wide as it is written
        widened = {}
        for character, name in self._written.items():
            widened[character] = character.rjust(len(name))
        shown = write(widened, lambda tag: " " * len(tag))
        text = write(self._written, str)
        links = [Link(0, self._length, 0, len(text), 1.0)]
        tokens = move_tokens(joined.tokens, joined.text, shown)
        return Translation(text, tokens=tokens, alignment=links, is_open=is_open)


def parse_markup(text: str, marks: Collection[str] = ()) -> MarkedText | None:
    """Return a text with markup, or None if it has none.

    The model's own tokens, which are marks, are none.
    """
    if not regex.search(r"[<&\\]", text):
        return None
    tokens = list[tuple[regex.Match[str], regex.Match[str] | None]]()
    opened = list[regex.Match[str]]()
    for token in _TOKEN.finditer(text):
        if token["code"]:
            continue  # which survives as it is
        at = -1
        for number, opening in enumerate(opened):
            if token["end"] and opening["name"] == token["name"]:
                at = number
        if not token["name"]:
            tokens.append((token, None))
        elif at >= 0:
            opening = opened[at]
            tokens += [(opening, opening), (token, opening)]
            del opened[at:]
        elif not token["end"] and token[0] not in marks and len(opened) < _DEEPEST:
            opened.append(token)
    marked = MarkedText(text, sorted(tokens, key=lambda item: item[0].start()))
    return None if marked.is_plain else marked
