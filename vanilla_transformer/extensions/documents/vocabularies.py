"""Read from `vocabularies.yaml` how a translation treats the elements of HTML and of XML
vocabularies.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_LEVELS = {
    "lines": "block",
    "listing": "block",
    "code": "inline",
    "note": "nested",
    "media": "nested",
}
_LEVELS |= {"hidden": "nested", "block": "block", "inline": "inline"}
_KEPT = {"code", "hidden", "kept", "listing", "media"}


class Vocabulary(NamedTuple):
    """The kinds of elements by their local names, their translated attributes, and whether text can
    be HTML.
    """

    kinds: Mapping[str, str]
    attributes: Mapping[str, str]
    has_html: bool

    def level(self, name: str) -> str:
        """Return whether an element is `"nested"`, `"inline"` or a `"block"`, or `""` if its place
        tells.
        """
        return _LEVELS.get(self.kinds.get(name, ""), "")

    def translates(self, name: str) -> bool | None:
        """Return whether the text of an element is translated, or None if it is as the text around
        it.
        """
        kind = self.kinds.get(name)
        return False if kind in _KEPT else True if kind == "translated" else None

    def attributes_of(self, name: str) -> set[str]:
        """Return the names of the attributes of an element that are translated."""
        return {*self.attributes.get("*", "").split(), *self.attributes.get(name, "").split()}


def _read(entry: dict[str, Any]) -> dict[str, Vocabulary]:
    """Return a vocabulary by its namespaces and roots."""
    roots, attributes, has_html = (
        entry.pop("of"),
        entry.pop("attributes", {}),
        entry.pop("has_html", False),
    )
    of_elements = {
        name: value for elements, value in attributes.items() for name in elements.split()
    }
    kinds = {name: kind for kind, elements in entry.items() for name in elements.split()}
    return dict.fromkeys(roots.split(), Vocabulary(kinds, of_elements, has_html))


_ENTRIES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
HTML_PARSER = _ENTRIES[0].pop("parser")
VOCABULARIES = {root: vocabulary for entry in _ENTRIES for root, vocabulary in _read(entry).items()}
HTML = VOCABULARIES["html"]
