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
    nodes: list[tuple[Key, yaml.Node | None]] = [((), yaml.compose(text, _StrictLoader))]
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
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
    ) as error:  # also for integers and dates that Python lacks
        raise UserError(str(error)) from error


_BOOLEAN = "tag:yaml.org,2002:bool"


class _StrictLoader(yaml.SafeLoader):
    """Refuse keys that a mapping has twice, of which PyYAML would use the last, and aliases, which
    may recurse.

    Booleans are true and false alone, as in YAML 1.2: `no` is a language, and a value of
    `mixed_precision`.
    """

    yaml_implicit_resolvers = {
        first: [resolver for resolver in resolvers if resolver[0] != _BOOLEAN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(
                problem=f"aliases are not supported{self.peek_event().start_mark}"
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = (self.construct_object(key, deep=True) for key, _ in node.value)
        seen = set[Any]()
        for key in (key for key in keys if isinstance(key, Hashable)):
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is there twice{node.start_mark}"
                )
            seen.add(key)
        return super().construct_mapping(node, deep)  # which refuses lists as keys


_StrictLoader.add_implicit_resolver(_BOOLEAN, re.compile("(?i:true|false)$"), [*"tTfF"])
