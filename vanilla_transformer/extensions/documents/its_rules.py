"""Global rules of ITS 2.0 within an XML text: https://www.w3.org/TR/its20/#selection-global."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.xml_tree import local_name

_ITS = "{http://www.w3.org/2005/11/its}"
_VALUES = {
    "translateRule": "translate",
    "withinTextRule": "withinText",
    "preserveSpaceRule": "space",
}


def find_its_rules(root: Any) -> dict[str, dict[Any, str]]:
    """
    Return the values of `translate`, `withinText` and `space` of the elements that the rules of a
    document name.

    The key of an attribute is its element and its local name. Rules in other files are not read.
    """
    found = defaultdict[str, dict[Any, str]](dict)
    for rule in root.iter(*(_ITS + name for name in _VALUES)):
        name = _VALUES[local_name(rule)]
        for node in _select(rule):
            is_attribute = isinstance(node, str)
            key: Any = (
                (node.getparent(), node.attrname.rpartition("}")[2]) if is_attribute else node
            )
            found[name][key] = rule.get(name)
    return found


def _select(rule: Any) -> Iterator[Any]:
    """Yield the elements and the attributes that a rule names."""
    from lxml import etree

    rules, selector = rule.getparent(), rule.get("selector", "")
    parameters = {each.get("name"): each.text or "" for each in rules.iterchildren(f"{_ITS}param")}
    namespaces = {prefix: name for prefix, name in rule.nsmap.items() if prefix}
    try:
        if rules.get("queryLanguage", "xpath") != "xpath":
            raise TypeError
        found = rule.getroottree().xpath(selector, namespaces=namespaces, **parameters)
        yield from (
            node for node in found if etree.iselement(node) or getattr(node, "attrname", None)
        )
    except (etree.XPathError, TypeError) as error:
        mistake = (
            f"The selector of <its:{local_name(rule)}> in line {rule.sourceline} must be an "
            "XPath of elements"
        )
        raise UserError(f"{mistake} or attributes, got {selector!r}.") from error
