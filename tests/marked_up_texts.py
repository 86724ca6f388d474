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

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"}
VOID |= {"source", "track", "wbr"}
PLACEHOLDERS = ["{name}", "%s", "$1", "https://a.example/b?c=1&d=2", "me@mail.example"]
PLACEHOLDERS += ["🙂", "👩‍💻", "1,234.50", "2024-05-06"]
WORDS = ["house", "Dr. Smith", "red", "the end.", "Why?", "über", "snake_case"]
WORDS += ["don't", "10", "x*y", "#", "日本"]
IN_ORDER = [shout, copy_kept(shout)]
TRANSLATIONS = [*IN_ORDER, reverse, without_alignment(reverse), copy_kept(reverse)]

_words = st.sampled_from([*WORDS, *PLACEHOLDERS, " ", "\n"])
plain = st.lists(_words, min_size=1, max_size=5).map(lambda words: f" {' '.join(words)} ")
translations = st.sampled_from(TRANSLATIONS)


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _elements(inner, names, attributes):
    def build(name, attribute, parts):
        return f"<{name}{attribute}>{''.join(parts)}</{name}>"

    tag = st.sampled_from(names), st.sampled_from(attributes)
    return st.builds(build, *tag, st.lists(inner, max_size=4))


_entity = st.sampled_from(["&amp;", "&lt;b&gt;", "&nbsp;", "&eacute;", "&#8217;"])
_comment = st.sampled_from(["<!-- a <b> comment -->", "<!---->"])
SCRIPTS = ["<script>if (a < b && c) x();</script>", "<style>p > b {}</style>"]
SCRIPTS += ["<svg><path d='M0'/></svg>", "<textarea>a b</textarea>"]
_opaque = st.sampled_from(SCRIPTS)
VOIDS = ["<br>", "<img src='a b' alt=x>", "<wbr>", "<br/>", "<hr>", "<input disabled>"]
_void = st.sampled_from(VOIDS)
FIXED = ["<code>a b()</code>", '<i translate="no">Not this</i>', "<kbd>Ctrl</kbd>"]
_fixed = st.sampled_from(FIXED)
_leaf = st.one_of(plain.map(escaped), _entity, _comment, _opaque, _void, _fixed)
_inline_attributes = ["", " class='x y'", " data-a=1"]


def _inline_elements(inner):
    return _elements(inner, ["b", "i", "span", "em", "u"], _inline_attributes)


_inline = st.recursive(_leaf, _inline_elements, max_leaves=8)
_block_names = ["p", "div", "li", "h1", "td", "section", "ul", "table"]
_blocks = _elements(_inline, _block_names, ["", " id=a"])
STRAY = ["<b>", "</b>", "<i>", "</i>", "</p>", "<p>", "<a href=x>", "</a>", "<li>"]
_stray = st.sampled_from([*STRAY, "<td>", "<!-- x"])
html_fragments = st.lists(st.one_of(_inline, _blocks), max_size=5).map("".join)
html_soup = st.lists(st.one_of(_inline, _blocks, _stray), max_size=8).map("".join)
TITLED = "<!DOCTYPE html><html lang=en><head><title>A title</title></head><body>{}</body></html>"


def _titled(body):
    return TITLED.format(body)


html_texts = st.one_of(html_fragments, html_soup, html_soup.map(_titled))

XML = ["&amp;", "&lt;", "&#233;", "<!-- a comment -->", "<?do it?>", "<x/>", "<y a='1'/>"]
_xml_marks = st.sampled_from([*XML, "<![CDATA[a < b]]>"])
_xml_fixed = st.just('<code translate="no">a b</code>')
_xml_leaf = st.one_of(plain.map(escaped), _xml_marks, _xml_fixed)


def _xml_elements(inner):
    return _elements(inner, ["a", "b", "p", "n:q"], ["", " k='v w'"])


def _rooted(parts):
    return f"<root xmlns:n='urn:n'>{''.join(parts)}</root>"


_xml_inner = st.recursive(_xml_leaf, _xml_elements, max_leaves=12)
xml_texts = st.lists(_xml_inner, max_size=5).map(_rooted)

CODE = ["`a * b`", "`` `x` ``", "<https://a.example>", "![alt *text*](src 'title')"]
_code = st.sampled_from([*CODE, "&copy;", "\\*", "<br>"])
_markdown_leaf = st.one_of(plain.map(lambda text: " ".join(text.split())), _code)
MARKS = [("*", "*"), ("**", "**"), ("_", "_"), ("~~", "~~"), ("[", "](<a b> 'title')")]
MARKS += [("[", "][r]"), ("<b>", "</b>")]
MARKS += [("*", ""), ("", "**"), ("<u>", ""), ("", "</u>"), ("[", "")]


def _wrapped(inner):
    def wrap(marks, parts):
        return marks[0] + " ".join(parts) + marks[1]

    return st.builds(wrap, st.sampled_from(MARKS), st.lists(inner, max_size=3))


def _block(prefix, lines):
    indentation = " " if prefix.endswith("- ") else ""
    first, *others = lines
    return "\n".join([prefix + first, *(indentation + line for line in others)])


_markdown_parts = st.recursive(_markdown_leaf, _wrapped, max_leaves=6)
_markdown_line = st.lists(_markdown_parts, min_size=1, max_size=3).map(" ".join)
_markdown_lines = st.lists(_markdown_line, min_size=1, max_size=3)
_prefix = st.sampled_from(["", "# ", "> ", "- ", "1. ", "> - ", "- [ ] ", "   "])
_markdown_block = st.builds(_block, _prefix, _markdown_lines)
_cell = _markdown_line.map(lambda line: line.replace("|", ""))
_markdown_table = st.builds("| a | b |\n|---|---|\n| {} | {} |".format, _cell, _cell)
OTHERS = ["```\ncode *x*\n```", "<div>\nhtml *x*\n</div>", "---", "    indented *code*"]
_markdown_other = st.sampled_from([*OTHERS, "Title\n==="])
_markdown_blocks = st.one_of(_markdown_block, _markdown_table, _markdown_other)
markdown_texts = st.lists(_markdown_blocks, max_size=5).map(
    lambda blocks: "\n\n".join([*blocks, "[r]: /target"])
)


class _Tags(HTMLParser):
    """Collect tags as they are written, and note whether they are balanced."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.seen, self.comments, self.opaque = Counter(), Counter(), Counter()
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
    letters, translated_letters = _letters(text), _letters(translated)
    if translate in IN_ORDER:
        assert translated_letters == letters
    assert Counter(translated_letters) == Counter(letters)


def _letters(text):
    return "".join(text.casefold().split())


def check_html(text, translate):
    """Translate an HTML text and compare its tags and its text.

    A copy of its text is the same page.
    """
    options = {"splitter": split_simply, "constrain": contain(translate)}
    translated = translate_document(text, "html", translate, **options)
    before, after = _Tags(text), _Tags(translated)
    assert after.seen == before.seen
    assert after.comments == before.comments
    assert after.opaque == before.opaque
    assert after.is_balanced >= before.is_balanced
    check_text(before.text, after.text, translate)
    assert translate_document(text, "html", copy, **options) == text
    return translated


def check_xml(text, translate):
    """Translate an XML text and compare its markup."""
    options = {"splitter": split_simply, "constrain": contain(translate)}
    translated = translate_document(text, "xml", translate, **options)
    assert _xml_counts(text) == _xml_counts(translated)
    assert translate_document(text, "xml", copy, split_simply) == text
    check_text(_xml_text(text), _xml_text(translated), translate)
    return translated


def _xml_text(text):
    return "".join(ElementTree.fromstring(text).itertext())


def _xml_counts(text):
    builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
    parser = ElementTree.XMLParser(target=builder)
    counts, kept = Counter(), []
    for node in ElementTree.fromstring(text, parser).iter():
        content = node.text if callable(node.tag) else ""
        counts[str(node.tag), *sorted(node.items()), content] += 1
        if node.get("translate") == "no":
            kept.append(node.text)
    return counts, kept


def check_markdown(text, translate):
    """Translate a Markdown text and compare its markup as HTML."""
    from markdown_it import MarkdownIt

    options = {"splitter": split_simply, "constrain": contain(translate)}
    translated = translate_document(text, "markdown", translate, **options)
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    before, after = parser.render(text), parser.render(translated)
    assert _html_counts(before) == _html_counts(after)
    check_text(_html_text(before), _html_text(after), translate)
    return translated


def _html_text(page):
    return unescape(re.sub(r"<[^>]*>", "", page))


def _html_counts(page):
    tags = re.findall(r"<(/?\w+)", re.sub(r"<(/?)s>", r"<\1del>", page))
    codes = re.findall(r"<code>.*?</code>", page, re.DOTALL)
    addresses = re.findall(r' (?:href|src)="[^"]*"', page)
    return Counter(tags), Counter(codes), Counter(addresses)


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
