"""Parse YAML of plain values."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.reasons import Key


def find_lines(text: str) -> dict[Key, int]:
    """Return the lines of the keys and entries of YAML that [`load_yaml`] parses, from 1."""
    lines = dict[Key, int]()
    root = yaml.compose(text, _StrictLoader)
    nodes: list[tuple[Key, yaml.Node | None]] = [((), root)]
    while nodes:
        parent, node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                key = (*parent, str(name.value))
                lines[key] = name.start_mark.line + 1
                nodes.append((key, value))
        elif isinstance(node, yaml.SequenceNode):
            for position, value in enumerate(node.value):
                key = (*parent, position)
                lines[key] = value.start_mark.line + 1
                nodes.append((key, value))
    return lines


def load_yaml(text: str) -> Any:
    """Parse YAML of plain values."""
    try:
        return yaml.load(text, _StrictLoader)
    except RecursionError as error:
        raise UserError("it is nested too deeply") from error
    # Also for integers and dates that Python lacks.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise UserError(str(error)) from error


_BOOLEAN = "tag:yaml.org,2002:bool"


def _resolvers_without_booleans() -> dict[str, list[Any]]:
    kept = {}
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items():
        kept[first] = [resolver for resolver in resolvers if resolver[0] != _BOOLEAN]
    return kept


class _StrictLoader(yaml.SafeLoader):
    """Refuse keys that a mapping has twice, of which PyYAML would use the last, and aliases, which
    may recurse.

    Booleans are true and false alone, as in YAML 1.2: `no` is a language, and a value of
    `mixed_precision`.
    """

    yaml_implicit_resolvers = _resolvers_without_booleans()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(problem=f"aliases are not supported{mark}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = (self.construct_object(key, deep=True) for key, _ in node.value)
        seen = set[Any]()
        for key in keys:
            if not isinstance(key, Hashable):
                continue
            if key in seen:
                problem = f"the key {key!r} is there twice{node.start_mark}"
                raise yaml.constructor.ConstructorError(problem=problem)
            seen.add(key)
        return super().construct_mapping(node, deep)  # which refuses lists as keys


_StrictLoader.add_implicit_resolver(_BOOLEAN, re.compile("(?i:true|false)$"), [*"tTfF"])
