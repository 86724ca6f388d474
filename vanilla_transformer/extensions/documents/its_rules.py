"""Global rules of ITS 2.0 within an XML text: https://www.w3.org/TR/its20/#selection-global."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.xml_tree import local_name

if TYPE_CHECKING:
    from lxml.etree import _Element

_ITS = "{http://www.w3.org/2005/11/its}"
_VALUES = {
    "translateRule": "translate",
    "withinTextRule": "withinText",
    "preserveSpaceRule": "space",
}
_LONGEST = 10_000  # characters of all selectors with their parameters
# One path of a selector, and what follows it. An engine of XPath takes n² steps or more where a
# path goes down from many nodes, for positions, and to sort what it finds. So predicates may look
# at ancestors and at children only, and those may have simpler predicates. Text is that of one
# node, since all text in an element would be read once a level.
_PATH = regex.compile(
    r"""
    (?(DEFINE)
        (?P<name>[^\W\d][\w.-]*+(?::(?:[^\W\d][\w.-]*+|\*))?+|\*)
        (?P<test>(?&name)(?!\s*+(?:\(|::)))
        (?P<attribute>(?:@|attribute::)\s*+(?&name))
        (?P<literal>"[^"]*+"|'[^']*+'|\d++(?:\.\d++)?+|\$(?&name))
        (?P<compare>\s*+(?:!=|[<>]=?+|=)\s*+)
        (?P<and>\s*+\b(?:and|or)\b\s*+)
        (?P<self>(?:local-name|name|namespace-uri)\(\s*+\))
        (?P<simple>
            not\(\s*+(?&simple)(?:(?&and)(?&simple))*+\s*+\)
            |self::(?&test)
            |(?:(?&self)|(?&attribute))(?:(?&compare)(?&literal))?+
        )
        (?P<element>(?&test)(?:\s*+\[\s*+(?&simple)(?:(?&and)(?&simple))*+\s*+\])*+)
        (?P<down>(?:(?:child::)?+(?&element)/)*+)
        (?P<up>\.\.(?:/\.\.)*+|(?:self|parent|ancestor(?:-or-self)?+)::(?&element))
        (?P<value>(?:(?&up)/|(?&down))(?:(?&attribute)|text\(\s*+\)))
        (?P<near>(?&value)|(?&up)|(?&down)(?:child::)?+(?&element))
        (?P<function>(?&self)|count\(\s*+(?&near)\s*+\)
            |(?:string|string-length|normalize-space)\(\s*+(?:(?&function)|(?&value))\s*+\))
        (?P<single>(?&literal)|(?&function))
        (?P<condition>
            (?:not)?+\s*+\(\s*+(?&conditions)\s*+\)
            |(?:contains|starts-with)\(\s*+(?:(?&function)|(?&value))\s*+,\s*+(?&literal)\s*+\)
            |lang\(\s*+(?&literal)\s*+\)
            |(?&single)(?&compare)(?:(?&single)|(?&value))
            |(?&value)(?&compare)(?&single)
            |(?&function)
            |(?&near)
        )
        (?P<conditions>(?&condition)(?:(?&and)(?&condition))*+)
    )
    \G\s*+(?=/|id)(?:
        (?:(?P<link>//?+)(?:child::)?+(?P<step>(?&test)(?:\s*+\[\s*+(?&conditions)\s*+\])*+))*+
        (?:(?P<last>//?+)(?P<attribute_>(?&attribute)))?+
        |id\(\s*+(?P<id>(?&literal))\s*+\)
    )\s*+(?:\|(?!\s*+\Z)|\Z)
    """,
    regex.VERBOSE,
)


def find_its_rules(root: "_Element") -> dict[str, dict[Any, str]]:
    """
    Return the values of `translate`, `withinText` and `space` of the elements that the rules of a
    document name.

    The key of an attribute is its element and its local name. Rules in other files are not read.
    """
    values, length = defaultdict[str, dict[Any, str]](dict), 0
    for its_rule in root.iter(*(_ITS + name for name in _VALUES)):
        name = _VALUES[local_name(its_rule)]
        rules = its_rule.getparent()
        selector = its_rule.get("selector", "")
        parameters = {
            parameter.get("name", ""): parameter.text or ""
            for parameter in rules.iterchildren(f"{_ITS}param")
        }
        length += len(selector) + sum(map(len, parameters.values()))
        if length > _LONGEST:
            raise UserError(
                "The selectors of all rules of ITS and their parameters must have at most "
                f"{_LONGEST:,} characters, but up to line {its_rule.sourceline} they have "
                f"{length:,}. Remove some rules."
            )
        for node in _select(its_rule, selector, parameters):
            is_attribute = isinstance(node, str)
            if is_attribute:
                key: Any = (node.getparent(), node.attrname.rpartition("}")[2])
            else:
                key = node
            values[name][key] = its_rule.get(name)
    return values


def _select(its_rule: "_Element", selector: str, parameters: dict[str, str]) -> Iterator[Any]:
    """Yield the elements and the attributes that a rule names."""
    from lxml import etree

    namespaces = {prefix: name for prefix, name in its_rule.nsmap.items() if prefix}
    paths = [*_PATH.finditer(selector)]
    try:
        is_known = its_rule.getparent().get("queryLanguage", "xpath") == "xpath"
        if not (is_known and paths) or "".join(path[0] for path in paths) != selector:
            raise TypeError
        for path in paths:
            find = etree.XPath(_one_step(path), namespaces=namespaces, regexp=False)
            yield from find(its_rule.getroottree(), **parameters)
    except (etree.XPathError, TypeError) as error:
        mistake = (
            f"The selector of <its:{local_name(its_rule)}> in line {its_rule.sourceline} must be "
            "an XPath of elements"
        )
        limit = "from the root, whose predicates look at ancestors or children only"
        raise UserError(f"{mistake} or attributes {limit}, got {selector!r}.") from error


def _one_step(path: regex.Match[str]) -> str:
    """Return an XPath that finds the same nodes by one step through the document, in its order."""
    if path["id"]:
        return f"/descendant::*[@xml:id={path['id']}]"
    element = ""
    for link, step in zip(path.captures("link"), path.captures("step"), strict=True):
        if not element:
            element = step if link == "//" else f"{step}[not(parent::*)]"
        elif link == "/":
            element = f"{step}[parent::{element}]"
        elif "ancestor" in element:  # ancestors of ancestors
            raise TypeError
        else:
            element = f"{step}[ancestor::{element}]"
    if path["last"] == "//":
        element = f"*[ancestor-or-self::{element}]" if element else "*"
    attribute = f"/{path['attribute_']}" if path["last"] else ""
    return f"/descendant::{element}{attribute}"
