"""Messages in YAML, as of Rails and Symfony."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress

import yaml

from vanilla_transformer.decoding.protection.blocks import SpanBuilder
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import has_invalid_unicode
from vanilla_transformer.text.languages import (
    NO_DIRECTION,
    Direction,
    is_language,
    is_same_language,
    name_language,
)

from .message_format import MessageDocument, add_lines
from .source_text import Place

_LOCALE = re.compile(r"[a-z]{2}(?:[-_]\w++)?")
_LINE = re.compile("^(?=.)", re.MULTILINE)
_DEEPEST = 100  # beyond which the parser takes the square of the depth
_TEXT = "tag:yaml.org,2002:str"


class YamlDocument(MessageDocument):
    """
    The texts of YAML, but not its keys. The only key of a file on its first level becomes the
    target language if it is a language, as in Rails.

    A translation is quoted as its source is or, where it would not be a text so, in double
    quotation marks.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        self._styles = dict[int, tuple[str | None, bool]]()
        depth = 0
        try:
            for event in yaml.parse(self.text, Loader=yaml.SafeLoader):
                anchor = getattr(event, "anchor", None)
                if anchor is not None:
                    raise UserError(
                        f"YAML must have no anchors and aliases, got {anchor}. Write the texts out."
                    )
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > _DEEPEST:
                    raise UserError(f"YAML must be nested {_DEEPEST} times at most, got more.")
            root = yaml.compose(self.text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"The text must be YAML: {reason}.") from None
        if isinstance(root, yaml.MappingNode) and len(root.value) == 1 and direction.target:
            ((key, _),) = root.value
            if _is_locale(str(key.value), direction):
                name = name_language(direction.target)
                # YAML takes `no` for a truth value.
                written = name if yaml.safe_load(name) == name else f'"{name}"'
                self.replaced.append((key.start_mark.index, key.end_mark.index, written))
        for node, is_in_flow in _walk(root):
            position = Place(node.start_mark.index, node.end_mark.index)
            self._styles[position.start] = node.style, is_in_flow
            if not has_invalid_unicode(node.value):
                self._add_block(add_lines(SpanBuilder(keeps_space=True), node.value), position)

    def escape(self, text: str, position: Place) -> str:
        (style, is_in_flow), raw = (
            self._styles[position.start],
            self.text[position.start : position.end],
        )
        plain, end = text, ""
        if style == "'":
            plain = f"'{text.replace(style, style + style)}'"
        elif style in ("|", ">"):
            end = raw[len(raw.rstrip()) :]
            header, _, rest = raw.partition("\n")
            margin = rest[: len(rest) - len(rest.lstrip())].rpartition("\n")[2]
            body = text.rstrip("\n")
            if style == ">":
                body = re.sub("\n++", r"\g<0>\n", body)
            plain = f"{header}\n{_LINE.sub(margin, body)}"
        quoted = json.dumps(text, ensure_ascii=False)
        if style == '"':
            plain = quoted
        for form in (plain, quoted):
            with suppress(yaml.YAMLError, ValueError, RecursionError):
                is_text = yaml.safe_load(f"a: {form}{end}") == {"a": text}
                if is_text and (not is_in_flow or yaml.safe_load(f"[{form}]") == [text]):
                    return form + end
        return json.dumps(text) + end


def _is_locale(key: str, direction: Direction) -> bool:
    """Return whether a key names the source language, or may do so if that is unknown."""
    if not _LOCALE.fullmatch(key) or not is_language(key):
        return False
    return direction.source is None or is_same_language(key, direction.source)


def _walk(root: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, bool]]:
    """Yield the texts of YAML in order, but not its keys, and whether brackets are around them."""
    rest = [(root, False)]
    while rest:
        node, is_in_flow = rest.pop()
        children = list[yaml.Node]()
        if isinstance(node, yaml.ScalarNode) and node.tag == _TEXT:
            yield node, is_in_flow
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [value for _, value in node.value]
        is_in_flow |= bool(getattr(node, "flow_style", False))
        rest += [(child, is_in_flow) for child in reversed(children)]
