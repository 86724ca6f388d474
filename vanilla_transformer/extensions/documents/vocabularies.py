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
        of_all, of_name = self.attributes.get("*", ""), self.attributes.get(name, "")
        return {*of_all.split(), *of_name.split()}


def _read(entry: dict[str, Any]) -> dict[str, Vocabulary]:
    """Return a vocabulary by its namespaces and roots."""
    roots = entry.pop("of")
    attributes = entry.pop("attributes", {})
    has_html = entry.pop("has_html", False)
    of_elements = {}
    for elements, value in attributes.items():
        of_elements.update(dict.fromkeys(elements.split(), value))
    kinds = {}
    for kind, elements in entry.items():
        kinds.update(dict.fromkeys(elements.split(), kind))
    return dict.fromkeys(roots.split(), Vocabulary(kinds, of_elements, has_html))


_ENTRIES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
HTML_PARSER = _ENTRIES[0].pop("parser")
VOCABULARIES: dict[str, Vocabulary] = {}
for _entry in _ENTRIES:
    VOCABULARIES |= _read(_entry)
HTML = VOCABULARIES["html"]
