"""Read YAML strictly."""

from typing import Any

import yaml


def load_yaml(text: str) -> Any:
    """Parse YAML of plain values.

    Raises:
        ValueError: the text is not YAML, has a key twice in a mapping, or has an alias.
    """
    try:
        return yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


class _StrictLoader(yaml.SafeLoader):
    """Refuse keys that a mapping has twice, of which PyYAML would use the last, and aliases, which may recurse."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(problem=f"aliases are not supported{self.peek_event().start_mark}")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(problem=f"the key {twice!r} is there twice{node.start_mark}")
        return super().construct_mapping(node, deep)
