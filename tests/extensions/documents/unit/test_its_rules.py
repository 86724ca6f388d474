"""Selectors of ITS rules find what XPath finds, and those whose work would grow faster than a
document are refused.
"""

import pytest
from lxml import etree

from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents.its_rules import find_its_rules

PAGE = """<d xmlns:i="http://www.w3.org/2005/11/its" xmlns:h="urn:h"
 xmlns:re="http://exslt.org/regular-expressions"><i:rules><i:param name="k">v</i:param>
<i:translateRule translate="no"/></i:rules>
<h:p a="v" class=" x y "><q xml:id="one" b="2">text<p xml:lang="en-GB"><q a="z"/></p></q></h:p>
<p><p c="v"><h:p/><q>more <b h:a="v">text</b></q></p><b>x</b></p></d>"""
# As in rules of fontconfig, GNOME, polkit, DocBook, DITA and the specification
FOLLOWED = [
    "/*|/d/*[not(self::p)] | //q/@a",
    "//@*",
    "//@h:a",
    "id('one')",
    '//*[@class=" x y "]',
    "//*[local-name()='q' or local-name() = 'b']",
    "//h:p|\n//p/h:p",
    "/d/p//q",
    "//h:p//q",
    "//p//@h:a",
    "//p[@c='v']//q/b",
    "//h:*/@class",
    "//q[ancestor::h:p[@class and not(@b)]]",
    "//*[not(ancestor-or-self::*[@a='v' or @c])]",
    "//*[contains(@class, 'x') and starts-with(name(), 'h:')]",
    "//*[@a and not(@b) or (@c='v' and @d!=\"2\")]",
    "//*[@*=$k]",
    "//*[../@c='v']/b",
    "//*[../../@c]",
    "//*[q]|//p[p[@c]/q/b/@h:a = 'v']",
    "//*[count(*) > 1]",
    "//*[text()='x'][parent::p]",
    "//*[string-length(normalize-space(text())) = 1]",
    "//*[lang('en')]",
    "//child::q/attribute::b",
]
REFUSED = [
    "//*[re:test('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!','^(a+)+$')]",
    "//*[count(//*[count(//*)>0])>0]",
    "//*[/d/p]",
    "//*[../p]",
    "//*[../q/..]",
    "//*[ancestor::*/q]",
    "//*[preceding-sibling::p]",
    "//*[following::p]",
    "//*[descendant::p]",
    "//*[.//p]",
    "//*[p[q]]",
    "//*[p=q]",
    "//*[@*=@*]",
    "//*[contains(@a,@b)]",
    "//*[contains(.,'x')]",
    "//*[ancestor::*[ancestor::*]]",
    "//p[ancestor::p]//q",
    "//p//p//p",
    "//*/..",
    "//*/descendant::*",
    "//p[1]",
    "//p|",
    "//p[",
    "//text()",
    "(//p)[1]",
    "concat('a','b')",
    "/@a",
    "p",
    "",
    "//*[" + "(" * 4000 + "@a" + ")" * 3999 + "]",
]


def rules(selector):
    tree = etree.fromstring(PAGE)
    (element,) = tree.iter("{*}translateRule")
    element.set("selector", selector)
    return tree, find_its_rules(tree)["translate"]


@pytest.mark.parametrize("selector", FOLLOWED)
def test_find_its_rules_finds_what_xpath_finds(selector):
    tree, nodes_of_rules = rules(selector)
    spaces = {prefix: name for prefix, name in tree.nsmap.items() if prefix}
    nodes = tree.getroottree().xpath(selector, namespaces=spaces, k="v")
    expected = {
        (node.getparent(), node.attrname.rpartition("}")[2]) if isinstance(node, str) else node
        for node in nodes
    }
    assert nodes_of_rules.keys() == expected


@pytest.mark.parametrize("selector", REFUSED, ids=range(len(REFUSED)))
def test_find_its_rules_refuses_work_that_outgrows_a_document(selector):
    with pytest.raises(
        UserError, match=r"^The selector of <its:translateRule> in line 3 must be .*$"
    ):
        rules(selector)


def test_find_its_rules_limits_all_selectors_together():
    tree = etree.fromstring(PAGE)
    (element,) = tree.iter("{*}translateRule")
    for _ in range(900):
        etree.SubElement(element.getparent(), element.tag, selector="//q[@a='12']", translate="no")
    element.set("selector", "//q")
    with pytest.raises(UserError, match=r"^The selectors of .* at most 10,000 characters, but up"):
        find_its_rules(tree)
