"""Markdown keeps the form that its author chose."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.document_translation import by_word, reverse, translate_document
from tests.sweeps import examples
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.extensions.documents import parse_document
from vanilla_transformer.extensions.documents.markdown_format import MarkdownDocument

DOCUMENTS = {
    "formulas": "# Energy $E = mc^2$\n\nAs $e^{i x}$ turns, and \\(a_b\\) too.\n\n"
    "$$\nE = mc^2 \\text{ where } m\n$$\n\nBefore\n$$\nx\n$$\nand after.\n\n$$ one line $$\n\n"
    "\\[ a_b \\]\n\n\\[\n\\int f(x) dx\n\\]\n\n\\begin{equation}\nx_y = *z*\n\\end{equation}\n\n"
    "Costs $5 and $6 or US$7.\n",
    "admonitions": '!!! note "A title"\n    Some text here.\n\n    - an item\n\n??? warning\n    '
    "Hidden text.\n\n"
    '???+ tip "Open it"\n    Text.\n\n:::note\nInside *text*.\n:::\n\n'
    "::::tip Title\n:::note\nnested\n:::\n::::\n\nAfter.\n",
    "shortcodes": '{{< figure src="x y" title="t" >}}\n\n{{% note %}}\nText inside.\n{{% /note '
    "%}}\n\n"
    'Use {{ site.name }} or {{< ref "a b" >}} here.\n\n{% raw %}\n{{ code here }} and *words*\n\n'
    " more\n{% endraw %}\n\n{{< highlight go >}}\nfunc main() *x*\n{{< /highlight >}}\n\n"
    "{%- if page.x -%}\nText\n{% endif %}\n\n# Head {#the-id .cls}\n\n{: .lead}\nText here\n",
    "footnotes": "A note[^1] and more[^long-name].\n\n[^1]: The text.\n[^long-name]: Other text\n\n"
    "    A second part.\n",
    "yaml": '---\ntitle: My page\ndescription: "It\'s a *page*: really"\ndate: 2020-01-01\ntags: '
    "[one, two]\n---\n\n"
    "Text\n",
    "toml": "+++\ntitle = \"My page\"\ndraft = true\n[params]\nname = 'other'\n+++\n\nBody text\n",
    "html": '<!-- a comment -->\n\n<div class="x">\nhtml *x*\n</div>\n\n'
    "Text <!-- in line --> more <span class='a'>span</span>.\n\n<details>\n<summary>Sum</summary>\n"
    "\n"
    "Inner text.\n\n</details>\n",
    "definitions": (
        "Term one\n: Definition one.\n\nTerm *two*\n: First def\n: Second def\n\n    More.\n"
    ),
    "tables": "| Left | Center | Right |\n|:-----|:------:|------:|\n| a b  | `x|y`  | 3 \\| 4 |\n"
    "|  c_d_e | **bold** |   |\nwithout | pipes | here\n",
    "lists": "- [ ] open task\n- [x] done task\n\n* star item\n\n+ plus item\n\n1) one\n2) two\n",
    "references": "See [the page][ref] and [ref] or [Ref][] here, ![alt text][img].\n\n"
    "[ref]: https://a.example/x 'The title'\n[img]: <a b.png>\n  \"T\"\n",
    "breaks": "One line  \nanother line\\\nthird line\n",
    "characters": "Use snake_case, 2 * 3, [x], a_b_c, C#, 5 < 6 > 4, a & b, ~5, AT&T, x* y.\n\nC#\n"
    "\n# About C#\n\n"
    "# End #\n\nf(x) = {a} [b] (c) | d\n",
    "escapes": "Keep \\*these\\*, \\_that\\_, 2 \\* 3 * 4, \\[x\\], 1\\. no, &copy; &lt;b&gt; "
    "&amp; &nbsp;x, \\$5, \\#.\n\n"
    "1986\\. A year\n\n\\(see below\\) and \\[OPTIONS\\]\n\n\\[OPTIONS\\]\n",
    "headings": (
        "Title\n===\n\nSub *title*\n---\n\n### Three ###\n\n***\n\n> Quote text\n>\n> - item\n"
    ),
    "code": '```py title="x"\ncode *x*\n```\n\n    indented\n\n'
    "Use `a_b` and ``x ` y`` now, <https://a.example> and https://b.example/a_b.\n\n~~~\ntilde\n"
    "~~~\n",
    "emphasis": (
        "*a* _b_ **c** __d__ ~~e~~ ***f*** [l *m*](x.html \"T\") [n](<a b> 'T') ![i](s 't')\n"
    ),
}
LINES = [line for text in DOCUMENTS.values() for line in text.split("\n")]
LINES += [
    "> ",
    "- - x",
    "  indented",
    "\tTab",
    "a*b*c",
    "a  ",
    "<b>",
    "</b>",
    "$$",
    "{{",
    "\\[",
    ":::",
    "!!! x",
    "**a",
]


def translate(text, model):
    return translate_document(text, "markdown", model, split_simply)


copy, swap = by_word(str), by_word(str.swapcase)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_markdown_is_written_in_its_own_form(name):
    text = DOCUMENTS[name]
    assert translate(text, copy) == text
    swapped = translate(text, swap)
    assert swapped != text
    assert translate(swapped, swap) == text  # every block was written twice


@examples(100)
@given(
    st.lists(st.sampled_from(LINES), max_size=12), st.randoms(use_true_random=False), st.booleans()
)
def test_markdown_that_is_copied_is_the_same(lines, random, is_broken):
    text = "\n".join(lines)
    if is_broken:
        text = "".join(character for character in text if random.random() > 0.03)
    assert translate(text, copy) == text
    translate(text, swap)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use $x_a$ or \\(a\\) now \\(see this\\)", "USE $x_a$ OR \\(a\\) NOW \\(SEE THIS\\)"),
        ("a $5 b $6 c", "A $5 B $6 C"),
        ("Text\n$$\nx\n$$\nmore", "TEXT\n$$\nx\n$$\nMORE"),
        ('!!! note "A *b*"\n    Text', '!!! note "A *B*"\n    TEXT'),
        ("!!! note\n    Text", "!!! note\n    TEXT"),
        ("!!! Note\n    Text", "!!! Note\n    TEXT"),
        # of mkdocstrings
        (
            "::: a.b.c\n    options:\n        x: y\nText",
            "::: a.b.c\n    options:\n        x: y\nTEXT",
        ),
        ("::: a.b\n\nText\n\n" * 30, "::: a.b\n\nTEXT\n\n" * 30),
        (":::note Title\nText\n:::", ":::note TITLE\nTEXT\n:::"),
        (":::code-group\n```js [a b]\nc\n```\n:::", ":::code-group\n```js [a b]\nc\n```\n:::"),
        ("```{.py}\na\n```\n\n```{.note}\nb\n```", "```{.py}\na\n```\n\n```{.note}\nb\n```"),
        ("import it from here.\n\n    a = 1", "IMPORT IT FROM HERE.\n\n    a = 1"),  # no MDX
        ("[a](b 'c d') [e](f)", "[A](b 'C D') [E](f)"),
        ("[a](b 'c \\'d') e", "[A](b 'c \\'d') E"),
        ("{{% note %}}\nText\n{{% /note %}}", "{{% note %}}\nTEXT\n{{% /note %}}"),
        ("{% raw %}\nText\n\nb\n{% endraw %}\nc", "{% raw %}\nText\n\nb\n{% endraw %}\nC"),
        ("# Head {#id}", "# HEAD {#id}"),
        ("{: .lead}\nText", "{: .lead}\nTEXT"),
        ("Term\n: Text", "TERM\n: TEXT"),
        ("See [a b][c] and [c].\n\n[c]: /x 'T'", "SEE [A B][c] AND [C].\n\n[c]: /x 'T'"),
        ('[a b]({{< ref "c d" >}} "T") e', '[A B]({{< ref "c d" >}} "T") E'),
        (
            "[a]({% link b_c.md %}) [d](x/{{ e f }}/g#h)",
            "[A]({% link b_c.md %}) [D](x/{{ e f }}/g#h)",
        ),
        ("a {{ b {{ c }} d {% e {% f %} g", "A {{ B {{ c }} D {% E {% f %} G"),
        ("![a]({{ b c }}/d.png) e", "![a]({{ b c }}/d.png) E"),
        ("[a b][c]\n\n[c]: {{ d e }}/f", "[A B][c]\n\n[c]: {{ d e }}/f"),
        ("a  \nb\\\nc", "A  \nB\\\nC"),
        ("2 * 3 \\* snake_case [x] C#", "2 * 3 \\* snake_case [X] C#"),
        ("&lt;a&gt; & b", "&lt;a&gt; & B"),
        ("---\ntitle: My page\ndate: x\n---\n", "---\ntitle: MY PAGE\ndate: x\n---\n"),
        ("---\ntitle: 'My page' # old\n---", "---\ntitle: 'MY PAGE' # old\n---"),
        (
            "---\ntitle: >-\n  My\n  page\n\n# c\na: b\n---",
            "---\ntitle: >-\n  MY PAGE\n\n# c\na: b\n---",
        ),
        (
            "---\nx: {title: a, label: 'b'}\ny: &z a\n---",
            "---\nx: {title: a, label: 'B'}\ny: &z a\n---",
        ),
        ("---\ntitle: &a b\nlabel: *a\n---", "---\ntitle: &a b\nlabel: *a\n---"),
        ("---\ntitle: a: b\n---", "---\ntitle: a: b\n---"),
        ('{\n\t"title": "a"\n}\nb', '{\n\t"title": "A"\n}\nB'),
        ("---\ntitle:\n  - a\n---", "---\ntitle:\n  - a\n---"),
        ('+++\ndescription = "My page"\n+++\na', '+++\ndescription = "MY PAGE"\n+++\nA'),
        ("---\n\nText\n\n---", "---\n\nTEXT\n\n---"),  # no front matter
        ("---\ntitle:my page\n---\na", "---\ntitle:my page\n---\nA"),  # no mapping
        ("---\njust text\n---\na", "---\njust text\n---\nA"),
        ("+++\ntitle: a\n[b]\n+++\na", "+++\ntitle: a\n[b]\n+++\nA"),
    ],
)
def test_markdown_translates_text_only(text, expected):
    assert translate(text, by_word(str.upper)) == expected


@pytest.mark.parametrize("separator", "\v\f\x1c\x1d\x1e\x85\u2028\u2029")
def test_markdown_lines_end_at_line_feeds_only(separator):
    forms = [
        "one\n\n{}\n\ntwo\n",
        "{}\none\n{}\ntwo {} three\n{}\n",
        "# a{}b{}\n",
        "| a | {} |\n|---|---|\n| {}b | c |\n",
    ]
    forms += [
        "> {}\n> one\n",
        "- {}\n  one{}\n",
        '!!! note "{}"\n    {}\n    one\n',
        "---\ntitle: a{}b\n---\n{}\none\n",
    ]
    for text in (form.replace("{}", separator) for form in forms):
        document = MarkdownDocument(text)
        assert document.render(document.blocks) == text
        assert "one" not in translate(text, by_word(str.upper))


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("a", "*b* c_d", "\\*b\\* c_d"),
        ("a", "# b", "\\# b"),
        ("a", "$x$ b", "\\$x\\$ b"),
        ("a", "{% b %}", "\\{% b %}"),
        ("a", ": b", "\\: b"),
        ("a", "!!! b", "\\!!! b"),
        ("a \\* b", "a * b * c", "a \\* b \\* c"),
        ("---\ntitle: a\n---", "b: #c", '---\ntitle: "b: #c"\n---'),
        ("---\ntitle: a\n---", "No", '---\ntitle: "No"\n---'),
        ('+++\ntitle = "a"\n+++', 'a "b"', '+++\ntitle = "a \\"b\\""\n+++'),
        ("---\ntitle: |\n  a\n---", "No: #1", "---\ntitle: |\n  No: #1\n---"),
        ("{\n'title': 'a'\n}\n", "it's", "{\n'title': \"it's\"\n}\n"),
    ],
)
def test_markdown_escapes_what_would_be_markup(text, translation, expected):
    assert translate(text, lambda texts: [(translation, None)]) == expected


@pytest.mark.parametrize("rest", ["B_C (E) & #1, $5; 2 < 3.", "\\*B\\* &amp; C", "`b` C."])
def test_markdown_escapes_no_more_where_it_writes_tags_of_html(rest):
    def glue(texts):
        answers = []
        for text in texts:
            target = text.upper().replace("X (A) Y", "X(A)Y")
            words = re.finditer(r"\w+|[^\w\s]", text)
            others = re.finditer(r"\w+|[^\w\s]", target)
            links = []
            for word, other in zip(words, others, strict=True):
                links.append((*word.span(), *other.span(), 1.0))
            answers.append((target, links))
        return answers

    assert translate(f"x **(a)** y {rest}", glue) == f"X<strong>(A)</strong>Y {rest}"


HEADINGS = [  # the id that a link names, the heading and how it is translated
    ("a-b", "# a b", '# <a id="a-b"></a>B A'),
    ("what-s-new", "## What's *new*? ##", '## <a id="what-s-new"></a>*NEW?* WHAT\'S ##'),
    ("whats-new", "What's new?\n===", '<a id="whats-new"></a>NEW? WHAT\'S\n==='),
    ("c-d", "# 1. c d", '# <a id="c-d"></a>D C 1.'),
    ("smile-c-d", "# :smile: c d", '# <a id="smile-c-d"></a>:smile: D C'),
    ("cafe-a", "# Café a", '# <a id="cafe-a"></a>A CAFÉ'),
    ("caf%C3%A9-a", "# Café a", '# <a id="café-a"></a>A CAFÉ'),
    ("a-b-1", "# a b\n# c d\n# a b", '# B A\n# D C\n# <a id="a-b-1"></a>B A'),
    ("a_1", "# a b\n# a\n# a", "# B A\n# A\n# A"),
    ("c-d", "# c d\n# A {#id}", "# D C {#c-d}\n# A {#id}"),
    ("c-d", "# c d ##\n{{< x >}}", "# D C ## {#c-d}\n{{< x >}}"),
    ("c-d", "# c d {.x}\n# A {#id}", '# <a id="c-d"></a>D C {.x}\n# A {#id}'),
    ("c-d", "# c d {#c-d}", "# D C {#c-d}"),
    ("c-d", "<a name='c-d'></a>\n\n# c d", "<a name='c-d'></a>\n\n# D C"),
    ("x", "# a b", "# B A"),
]


@pytest.mark.parametrize(("name", "heading", "expected"), HEADINGS)
@pytest.mark.parametrize("link", ["[1](#{})", "[1][2]\n\n[2]: <#{}>", '<a href="#{}">1</a>'])
def test_links_lead_to_translated_headings(name, heading, expected, link):
    link = link.format(name)
    text = f"{heading}\n\n{link}"
    assert translate(text, reverse) == f"{expected}\n\n{link}"
    assert translate(text, copy) == text
    assert "<a id" not in translate(text, by_word(str.upper))


def test_markdown_render_returns_the_text_for_its_own_blocks():
    text = "a  b\nc `d\n  e`\n"
    document = parse_document(text, "markdown")
    assert document.render(document.blocks) == text
