"""Markdown: CommonMark, and what Pandoc, Hugo, Obsidian and the systems of documentation add to
it.
"""

import html
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, pairwise, repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import regex
import yaml

from vanilla_transformer.decoding.protection.blocks import (
    Block,
    Document,
    Span,
    SpanBuilder,
    unify_line_ends,
    write_block,
)
from vanilla_transformer.text.changes import Segment
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .heading_ids import find_anchors

if TYPE_CHECKING:
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_core import StateCore
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

_SPECIAL = re.compile(
    r"[\\`*\[\]$]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|~(?=~)|(?<=~)~|\{(?=[{%:#./])"
)
_LINE_START = re.compile(
    r"^(\s*)(#{1,6}(?=\s|$)|[-+](?=\s|$)|>|=+\s*$|-[-\s]+$|:?-+:?\s*$|~~~|[:~](?=\s)|:::|///|===|!!!|\?\?\?)"
)
_NUMBERED = re.compile(r"^(\s*\d{1,9})([.)])(?=\s|$)")
_HTML_NAMES = {"em": "em", "strong": "strong", "s": "del", "link": "a"}
_UNESCAPED = re.compile(r"[^\w\s]|_")
_HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]*).*?(/?)>", re.DOTALL)
# The mark of a task or an alert.
_FIRST_MARK = re.compile(r"\[[ xX]\](?=\s)|\[!\w+\][-+]?(?=\s|$)")
_VOID = {
    "area",
    "base",
    "br",
    "col",
    "embed",
    "hr",
    "img",
    "input",
    "link",
    "meta",
    "source",
    "track",
    "wbr",
}
_FRONT = re.compile(
    r"(?:(---|\+\+\+)[ \t]*\n(?=\S)(?:.*\n)*?\1|\{[ \t]*\n(?:.*\n)*?\})[ \t]*(?:\n|\Z)"
)
_TEXT_KEYS = r"(?:\w*[tT]itle|description|summary|excerpt|tagline|details|(?:\w+_)?label)"
_TOML_VALUE = re.compile(rf"\s*{_TEXT_KEYS}\s*=\s*(\"(?:[^\"\\]|\\.)+\"|'[^']+')(?=\s*(?:#|$))")
# A mark is in no other one of its kind, and is of limited length, so that marks without an end take
# little time.
_TAG = (
    r"\{\{(?:(?!\}\}|\{\{).){,1000}\}\}|\{%(?:(?!%\}|\{%).){,1000}%\}"
    r"|\{#(?:(?!#\}|\{#).){,1000}#\}|\{/\*(?:(?!\*/\}|\{/\*).){,1000}\*/\}"
)
_ATTRIBUTES = r"\{:?[ \t]*(?:[:#.][^{}\n]|[\w:-]+=)[^{}\n]{,1000}\}"
_BRACES = r"[^{}]*+"  # of JavaScript
for _ in range(6):
    _BRACES = rf"[^{{}}]*+(?:\{{{_BRACES}\}}[^{{}}]*+)*+"
_BRACES = rf"\{{{_BRACES}\}}"
_VALUE = rf"\"[^\"]*+\"|'[^']*+'|{_BRACES}"
_JSX = (
    rf"</?[A-Za-z][\w.-]*+(?:\s+(?:[^\s\"'<>/={{}}]++(?:\s*=\s*(?:{_VALUE}))?|{_BRACES}))*+\s*+/?>"
)
_KEPT = regex.compile(
    rf"{_TAG}|{_ATTRIBUTES}|\\\((?<formula>.{{1,1000}}?)\\\)|\\\[(?<formula>.{{1,1000}}?)\\\]"
    r"|(?<open>\[\[[^\[\]|\n]{1,500}\|)(?<alias>[^\[\]|\n]{1,500})\]\](?![(\[])|!?\[\[(?<page>[^\[\]\n]{1,500})\]\](?![(\[])"
    r"|\+\+(?:(?:[\w-]++|\"[^\"\n]{1,100}\")(?:\+(?!\+))?)++\+\+"  # keys
    r"|(?<![\w:]):{1,2}[A-Za-z+-][\w-]*+(?:(?=[\[{])|:(?!\w))"  # an icon or a directive
    r"|\{[\w:.+-]+\}(?<ticks>`+)(?!`).{1,1000}?(?<!`)(?P=ticks)(?!`)"  # a role
    rf"|\[[^\[\]\n]{{,200}}(?<!\w)@\w[^\[\]\n]{{,200}}\](?![(\[])"
    rf"|%%.{{1,1000}}?%%|(?<=\s)\^[\w-]+(?=[ \t]*(?:\n|\Z))"
    r"|(?:<r[pt]>[^<>\n]{,100}</r[pt]>)++"  # readings of ruby
    rf"|(?:(?<![\s\S])|\n)\|[ \t]+|(?<jsx>{_JSX})",  # of a line block of Pandoc, and tags
    re.DOTALL,
)
_DESTINATION = re.compile(rf"[^\s()<>{{]*+(?:(?:{_TAG})[^\s()<>{{]*+)++")  # of a link
_NAMES = r"(?:[\w$]+|\*\s+as\s+[\w$]+|\{[^{}]*\})"  # in an import
# An object of Python that mkdocstrings documents after `:::`, with options in lines below
_OBJECT = r"[ \t]*\w++(?:\.\w++)++[ \t]*+"
_KEPT_LINES = regex.compile(
    r"(?:\{%-?\s*(?<name>raw|verbatim|highlight|comment)\b"
    r"(?:(?!\{%-?\s*+(?P=name)\b).){,50000}?\{%-?\s*end(?P=name)\s*-?%\}"
    r"|\{\{[<%]\s*(?<name>highlight|katex|math|mermaid|code[\w-]*)\b"
    r"(?:(?!\{\{[<%]\s*+(?P=name)\b).){,50000}?\{\{[<%]\s*/\s*(?P=name)\s*[%>]\}\}"
    rf"|(?:(?:{_TAG}|{_ATTRIBUTES})[ \t]*+)++|\\\[(?<formula>(?:(?!\n\s*\n).){{1,2000}}?)\\\]"
    r"|;*-+8<-+[ \t]+[^\n]+|-+8<-+[ \t]*\n.{,5000}?-+8<-+|<<<[ \t][^\n]+|\[TOC\]|@tab\b[^\n]*"
    r"|\\[A-Za-z]+\*?(?:\{[^{}\n]*\}|\[[^\[\]\n]*\])*"
    r"|%%.{,5000}?%%|\*\[[^\]\n]+\]:[^\n]*|\([^()\s]+\)=|\+\+\+[^\n]*"
    r"|\+[-=+]+\+(?:\n[ \t]*[|+][^\n]*)+"
    rf"|:::{_OBJECT}(?:\n(?: {{4}}|\t)[^\n]*+)*+"
    r"|(?<fence>:{3,})[ \t]*(?:\{\w|mermaid).{,50000}?\n[ \t]*(?P=fence)"
    rf"|(?<mdx>(?:(?:</?>|(?=</?[A-Z]|</?\w+\.){_JSX})[ \t]*+)++)"
    rf"|(?:(?<mdx>(?:import\s+(?:type\s+)?(?:{_NAMES}(?:\s*,\s*{_NAMES})?\s+from\s+)?[\"']"
    r"|export\s+(?:default|const|let|var|function|async|class|type|interface|[*{])(?!\w))"
    rf"(?:[^\n{{}}]|{_BRACES}|\n(?!\s*\n))*+)|%[ \t][^\n]*))[ \t]*+(?=\n|\Z)",
    re.DOTALL,
)
_FIRST_LINE = re.compile(r"import\b|export\b|%[ \t]")  # of what interrupts no paragraph
# Titles of admonitions, tabs, containers, directives of MyST, and blocks of pymdownx.
_TITLE = re.compile(
    r"(?:(?!!!!|\?\?\?|===|[:`~]{3}|///).)*+"
    r"(?:(?:!!!|\?\?\?\+?|===[!+]*)[^\"]*\"(?P<quoted>.+)\"\s*$"
    r"|[:`~]{3,}\s*+\{(?!(?:figure|container|div|grid|only|tab-set)\})[\w:.-]+\}\s*+(?P<after>.*\S)\s*$"
    r"|:{3,}+\s*+[\w-]++\[(?P<inside>.+)\](?:\{[^{}]*+\})?\s*$"
    r"|:{3,}+\s*+(?!.*\w=|.*:::)[\w-]++\s++(?P<plain>[^{]*[^{\s])\s*+(?:\{.*\})?$"
    r"|/{3,}+\s*+(?!html)[\w-]++\s*+\|\s*+(?P<block>.*\S)\s*$)"
)
_TAB = re.compile(r"^([ \t>]*)===(?=[!+]*[ \t]+\")", re.MULTILINE)
# Directives of MyST whose content is Markdown, and their options.
_DIRECTIVE = re.compile(
    r"\s*\{(?:admonition|attention|caution|danger|error|hint|important|note|seealso|tip|warning|todo|topic|sidebar|margin"
    r"|aside|version\w+|deprecated|epigraph|highlights|pull-quote|blockquote|container|div|figure|(?:list-)?table|glossary"
    r"|dropdown|details|tab-\w+|grid|grid-\w+|card|card-\w+|only|exercise|solution|pr(?:oo)?f:\w+)\}"
)
_COLONS = re.compile(rf"{_DIRECTIVE.pattern}|(?!{_OBJECT}\Z)\s*(?!\{{\w|mermaid)\S")
# What follows the marks of a container whose content is Markdown: of blocks of pymdownx, too.
_CONTAINERS = {
    ":": _COLONS,
    "`": _DIRECTIVE,
    "~": _DIRECTIVE,
    "/": re.compile(r"\s*[\w-]+\s*(?:\||\Z)"),
}
_OPTIONS = re.compile(
    r"^([ \t>]*(?:`{3,}|~{3,}|:{3,})[ ]?\{[\w:.-]+\}.*\n)"
    r"((?:[ \t>]*:[\w-]+:.*\n)+|[ \t]*---\n(?:.*\n)*?[ \t]*---\n)",
    re.MULTILINE,
)
# Other brackets are escaped ones of text.
_IS_MATH = re.compile(r"[\\^_={}<>+]|\A(?!.*[^\W\d_]{2})", re.DOTALL)
# What stands for a word.
_IS_NAME = re.compile(r"\{\{(?![<%#/!>])|\\|!?\[|\+\+|\{[\w.]+\}")
# Without its indentation, such a tag would end no paragraph.
_DEEP_TAG = re.compile(r"^(?: {,3}\t| {4})[ \t]*(?=</?[A-Z>])", re.MULTILINE)
_IS_MDX = re.compile(r"import|export|.*(?:/>|</)", re.DOTALL)
# Text after a comment.
_IS_COMMENTED = re.compile(r"(?:<!--(?:(?!-->).)*-->[ \t]*)+[^\s<]")
_DEPTHS = {"[": 1, "{": 1, "]": -1, "}": -1}  # what a bracket adds to the depth of YAML
_DEEPEST_FRONT = 50
# How values of the front matter are read: of TOML and of YAML, and lines, which are as they are.
_VALUES: dict[str, Callable[[str], Any]] = {
    "toml": lambda raw: tomllib.loads(f"a = {raw}")["a"],
    "yaml": lambda raw: yaml.safe_load(f"a: {raw}")["a"],
    "lines": str,
}
_INTERRUPTS: Any = {"alt": ["paragraph", "reference", "blockquote", "list", "footnote_def"]}


class MarkdownWriter:
    """
    Write blocks whose payloads are tokens of markdown-it-py.

    Each one is parsed again. If its markup is not what it must be, its special characters are
    escaped. Where that is not enough, as where `**` cannot begin bold text, the block is written
    with tags of HTML, and at last with numeric character references, which mean the same.

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
            forms: Spellings of characters that the source escapes, at each of their places in
                order.
        """
        texts = list[str]()

        def collect(text: str) -> str:
            texts.append(text)
            return ""

        write_block(block, collect, lambda tokens, content: "")
        signatures = _block_signature(block.text, block.spans, 0, len(block.text))
        expected = _join_texts(signatures)
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
            # What would begin another kind of block.
            if context != "cell" and is_guarded:
                written = _NUMBERED.sub(r"\1\\\2", _LINE_START.sub(r"\1\\\2", written))
            signature = self._signature(written, context)
            is_same = signature == expected
            if is_same or (mark is _html_mark and _as_html(signature) == _as_html(expected)):
                break
        return written.replace("|", "\\|") if context == "cell" else written

    def _signature(self, text: str, context: str) -> list[tuple]:
        """Return the tokens of a text, or nothing if it is not one block of its context."""
        known = {"references": dict(self._references)}
        if context == "cell":
            (inline,) = self._parser.parseInline(text, known)
        else:
            marked = f"# {text}" if context == "heading" else f"a\n\n{text}"
            tokens = self._parser.parse(marked, known)
            tokens = tokens if context == "heading" else tokens[3:]
            kinds = [token.type for token in tokens]
            if kinds != [f"{context}_open", "inline", f"{context}_close"]:
                return []
            inline = tokens[1]
        return _join_texts([_token_signature(token) for token in inline.children])


def _repeat_forms(forms: Mapping[str, Sequence[str]], texts: list[str]) -> list[str]:
    """Write each character as the source does.

    If it is there more or less often, escape it everywhere.
    """
    left = {}
    for character, spellings in forms.items():
        is_same = sum(text.count(character) for text in texts) == len(spellings)
        if is_same:
            left[character] = iter(spellings)
        else:
            escape = next(form for form in spellings if form != character)
            left[character] = repeat(escape)
    escaped = []
    for text in texts:
        written = []
        for character in text:
            written.append(next(left[character]) if character in left else character)
        escaped.append("".join(written))
    return escaped


def _mark(tokens: Sequence[Any], content: str | None) -> str:
    """Return a span as Markdown, given its tokens and its content, which is None if it has no
    translated text.
    """
    first = tokens[0]
    if isinstance(first, str):
        return first
    kind = first.type.removesuffix("_open")
    if kind == "hardbreak":
        return "\\\n" if first.meta["source"].startswith("\\") else "  \n"
    if kind == "link" and content is not None:
        end = first.meta["source_end"]
        label = first.meta["source_label"]
        title = first.meta["source_title"]
        if title and title != first.attrs["title"]:
            start, _, rest = end.rpartition(title)
            written_title = re.sub(rf"[\\()\{rest[0]}]", r"\\\g<0>", str(first.attrs["title"]))
            end = start + written_title + rest
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
    is_tag = not isinstance(first, str)
    if is_tag and kind in ("html_inline", "wiki", "image", *_HTML_NAMES):
        attributes = ""
        for name, value in first.attrs.items():
            if value:
                attributes += f' {name}="{html.escape(str(value))}"'
        if kind in ("html_inline", "wiki"):
            closing = tokens[1].content if len(tokens) > 1 else ""
            return first.content + (content or "") + closing
        if kind == "image":
            alt = "".join(child.content for child in first.children or ())
            return f'<img{attributes} alt="{html.escape(alt)}">'
        if content is not None:
            return f"<{_HTML_NAMES[kind]}{attributes}>{content}</{_HTML_NAMES[kind]}>"
    return _mark(tokens, content)


def _block_signature(text: str, spans: Sequence[Span], start: int, end: int) -> Iterator[tuple]:
    for span in spans:
        yield "text", text[start : span.start]
        payload = span.payload or [""]  # the space before a link
        if isinstance(payload[0], str):
            yield "text", payload[0]
        elif span.fixed:
            yield from map(_token_signature, payload)
        else:
            yield _token_signature(payload[0])
            yield from _block_signature(text, span.children, span.start, span.end)
            yield _token_signature(payload[1])
        start = span.end
    yield "text", text[start:end]


def _token_signature(token: "Token") -> tuple:
    if token.type in ("text", "text_special", "softbreak"):
        return "text", token.content
    attributes = sorted((name, value) for name, value in token.attrs.items())
    return token.type, token.content, tuple(attributes)


def _as_html(signatures: Sequence[tuple]) -> list[tuple]:
    """Return signatures in which tags of HTML and the markup that they can stand for are the
    same.
    """
    tags = [f"{name}_{end}" for name in _HTML_NAMES for end in ("open", "close")]
    names = ("html_inline", "image", *tags)
    return [("html",) if signature[0] in names else signature for signature in signatures]


def _join_texts(signatures: Iterable[tuple]) -> list[tuple]:
    """Join texts that follow each other, without white space, which Markdown does not tell
    apart.
    """
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
    # "paragraph", "heading", "title", "cell", or how a value of the front matter is written
    context: str
    # The forms of characters that are escaped or a character reference somewhere
    forms: Mapping[str, Sequence[str]] = {}
    # Of the link the text is the title; the paragraph is the text before it.
    link: Any = None
    # What stands before and after the translation of a heading, so that links find it
    anchor: tuple[str, str] = ("", "")


def _build_parser() -> Any:
    """Return a parser whose inline tokens have their source in `meta`."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.admon import admon_plugin
    from mdit_py_plugins.amsmath import amsmath_plugin
    from mdit_py_plugins.container import container_plugin
    from mdit_py_plugins.deflist import deflist_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from mdit_py_plugins.footnote import footnote_plugin

    parser: Any = MarkdownIt("commonmark")
    parser.enable(["table", "strikethrough"]).disable("text_join")
    parser.use(footnote_plugin, inline=False, move_to_end=False, always_match_refs=True)
    parser.use(admon_plugin).use(deflist_plugin).use(amsmath_plugin)
    for mark, kind in _CONTAINERS.items():
        parser.use(
            container_plugin,
            mark,
            marker=mark,
            validate=lambda text, _, kind=kind: bool(kind.match(text)),
        )
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    helpers = vars(parser.helpers) | {"parseLinkDestination": _read_destination}
    parser.helpers = SimpleNamespace(**helpers)
    parser.core.ruler.after("block", "titles", _add_titles)
    blocks, inline = parser.block.ruler, parser.inline.ruler
    rules = dict(zip(blocks.get_active_rules(), blocks.getRules(""), strict=True))
    blocks.at("math_block", rules["math_block"], _INTERRUPTS)
    blocks.at("html_block", partial(_read_html, rules["html_block"]), _INTERRUPTS)
    blocks.before("fence", "kept_lines", _keep_lines, _INTERRUPTS)
    blocks.before("list", "definition", partial(_start_definition, rules["list"]))
    inline.before("newline", "kept", partial(_keep, _KEPT))
    inline.before("newline", "expression", partial(_keep, re.compile(_BRACES)))
    active = zip(inline.get_active_rules(), inline.getRules(""), strict=True)
    for name, inline_rule in active:
        inline.at(name, partial(_note_source, inline_rule))
    return parser.disable("expression")


def _add_titles(state: "StateCore") -> None:
    """Parse the titles of admonitions, tabs and containers."""
    from markdown_it.token import Token

    lines, tokens = state.src.split("\n"), []
    for token in state.tokens:
        tokens.append(token)
        is_container = token.nesting > 0 and token.type.startswith("container_")
        is_open = is_container or token.type == "admonition_open"
        match = _TITLE.match(lines[token.map[0]]) if is_open and token.map else None
        if match:
            content = match[match.lastindex or 0]
            title = Token("inline", "", 0, map=token.map, content=content, children=[])
            tokens += [Token("title_open", "", 1), title, Token("title_close", "", -1)]
    state.tokens = tokens


def _read_destination(text: str, start: int, end: int) -> Any:
    """Parse where a link leads, in which shortcodes may have spaces, such as `{{< ref "a" >}}`."""
    from markdown_it.helpers import parseLinkDestination

    match = _DESTINATION.match(text, start, end)
    if match is None:
        return parseLinkDestination(text, start, end)
    return SimpleNamespace(ok=True, pos=match.end(), str=match[0])


def _keep_lines(state: "StateBlock", first: int, end: int, silent: bool) -> bool:
    """Parse lines that are no text, such as shortcodes and JavaScript, or a formula between
    brackets.
    """
    start = state.bMarks[first] + state.tShift[first]
    match = None
    if not state.is_code_block(first) and not (silent and _FIRST_LINE.match(state.src, start)):
        match = _KEPT_LINES.match(state.src, start, state.eMarks[end - 1])
    if not match or (match["formula"] and not _IS_MATH.search(match["formula"])):
        return False
    if not silent:
        last = next(line for line in range(first, end) if state.eMarks[line] >= match.end())
        state.line = last + 1
        token = state.push("kept_lines", "", 0)
        token.map = [first, state.line]
        token.info = "mdx" if _IS_MDX.match(match["mdx"] or "") else ""
    return True


def _read_html(
    parse: Callable[..., bool], state: "StateBlock", first: int, end: int, silent: bool
) -> bool:
    """Parse a block of HTML, but not a comment before text."""
    start = state.bMarks[first] + state.tShift[first]
    if _IS_COMMENTED.match(state.src, start, state.eMarks[first]):
        return False
    return parse(state, first, end, silent)


def _start_definition(
    parse_list: Callable[..., bool], state: "StateBlock", first: int, end: int, silent: bool
) -> bool:
    """Parse a definition whose term is not above it, such as one after a comment, as an item of a
    list.
    """
    start, source = state.bMarks[first] + state.tShift[first], state.src
    if state.is_code_block(first) or not re.compile(r"[:~][ \t]").match(source, start):
        return False
    state.src = f"{source[:start]}*{source[start + 1 :]}"
    is_item = parse_list(state, first, end, silent)
    state.src = source
    return is_item


def _keep(pattern: "re.Pattern[str] | regex.Pattern[str]", state: Any, silent: bool) -> bool:
    """Parse a shortcode, attributes, a formula between brackets and other marks, and the alias of a
    wikilink.
    """
    from markdown_it.common.utils import normalizeReference

    match = pattern.match(state.src, state.pos, state.posMax)
    groups = match.groupdict("") if match else {}
    formula, page, alias = (groups.get(name, "") for name in ("formula", "page", "alias"))
    is_link = bool(page) and normalizeReference(page) in state.env.get("references", ())
    if not match or is_link or (formula and not _IS_MATH.search(formula)):
        return False
    tokens = [("html_inline" if groups.get("jsx") else "kept", 0, match[0])]
    if alias:
        tokens = [("wiki_open", 1, groups["open"]), ("text", 0, alias), ("wiki_close", -1, "]]")]
    for kind, nesting, content in tokens:
        if not silent:
            state.push(kind, "", nesting).content = content
    state.pos = match.end()
    return True


def _note_source(
    inline_rule: Callable[["StateInline", bool], bool], state: "StateInline", silent: bool
) -> bool:
    """Parse by a rule.

    Note the source of the first token that is not text, and the parts after the text of a link.
    """
    start, count = state.pos, len(state.tokens)
    if not inline_rule(state, silent):
        return False
    added = state.tokens[count:]
    token = next((token for token in added if token.type != "text"), None)
    if token and not silent:
        token.meta["source"] = state.src[start : state.pos]
        if token.type == "link_open" and token.markup != "autolink":
            end = state.md.helpers.parseLinkLabel(state, start, True)
            label = state.src[start + 1 : end]
            rest = state.src[end : state.pos]
            title = str(token.attrs.get("title", ""))
            source_title = title if title in rest else ""
            token.meta |= {"source_label": label, "source_end": rest, "source_title": source_title}
    return True


class MarkdownDocument(Document):
    """
    The blocks of a Markdown text: paragraphs, headings, list items, cells of tables, titles and
    descriptions.

    Code, formulas, shortcodes, HTML blocks, link targets, images and other front matter are not
    translated. A paragraph is written on one line, unless it is its own translation.
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
            for block_place, value in _read_front(front[0]):
                self._add(block_place, Block(value))
            text = "\n" * front[0].count("\n") + text[front.end() :]
        text = _TAB.sub(r"\1!!!", text)
        text = _OPTIONS.sub(lambda match: match[1] + "\n" * match[2].count("\n"), text)
        tokens = self._parser.parse(text, self._environment)
        # MDX has expressions and no indented code.
        if any(token.info == "mdx" for token in tokens):
            self._parser.enable("expression").disable("code")
            tokens = self._parser.parse(_DEEP_TAG.sub("   ", text), self._environment)
        cell_line, cursor = -1, 0
        headings = dict[int, tuple[str, str]]()  # by the numbers of their blocks
        for before, token in pairwise(tokens):
            if token.type != "inline":
                continue
            first = token.map[0]
            if before.type in ("th_open", "td_open"):
                raw = token.content.replace("|", "\\|")
                cursor_of_line = cursor if first == cell_line else 0
                start = self._lines[first].index(raw, cursor_of_line)
                end = start + len(raw)
                block_place = _Place(first, start, end, first + 1, "", "cell")
                cell_line, cursor = first, block_place.end
            elif before.type == "admonition_title_open":
                continue  # also where it is only the kind
            else:
                block_place = self._find_lines(first, token.content, before)
            is_item = before.type == "paragraph_open"
            block = _build_block(token.children, is_item)
            forms = defaultdict[str, list[str]](list)
            for child in token.children:
                if child.type == "text_special" and len(child.content) == 1:
                    forms[child.content].append(child.markup)
                elif child.type in ("text", "text_special"):
                    for character in child.content:
                        forms[character].append(character)
            special = {}
            for character, spellings in forms.items():
                if set(spellings) != {character}:
                    special[character] = spellings
            if self._add(block_place._replace(forms=special), block):
                if before.type == "heading_open":
                    headings[len(self.blocks) - 1] = block.text, token.content
                for child in token.children:
                    title = child.meta.get("source_title")
                    if title:
                        self._add(block_place._replace(link=child), Block(title))
        anchors = find_anchors(text, [*headings.values()])
        for number, anchor in zip(headings, anchors, strict=True):
            self._places[number] = self._places[number]._replace(anchor=anchor)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        lines = list(self._lines)
        writer = MarkdownWriter(self._parser, self._environment.get("references", {}))
        has_new_title = False
        rows = [*zip(self._places, self.blocks, blocks, strict=True)]
        for block_place, source, block in reversed(rows):
            if block_place.link is not None:
                has_new_title |= block != source
                block_place.link.attrs["title"] = block.text
                continue
            if block == source and block.written is None and not has_new_title:
                continue
            has_new_title = False
            line, last = lines[block_place.line], lines[block_place.last - 1]
            if block.written is not None:
                written = block.written.split("\n")
            elif block_place.context in _VALUES:
                quote = line[block_place.start]
                written = [_write_value(block_place.context, quote, block.text)]
            else:
                context = block_place.context
                if context == "title":
                    context = "paragraph"
                written = writer.write(block, context, block_place.forms).split("\n")
                for number, more in enumerate(written[1:], start=1):
                    written[number] = block_place.indent + more
            after = ""
            if block_place.context != "paragraph":
                after = last[block_place.end :]
            if block.text.casefold() != source.text.casefold():  # which changes its id
                written[0] = block_place.anchor[0] + written[0]
                after += block_place.anchor[1]
            first_line = line[: block_place.start] + written[0]
            lines[block_place.line : block_place.last] = [first_line, *written[1:]]
            lines[block_place.line + len(written) - 1] += after
        return self._mark + "\n".join(lines).replace("\n", self._line_end)

    def segments(self) -> list[Segment]:
        segments = []
        for block, block_place in zip(self.blocks, self._places, strict=True):
            lines = self._lines[block_place.line : block_place.last]
            if block_place.context != "paragraph":
                lines[-1] = lines[-1][: block_place.end]
            lines[0] = lines[0][block_place.start :]
            segments.append(Segment(block.text, "\n".join(lines)))
        return segments

    def _add(self, block_place: _Place, block: Block) -> bool:
        """Add a block if it has letters, and tell whether it has."""
        has_letters = any(map(str.isalpha, block.text))
        if has_letters:
            self._places.append(block_place)
            self.blocks.append(block)
        return has_letters

    def _find_lines(self, number: int, content: str, opening: "Token") -> _Place:
        """Return where a paragraph or a heading is that begins in a line or after it."""
        parts = content.split("\n")
        # The parser strips lines of white space such as U+2028.
        while parts[0] not in self._lines[number]:
            number += 1
        line = self._lines[number]
        start = line.rindex(parts[0])
        indent = ""
        if len(parts) > 1:
            following = self._lines[number + 1]
            text_start = following.rindex(parts[1].lstrip()) if parts[1].strip() else 0
            indent = following[:text_start]
        context = "paragraph"
        if opening.type == "heading_open" and opening.markup.startswith("#"):
            context = "heading"
        context = "title" if opening.type == "title_open" else context
        end, last = start + len(parts[0]), number + len(parts)
        return _Place(number, start, end, last, indent, context)


def _read_front(front: str) -> Iterator[tuple[_Place, str]]:
    """Yield the text in TOML, YAML or JSON that readers see, and where it is."""
    lines = front.split("\n")
    if front.startswith("+++"):
        for number, match in enumerate(map(_TOML_VALUE.match, lines)):
            if match:
                value_place = _Place(number, *match.span(1), number + 1, "", "toml")
                yield value_place, _VALUES["toml"](match[1])
        return
    brackets = accumulate(_DEPTHS.get(character, 0) for character in front)
    # PyYAML needs quadratic time for more.
    if max(brackets, default=0) > _DEEPEST_FRONT:
        return
    try:
        content_of_front = front.rstrip().removesuffix("---").replace("\t", " ")
        root = yaml.compose(content_of_front, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return
    for node in {node.start_mark.index: node for node in _find_text(root)}.values():
        first, last, text = node.start_mark, node.end_mark, " ".join(node.value.split())
        if node.style in ("|", ">"):
            content = "\n".join(lines[first.line + 1 : last.line]).rstrip().split("\n")
            start = len(content[0]) - len(content[0].lstrip())
            end = len(content[-1])
            number = first.line + 1
            yield _Place(number, start, end, number + len(content), "", "lines"), text
        elif front[first.index] != "&":  # which names the value for others
            value_place = _Place(first.line, first.column, last.column, last.line + 1, "", "yaml")
            yield value_place, text


def _find_text(node: Any) -> Iterator[Any]:
    """Yield the strings of YAML that have names such as `title`; between braces they must be
    quoted.
    """
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        name, value = child if isinstance(node, yaml.MappingNode) else (None, child)
        if not isinstance(value, yaml.ScalarNode):
            yield from _find_text(value)
        elif not name or not re.fullmatch(_TEXT_KEYS, str(name.value)):
            continue
        elif value.style or not node.flow_style:
            yield from [value] * value.tag.endswith(":str")


def _write_value(context: str, quote: str, text: str) -> str:
    """Return a value of the front matter, in its own quotes if they can have it."""
    is_quoted = quote in ("'", '"') and context != "lines"
    same = f"{quote}{text}{quote}" if is_quoted else text
    with suppress(ValueError, KeyError, TypeError, yaml.YAMLError):
        if _VALUES[context](same) == text:
            return same
    return json.dumps(text, ensure_ascii=False)


def _build_block(tokens: Sequence[Any], is_item: bool) -> Block:
    """Return the text of a paragraph. The payload of a span is its tokens."""
    builder, index = SpanBuilder(), 0
    # The first line of an alert is its title.
    is_title = is_item and bool(tokens) and tokens[0].content.startswith("[!")
    while index < len(tokens):
        token = tokens[index]
        index += 1
        mark = None
        if index == 1 and is_item and token.type == "text":
            mark = _FIRST_MARK.match(token.content)
        is_named = token.type == "kept" and _IS_NAME.match(token.content)
        if mark:
            builder.add_mark([mark[0]])
            builder.add_text(token.content[mark.end() :])
        elif token.type in ("text", "text_special"):
            builder.add_text(token.content)
        elif token.type == "softbreak" and is_title:
            builder.add_mark(["\n"], breaks=True)
            is_title = False
        elif token.type == "softbreak":
            builder.add_text(" ")
        elif token.type == "code_inline":
            builder.add_mark([token], token.content)
        elif token.type.startswith("math_inline") or is_named:
            builder.add_mark([token], " ".join(token.meta["source"].split()))
        elif token.type == "link_open":
            link_text, end = "", index
            while tokens[end].type != "link_close":
                if tokens[end].type.startswith("text"):
                    link_text += tokens[end].content
                end += 1
            if token.markup == "autolink" or builder.is_note(link_text):
                builder.add_mark(tokens[index - 1 : end + 1], link_text)
                index = end + 1
            else:
                builder.open(token.type, [token], is_paired=True, is_apart=True)
        elif token.nesting > 0:
            builder.open(token.type, [token], is_paired=True)
        elif token.nesting < 0:
            span = builder.close(token.type.replace("_close", "_open"))
            assert span is not None
            span.payload.append(token)
        else:  # an image, a line break, or a tag of HTML, which may have a partner
            tag = None
            if token.type == "html_inline":
                tag = _HTML_TAG.fullmatch(token.content)
            name = tag[2].lower() if tag else ""
            span = builder.close(name) if tag and tag[1] else None
            if span is not None:
                span.payload.append(token)
            elif tag and not tag[1] and not tag[3] and name not in _VOID:
                builder.open(name, [token])
            else:
                is_kept_break = token.type == "kept" and token.content.startswith("\n")
                is_break = is_kept_break or token.type == "hardbreak"
                breaks = is_break or (name == "br" and not (tag and tag[1]))
                builder.add_mark([token], breaks=breaks)
    return builder.finish()
