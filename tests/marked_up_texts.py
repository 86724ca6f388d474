"""Random documents with nested, crossing, empty and unclosed markup, the markup that they must
keep, and whole pages.
"""

import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.document_translation import (
    contain,
    copy,
    copy_kept,
    reverse,
    shout,
    translate_document,
    without_alignment,
)
from vanilla_transformer.decoding.sentence_splitter import split_simply

VOID = {
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
PLACEHOLDERS = [
    "{name}",
    "%s",
    "$1",
    "https://a.example/b?c=1&d=2",
    "me@mail.example",
    "🙂",
    "👩‍💻",
    "1,234.50",
    "2024-05-06",
]
WORDS = [
    "house",
    "Dr. Smith",
    "red",
    "the end.",
    "Why?",
    "über",
    "snake_case",
    "don't",
    "10",
    "x*y",
    "#",
    "日本",
]
IN_ORDER = [shout, copy_kept(shout)]
TRANSLATIONS = [*IN_ORDER, reverse, without_alignment(reverse), copy_kept(reverse)]

plain = st.lists(st.sampled_from([*WORDS, *PLACEHOLDERS, " ", "\n"]), min_size=1, max_size=5).map(
    lambda words: f" {' '.join(words)} "
)
translations = st.sampled_from(TRANSLATIONS)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _elements(inner, names, attributes):
    return st.builds(
        lambda name, attribute, parts: f"<{name}{attribute}>{''.join(parts)}</{name}>",
        st.sampled_from(names),
        st.sampled_from(attributes),
        st.lists(inner, max_size=4),
    )


_entity = st.sampled_from(["&amp;", "&lt;b&gt;", "&nbsp;", "&eacute;", "&#8217;"])
_comment = st.sampled_from(["<!-- a <b> comment -->", "<!---->"])
_opaque = st.sampled_from(
    [
        "<script>if (a < b && c) x();</script>",
        "<style>p > b {}</style>",
        "<svg><path d='M0'/></svg>",
        "<textarea>a b</textarea>",
    ]
)
_void = st.sampled_from(
    ["<br>", "<img src='a b' alt=x>", "<wbr>", "<br/>", "<hr>", "<input disabled>"]
)
_fixed = st.sampled_from(
    ["<code>a b()</code>", '<i translate="no">Not this</i>', "<kbd>Ctrl</kbd>"]
)
_leaf = st.one_of(plain.map(escaped), _entity, _comment, _opaque, _void, _fixed)
_inline = st.recursive(
    _leaf,
    lambda inner: _elements(
        inner, ["b", "i", "span", "em", "u"], ["", " class='x y'", " data-a=1"]
    ),
    max_leaves=8,
)
_blocks = _elements(
    _inline, ["p", "div", "li", "h1", "td", "section", "ul", "table"], ["", " id=a"]
)
_stray = st.sampled_from(
    ["<b>", "</b>", "<i>", "</i>", "</p>", "<p>", "<a href=x>", "</a>", "<li>", "<td>", "<!-- x"]
)
html_fragments = st.lists(st.one_of(_inline, _blocks), max_size=5).map("".join)
html_soup = st.lists(st.one_of(_inline, _blocks, _stray), max_size=8).map("".join)
html_texts = st.one_of(
    html_fragments,
    html_soup,
    html_soup.map(
        lambda text: (
            "<!DOCTYPE html><html lang=en><head><title>A "
            f"title</title></head><body>{text}</body></html>"
        )
    ),
)

_xml_leaf = st.one_of(
    plain.map(escaped),
    st.sampled_from(
        [
            "&amp;",
            "&lt;",
            "&#233;",
            "<!-- a comment -->",
            "<?do it?>",
            "<x/>",
            "<y a='1'/>",
            "<![CDATA[a < b]]>",
        ]
    ),
    st.just('<code translate="no">a b</code>'),
)
_xml_inner = st.recursive(
    _xml_leaf,
    lambda inner: _elements(inner, ["a", "b", "p", "n:q"], ["", " k='v w'"]),
    max_leaves=12,
)
xml_texts = st.lists(_xml_inner, max_size=5).map(
    lambda parts: f"<root xmlns:n='urn:n'>{''.join(parts)}</root>"
)

_code = st.sampled_from(
    [
        "`a * b`",
        "`` `x` ``",
        "<https://a.example>",
        "![alt *text*](src 'title')",
        "&copy;",
        "\\*",
        "<br>",
    ]
)
_markdown_leaf = st.one_of(plain.map(lambda text: " ".join(text.split())), _code)


def _wrapped(inner):
    marks = [
        ("*", "*"),
        ("**", "**"),
        ("_", "_"),
        ("~~", "~~"),
        ("[", "](<a b> 'title')"),
        ("[", "][r]"),
        ("<b>", "</b>"),
    ]
    marks += [("*", ""), ("", "**"), ("<u>", ""), ("", "</u>"), ("[", "")]
    return st.builds(
        lambda mark, parts: mark[0] + " ".join(parts) + mark[1],
        st.sampled_from(marks),
        st.lists(inner, max_size=3),
    )


_markdown_line = st.lists(
    st.recursive(_markdown_leaf, _wrapped, max_leaves=6), min_size=1, max_size=3
).map(" ".join)
_markdown_block = st.builds(
    lambda prefix, lines: "\n".join(
        [prefix + lines[0], *(" " * (prefix[-2:] == "- ") + line for line in lines[1:])]
    ),
    st.sampled_from(["", "# ", "> ", "- ", "1. ", "> - ", "- [ ] ", "   "]),
    st.lists(_markdown_line, min_size=1, max_size=3),
)
_markdown_table = st.builds(
    lambda one, two: f"| a | b |\n|---|---|\n| {one} | {two} |",
    *([_markdown_line.map(lambda line: line.replace("|", ""))] * 2),
)
_markdown_other = st.sampled_from(
    ["```\ncode *x*\n```", "<div>\nhtml *x*\n</div>", "---", "    indented *code*", "Title\n==="]
)
markdown_texts = st.lists(
    st.one_of(_markdown_block, _markdown_table, _markdown_other), max_size=5
).map(lambda blocks: "\n\n".join([*blocks, "[r]: /target"]))


class _Tags(HTMLParser):
    """Collect tags as they are written, and note whether they are balanced."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.comments, self.opaque = [], Counter(), Counter(), Counter()
        self.text, self.is_balanced = "", True
        self.feed(text)
        self.close()
        self.is_balanced &= self.open == []

    def handle_starttag(self, name, attributes):
        self.seen[self.get_starttag_text().casefold()] += 1
        self.open += [] if name in VOID else [name]

    def handle_startendtag(self, name, attributes):
        self.seen[self.get_starttag_text().casefold()] += 1

    def handle_endtag(self, name):
        self.seen[f"</{name}>"] += 1
        self.is_balanced &= bool(self.open) and self.open.pop() == name

    def handle_comment(self, text):
        self.comments[text] += 1

    def handle_data(self, text):
        if {"script", "style", "textarea"} & set(self.open):
            self.opaque[text] += 1
        else:
            self.text += text


def check_text(text, translated, translate):
    """Check that each placeholder is there, and all words, in order if the translation has them
    so.
    """
    for word in PLACEHOLDERS:
        expected = len(re.findall(rf"(?<!\S){re.escape(word)}(?!\S)", text))
        assert translated.count(word) >= expected, word
    text, translated = ("".join(each.casefold().split()) for each in (text, translated))
    if translate in IN_ORDER:
        assert translated == text
    assert Counter(translated) == Counter(text)


def check_html(text, translate):
    """Translate an HTML text and compare its tags and its text.

    A copy of its text is the same page.
    """
    given = {"splitter": split_simply, "constrain": contain(translate)}
    translated = translate_document(text, "html", translate, **given)
    expected, found = _Tags(text), _Tags(translated)
    assert (found.seen, found.comments, found.opaque) == (
        expected.seen,
        expected.comments,
        expected.opaque,
    )
    assert found.is_balanced >= expected.is_balanced
    check_text(expected.text, found.text, translate)
    assert translate_document(text, "html", copy, **given) == text
    return translated


def check_xml(text, translate):
    """Translate an XML text and compare its markup."""
    translated = translate_document(
        text, "xml", translate, split_simply, constrain=contain(translate)
    )
    before, after = (_xml_counts(each) for each in (text, translated))
    assert before == after
    assert translate_document(text, "xml", copy, split_simply) == text
    check_text(
        *("".join(ElementTree.fromstring(each).itertext()) for each in (text, translated)),
        translate,
    )
    return translated


def _xml_counts(text):
    parser = ElementTree.XMLParser(
        target=ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
    )
    nodes = list(ElementTree.fromstring(text, parser).iter())
    kept = [node.text for node in nodes if node.get("translate") == "no"]
    return Counter(
        (str(node.tag), *sorted(node.items()), node.text if callable(node.tag) else "")
        for node in nodes
    ), kept


def check_markdown(text, translate):
    """Translate a Markdown text and compare its markup as HTML."""
    from markdown_it import MarkdownIt

    translated = translate_document(
        text, "markdown", translate, split_simply, constrain=contain(translate)
    )
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    pages = [parser.render(each) for each in (text, translated)]
    assert _html_counts(pages[0]) == _html_counts(pages[1])
    check_text(*(unescape(re.sub(r"<[^>]*>", "", page)) for page in pages), translate)
    return translated


def _html_counts(text):
    tags = re.findall(
        r"<(/?\w+)", re.sub(r"<s>|</s>", lambda tag: tag[0].replace("s>", "del>"), text)
    )
    return (
        Counter(tags),
        Counter(re.findall(r"<code>.*?</code>", text, re.DOTALL)),
        Counter(re.findall(r' (?:href|src)="[^"]*"', text)),
    )


CHECKS = {
    "html": (html_texts, check_html),
    "xml": (xml_texts, check_xml),
    "markdown": (markdown_texts, check_markdown),
}


def check_random_texts(format, count):
    """Translate random texts of a format and compare their markup."""
    texts, check = CHECKS[format]

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(texts, translations)
    def keeps_markup(text, translate):
        check(text, translate)

    keeps_markup()


BODY = """
<header class='top' id=main><h1>A  red house&nbsp;&mdash; &copy; 2024</h1>
<!-- a comment --><!--[if lt IE 9]><script src="old.js"></script><![endif]--><![if !IE]><p>Not there</p><![endif]>
</header>
<p>One <b>very <i>red</i></b> house,<br/>two dogs<br />and <a href="x?a=1&amp;b=2" title='A "long" walk'>three
   cats</a>. It&#39;s AT&T &amp; more &lt;here&gt; > there.</p>
<P CLASS=Big>Upper case <B>tags</B> <IMG SRC="dog.png" ALT="A red dog"></P>
<p>20 m<sup>2</sup> of H<sub>2</sub>O, dogs<sup>1</sup> and CO<sub>2</sub>. Press <kbd>Ctrl</kbd>+<kbd>C</kbd> or
<code class="x">x = 1</code> and <var>n</var>, <samp>ok</samp>.</p>
<table border=1><thead><tr><th abbr="Short">A head<th>Another<tbody><tr><td>A cell<td><ul><li>One<li>Two</ul></table>
<form action="/go"><label>Name <input type=text placeholder="Your name" disabled required></label>
<input type="submit" value='Send it'><input type=hidden value="a b"><button type=button>Press</button>
<select><optgroup label="A group"><option selected>One dog<option>Two dogs</select>
<textarea placeholder="A text">  leave <b>this</b>
</textarea></form>
<svg viewBox="0 0 1 1"><path d='M0'/><text>no words</text><style>a > b {}</style></svg>
<pre>
  leave   this <b>too</b>
</pre>
<script>if (a < b && c) document.write("<p>no</p>");</script>
<style>p > b { color: red }</style>
<template><p>leave this</p></template>
<p translate="no">Leave this <b>one</b></p><p class="a notranslate">And this</p>
<p>A <span translate=no>Brand Name</span> and <span class="notranslate">Other Name</span> here.</p>
<p aria-label="A label">a<wbr>b un<!-- c -->usual <i></i> <span aria-hidden=true class=icon></span> done</p>
<video controls><track label="A track" src=x>Not shown</video><picture><img alt="A cat" src=c></picture>
<hr/><?php echo "<p>no</p>"; ?><x-own>An own element</x-own><p>never closed <b>bold
"""

DOCTYPES = [
    "<!DOCTYPE html>",
    "<!doctype html>",
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN"\n '
    '"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">',
    '<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.01//EN">',
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html SYSTEM "about:legacy-compat">',
    "<!-- a comment -->\n<!DOCTYPE html>",
    "",
]
HEAD = """
<html lang="en" class=no-js>
<head><meta charset=utf-8><title>A title &ndash; of the page</title>
<meta name="description" content="What the page is about"><meta name=viewport content="width=device-width">
<meta property='og:title' content='A shared title'><link rel=stylesheet href=a.css /></head>
<body onload="go()">"""
PAGES = [f"{doctype}{HEAD}{BODY}" for doctype in DOCTYPES]
