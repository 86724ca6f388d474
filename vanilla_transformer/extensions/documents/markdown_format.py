"""Markdown: CommonMark with tables, strikethrough, task lists, footnotes, alerts and front matter."""

import html
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from types import SimpleNamespace
from typing import Any, NamedTuple

import yaml

from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.utils.import_utils import requires_extra

from .blocks import Block, Document, Span, SpanBuilder, unify_line_ends, write_block

_SPECIAL = re.compile(
    r"[\\`*\[\]$]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|~(?=~)|(?<=~)~|\{(?=[{%:#./])"
)
_LINE_START = re.compile(
    r"^(\s*)(#{1,6}(?=\s|$)|[-+](?=\s|$)|>|=+\s*$|-[-\s]+$|:?-+:?\s*$|~~~|[:~](?=\s)|:::|!!!|\?\?\?)"
)
_NUMBERED = re.compile(r"^(\s*\d{1,9})([.)])(?=\s|$)")
_HTML_NAMES = {"em": "em", "strong": "strong", "s": "del", "link": "a"}
_UNESCAPED = re.compile(r"[^\w\s]|_")
_HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^<>]*?(/?)>")
_FIRST_MARK = re.compile(r"\[[ xX]\](?=\s)|\[!\w+\][-+]?(?=\s|$)")  # of a task or an alert
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_FRONT = re.compile(r"(---|\+\+\+)[ \t]*\n(?=\S)(?:.*\n)*?\1[ \t]*(?:\n|\Z)")
_FRONT_VALUE = re.compile(r"(?:title|description)\s*[:=]\s*\S")
# Lengths are limited so that marks without an end take no quadratic time.
_TAG = r"\{\{(?:(?!\}\}).){,1000}\}\}|\{%(?:(?!%\}).){,1000}%\}|\{#.{,1000}?#\}|\{/\*.{,1000}?\*/\}"
_ATTRIBUTES = r"\{[:#.][^{}\n]{,1000}\}"
_KEPT = re.compile(rf"{_TAG}|{_ATTRIBUTES}|\\\((.{{1,1000}}?)\\\)|\\\[(.{{1,1000}}?)\\\]", re.DOTALL)
_DESTINATION = re.compile(rf"[^\s()<>{{]*+(?:(?:{_TAG})[^\s()<>{{]*+)++")  # of a link
_KEPT_LINES = re.compile(
    r"(?:\{%-?\s*(raw|verbatim|highlight|comment)\b.{,50000}?\{%-?\s*end\1\s*-?%\}"
    r"|\{\{[<%]\s*(highlight|katex)\b.{,50000}?\{\{[<%]\s*/\s*\2\s*[%>]\}\}"
    rf"|(?:(?:{_TAG}|{_ATTRIBUTES})[ \t]*+)++|\\\[((?:(?!\n\s*\n).){{1,2000}}?)\\\])[ \t]*+(?=\n|\Z)",
    re.DOTALL,
)
_IS_MATH = re.compile(r"[\\^_={}<>+]|\A(?!.*[^\W\d_]{2})", re.DOTALL)  # other brackets are escaped ones of text
_IS_NAME = re.compile(r"\{\{(?![<%#/!>])|\\")  # of a shortcode that stands for a word, or a formula
_INTERRUPTS: Any = {"alt": ["paragraph", "reference", "blockquote", "list", "footnote_def"]}


class MarkdownWriter:
    """
    Write blocks whose payloads are tokens of markdown-it-py.

    Each one is parsed again. If its markup is not what it must be, its special characters are escaped. Where that is
    not enough, as where `**` cannot begin bold text, the block is written with tags of HTML, and at last with numeric
    character references, which mean the same.

    Args:
        references: The link reference definitions of the document.
    """

    def __init__(self, parser: Any, references: Mapping[str, Any]):
        self._parser, self._references = parser, references

    def write(self, block: Block, context: str, forms: Mapping[str, Sequence[str]]) -> str:
        """
        Return a block as Markdown.

        Args:
            context: `"paragraph"`, `"heading"` or `"cell"`.
            forms: Spellings of characters that the source escapes, at each of their places in order.
        """
        texts = list[str]()

        def collect(text: str) -> str:
            texts.append(text)
            return ""

        write_block(block, collect, lambda tokens, content: "")
        expected = _join_texts(_block_signature(block.text, block.spans, 0, len(block.text)))
        as_source = _repeat_forms(forms, texts)
        escaped = [_SPECIAL.sub(r"\\\g<0>", text) for text in texts]
        numeric = [_UNESCAPED.sub(lambda match: f"&#{ord(match[0])};", text) for text in texts]
        for spelled, mark, is_guarded in (
            (as_source, _mark, False),
            (as_source, _mark, True),
            (escaped, _mark, True),
            (as_source, _html_mark, True),
            (escaped, _html_mark, True),
            (numeric, _html_mark, True),
        ):
            left = iter(spelled)
            written = write_block(block, lambda text, left=left: next(left), mark).strip(" ")  # type: ignore[misc]
            if context != "cell" and is_guarded:  # what would begin another kind of block
                written = _NUMBERED.sub(r"\1\\\2", _LINE_START.sub(r"\1\\\2", written))
            signature = self._signature(written, context)
            if signature == expected or (mark is _html_mark and _as_html(signature) == _as_html(expected)):
                break
        return written.replace("|", "\\|") if context == "cell" else written

    def _signature(self, text: str, context: str) -> list[tuple]:
        """Return what a text is parsed to, or nothing if it is not one block of its context."""
        known = {"references": dict(self._references)}
        if context == "cell":
            (inline,) = self._parser.parseInline(text, known)
        else:
            tokens = self._parser.parse(f"# {text}" if context == "heading" else f"a\n\n{text}", known)
            tokens = tokens if context == "heading" else tokens[3:]
            if [token.type for token in tokens] != [f"{context}_open", "inline", f"{context}_close"]:
                return []
            inline = tokens[1]
        return _join_texts([_token_signature(token) for token in inline.children])


def _repeat_forms(forms: Mapping[str, Sequence[str]], texts: list[str]) -> list[str]:
    """Write each character as the source does. If it is there more or less often, escape it everywhere."""
    left = {}
    for character, spellings in forms.items():
        is_same = sum(text.count(character) for text in texts) == len(spellings)
        left[character] = iter(spellings) if is_same else repeat(next(form for form in spellings if form != character))
    return ["".join(next(left[each]) if each in left else each for each in text) for text in texts]


def _mark(tokens: Sequence[Any], content: str | None) -> str:
    """Return a span as Markdown, given its tokens and its content, which is None if it has no translated text."""
    first = tokens[0]
    if isinstance(first, str):
        return first
    kind = first.type.removesuffix("_open")
    if kind == "hardbreak":
        return "\\\n" if first.meta["source"].startswith("\\") else "  \n"
    if kind == "link" and content is not None:
        end, label = first.meta["source_end"], first.meta["source_label"]
        # The label of a reference is written if it was the text, which has changed.
        is_label_lost = end in ("]", "][]") and label.casefold() != content.casefold()
        return f"[{content}][{label}]" if is_label_lost else f"[{content}{end}"
    if kind in ("em", "strong", "s") and content:
        return f"{first.markup}{content}{first.markup}"
    if kind != "html_inline" and content is None:
        return first.meta["source"]
    return _html_mark(tokens, content)


def _html_mark(tokens: Sequence[Any], content: str | None) -> str:
    """Return a span as HTML."""
    first = tokens[0]
    kind = first if isinstance(first, str) else first.type.removesuffix("_open")
    if kind in ("html_inline", "image", *_HTML_NAMES) and not isinstance(first, str):
        attributes = "".join(f' {name}="{html.escape(str(value))}"' for name, value in first.attrs.items() if value)
        if kind == "html_inline":
            return first.content + (content or "") + (tokens[1].content if len(tokens) > 1 else "")
        if kind == "image":
            alt = "".join(child.content for child in first.children or ())
            return f'<img{attributes} alt="{html.escape(alt)}">'
        if content is not None:
            return f"<{_HTML_NAMES[kind]}{attributes}>{content}</{_HTML_NAMES[kind]}>"
    return _mark(tokens, content)


def _block_signature(text: str, spans: Sequence[Span], start: int, end: int) -> Iterator[tuple]:
    for span in spans:
        yield "text", text[start : span.start]
        if isinstance(span.payload[0], str):
            yield "text", span.payload[0]
        elif span.fixed:
            yield from map(_token_signature, span.payload)
        else:
            yield _token_signature(span.payload[0])
            yield from _block_signature(text, span.children, span.start, span.end)
            yield _token_signature(span.payload[1])
        start = span.end
    yield "text", text[start:end]


def _token_signature(token: Any) -> tuple:
    if token.type in ("text", "text_special", "softbreak"):
        return "text", token.content
    return token.type, token.content, tuple(sorted((name, value) for name, value in token.attrs.items()))


def _as_html(signatures: Sequence[tuple]) -> list[tuple]:
    """Return signatures in which tags of HTML and the markup that they can stand for are the same."""
    names = ("html_inline", "image", *(f"{name}_{end}" for name in _HTML_NAMES for end in ("open", "close")))
    return [("html",) if signature[0] in names else signature for signature in signatures]


def _join_texts(signatures: Any) -> list[tuple]:
    """Join texts that follow each other, without white space, which Markdown does not tell apart."""
    joined = list[tuple]()
    for signature in signatures:
        if signature[0] == "text":
            text = "".join(signature[1].split())
            if joined and joined[-1][0] == "text":
                joined[-1] = ("text", joined[-1][1] + text)
            elif text:
                joined.append(("text", text))
        else:
            joined.append(signature)
    return joined


class _Place(NamedTuple):
    """Where the text of a block is in the lines of the document, and how it is spelled there."""

    line: int
    start: int
    end: int  # in the first line
    last: int  # line after the text
    indent: str  # of further lines
    context: str  # "paragraph", "heading", "title" of an admonition, "cell", or "value" of the front matter
    forms: Mapping[str, Sequence[str]] = {}  # of characters that are escaped or a character reference somewhere


def _build_parser() -> Any:
    """Return a parser whose inline tokens have their source in `meta`."""
    with requires_extra("documents", "Translating Markdown"):
        from markdown_it import MarkdownIt
        from mdit_py_plugins.admon import admon_plugin
        from mdit_py_plugins.amsmath import amsmath_plugin
        from mdit_py_plugins.container import container_plugin
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.dollarmath import dollarmath_plugin
        from mdit_py_plugins.footnote import footnote_plugin
    parser: Any = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    parser.use(footnote_plugin, inline=False, move_to_end=False, always_match_refs=True)
    parser.use(admon_plugin).use(deflist_plugin).use(amsmath_plugin)
    parser.use(container_plugin, "any", validate=lambda name, mark: bool(name.strip()))
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    parser.helpers = SimpleNamespace(**vars(parser.helpers) | {"parseLinkDestination": _read_destination})
    blocks, inline = parser.block.ruler, parser.inline.ruler
    blocks.at(
        "math_block", dict(zip(blocks.get_active_rules(), blocks.getRules(""), strict=True))["math_block"], _INTERRUPTS
    )
    blocks.before("fence", "kept_lines", _keep_lines, _INTERRUPTS)
    inline.before("escape", "kept", _keep)
    for name, rule in zip(inline.get_active_rules(), inline.getRules(""), strict=True):
        inline.at(name, partial(_note_source, rule))
    return parser


def _read_destination(text: str, start: int, end: int) -> Any:
    """Parse where a link leads, in which shortcodes may have spaces, such as `{{< ref "a" >}}`."""
    from markdown_it.helpers import parseLinkDestination

    match = _DESTINATION.match(text, start, end)
    if match is None:
        return parseLinkDestination(text, start, end)
    return SimpleNamespace(ok=True, pos=match.end(), str=match[0])


def _keep_lines(state: Any, first: int, end: int, silent: bool) -> bool:
    """Parse lines of shortcodes, or a formula between brackets."""
    start = state.bMarks[first] + state.tShift[first]
    match = None if state.is_code_block(first) else _KEPT_LINES.match(state.src, start, state.eMarks[end - 1])
    if not match or (match[3] and not _IS_MATH.search(match[3])):
        return False
    if not silent:
        state.line = next(line for line in range(first, end) if state.eMarks[line] >= match.end()) + 1
        state.push("kept_lines", "", 0).map = [first, state.line]
    return True


def _keep(state: Any, silent: bool) -> bool:
    """Parse a shortcode, attributes such as `{#name}`, or a formula between brackets."""
    match = _KEPT.match(state.src, state.pos, state.posMax)
    formula = match and (match[1] or match[2])
    if not match or (formula and not _IS_MATH.search(formula)):
        return False
    if not silent:
        state.push("kept", "", 0).content = match[0]
    state.pos = match.end()
    return True


def _note_source(rule: Callable[[Any, bool], bool], state: Any, silent: bool) -> bool:
    """Parse by a rule. Note the source of the first token that is not text, and the parts after the text of a link."""
    start, count = state.pos, len(state.tokens)
    if not rule(state, silent):
        return False
    token = next((token for token in state.tokens[count:] if token.type != "text"), None)
    if token and not silent:
        token.meta["source"] = state.src[start : state.pos]
        if token.type == "link_open" and token.markup != "autolink":
            end = state.md.helpers.parseLinkLabel(state, start, True)
            token.meta |= {"source_label": state.src[start + 1 : end], "source_end": state.src[end : state.pos]}
    return True


class MarkdownDocument(Document):
    """
    The blocks of a Markdown text: paragraphs, headings, list items, cells of tables, titles and descriptions.

    Code, formulas, shortcodes, HTML blocks, link targets, images and other front matter are not translated. A
    paragraph is written on one line, unless it is its own translation.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        self._parser = _build_parser()
        self._mark, self._line_end, text = unify_line_ends(text)
        text = text.replace("\r", "\n").replace("\0", "\ufffd")
        self._lines = text.split("\n")
        self.blocks, self._places = list[Block](), list[_Place]()
        self._environment = dict[str, Any]()
        front = _FRONT.match(text)
        if front:
            count = front[0].count("\n")
            for number in range(1, count):
                line, following = self._lines[number : number + 2]
                value = None if following[:1].isspace() else _read_value(line)
                if value:
                    self._add(_Place(number, 0, 0, number + 1, "", "value"), Block(value))
            text = "\n" * count + text[front.end() :]
        tokens = self._parser.parse(text, self._environment)
        cell_line, cursor = -1, 0
        for before, token in pairwise(tokens):
            if token.type != "inline":
                continue
            first = token.map[0]
            if before.type in ("th_open", "td_open"):
                raw = token.content.replace("|", "\\|")
                start = self._lines[first].index(raw, cursor if first == cell_line else 0)
                place = _Place(first, start, start + len(raw), first + 1, "", "cell")
                cell_line, cursor = first, place.end
            elif before.type == "admonition_title_open" and f'"{token.content}"' not in self._lines[first]:
                continue  # its kind
            else:
                place = self._find_lines(first, token.content, before)
            block = _build_block(token.children, is_item=before.type == "paragraph_open")
            forms = defaultdict[str, list[str]](list)
            for child in token.children:
                if child.type == "text_special" and len(child.content) == 1:
                    forms[child.content].append(child.markup)
                elif child.type in ("text", "text_special"):
                    for character in child.content:
                        forms[character].append(character)
            special = {character: some for character, some in forms.items() if set(some) != {character}}
            self._add(place._replace(forms=special), block)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        lines = list(self._lines)
        writer = MarkdownWriter(self._parser, self._environment.get("references", {}))
        for place, source, block in reversed([*zip(self._places, self.blocks, blocks, strict=True)]):
            if block == source:
                continue
            line = lines[place.line]
            if place.context == "value":
                lines[place.line] = _write_value(line, block.text)
                continue
            context = "paragraph" if place.context == "title" else place.context
            written = writer.write(block, context, place.forms).split("\n")
            written[1:] = [place.indent + more for more in written[1:]]
            after = line[place.end :] if place.context != "paragraph" else ""
            lines[place.line : place.last] = [line[: place.start] + written[0], *written[1:]]
            lines[place.line + len(written) - 1] += after
        return self._mark + "\n".join(lines).replace("\n", self._line_end)

    def _add(self, place: _Place, block: Block) -> None:
        if any(character.isalpha() for character in block.text):
            self._places.append(place)
            self.blocks.append(block)

    def _find_lines(self, number: int, content: str, opening: Any) -> _Place:
        """Return where a paragraph or a heading is that begins in a line or after it."""
        parts = content.split("\n")
        while parts[0] not in self._lines[number]:  # the parser strips lines of white space such as U+2028
            number += 1
        line = self._lines[number]
        start = line.rindex(parts[0])
        indent = ""
        if len(parts) > 1:
            following = self._lines[number + 1]
            indent = following[: following.rindex(parts[1].lstrip()) if parts[1].strip() else 0]
        context = "heading" if opening.type == "heading_open" and opening.markup.startswith("#") else "paragraph"
        context = "title" if opening.type == "admonition_title_open" else context
        return _Place(number, start, start + len(parts[0]), number + len(parts), indent, context)


def _read_value(line: str) -> str | None:
    """Return the title or the description that a line of YAML or TOML gives, or None."""
    if not _FRONT_VALUE.match(line):
        return None
    try:
        content: Any = tomllib.loads(line) if re.match(r"\w+\s*=", line) else yaml.safe_load(line)
    except (ValueError, yaml.YAMLError):
        return None
    values = [*content.values()] if isinstance(content, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _write_value(line: str, text: str) -> str:
    """Return a line with another value, in its own quotes if they can have it."""
    name, mark = re.findall(r"\w+|\S", line)[:2]
    source = _read_value(line)
    assert source is not None
    start = line.rfind(source)
    same = line[:start] + text + line[start + len(source) :] if start > len(name) else ""
    quoted = f"{name}{' =' if mark == '=' else ':'} {json.dumps(text, ensure_ascii=False)}"
    return same if _read_value(same) == text else quoted


def _build_block(tokens: Sequence[Any], is_item: bool) -> Block:
    """Return the text of a paragraph. The payload of a span is its tokens."""
    builder, index = SpanBuilder(), 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        mark = _FIRST_MARK.match(token.content) if index == 1 and is_item and token.type == "text" else None
        if mark:
            builder.add_mark([mark[0]])
            builder.add_text(token.content[mark.end() :])
        elif token.type in ("text", "text_special"):
            builder.add_text(token.content)
        elif token.type == "softbreak" and index == 2 and is_item and tokens[0].content.startswith("[!"):
            builder.add_mark(["\n"], breaks=True)
        elif token.type == "softbreak":
            builder.add_text(" ")
        elif token.type == "code_inline":
            builder.add_mark([token], token.content)
        elif token.type.startswith("math_inline") or (token.type == "kept" and _IS_NAME.match(token.content)):
            builder.add_mark([token], " ".join(token.meta["source"].split()))
        elif token.type == "link_open" and token.markup == "autolink":
            builder.add_mark(tokens[index - 1 : index + 2], tokens[index].content)
            index += 2
        elif token.nesting > 0:
            builder.open(token.type, [token], is_paired=True)
        elif token.nesting < 0:
            span = builder.close(token.type.replace("_close", "_open"))
            assert span is not None
            span.payload.append(token)
        else:  # an image, a line break, or a tag of HTML, which may have a partner
            tag = _HTML_TAG.fullmatch(token.content) if token.type == "html_inline" else None
            name = tag[2].lower() if tag else ""
            span = builder.close(name) if tag and tag[1] else None
            if span is not None:
                span.payload.append(token)
            elif tag and not tag[1] and not tag[3] and name not in _VOID:
                builder.open(name, [token])
            else:
                breaks = token.type == "hardbreak" or (name == "br" and not (tag and tag[1]))
                builder.add_mark([token], breaks=breaks)
    return builder.finish()
