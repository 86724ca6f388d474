"""Wrapped text is translated by its paragraphs."""

import textwrap

import pytest

from tests.document_translation import copy, reverse, shout, translate_document
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.extensions.documents import WrappedText
from vanilla_transformer.extensions.documents.line_breaks import join_lines, wrap

WORDS = (
    "The old man walked along the river and saw two small dogs that were playing with "
    "a ball near the bridge."
)
CHINESE = "一个老人沿着河边走，看见两只小狗在桥附近玩球。后来孩子们也来了，他们都很高兴，一起在草地上休息。"
HINDI = "एक बूढ़ा आदमी नदी के किनारे चल रहा था और उसने दो छोटे कुत्तों को पुल के पास गेंद से खेलते हुए देखा।"
ARABIC = (
    "هل رأى الرجل العجوز كلبين صغيرين كانا يلعبان بالكرة قرب الجسر بينما كان الأطفال "
    "يركضون على العشب؟"
)


def translate(text, model):
    return translate_document(text, "wrapped", model, split_simply)


def paragraphs(text):
    return [block.text for block in WrappedText(text).blocks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\nc", ["a b c"]),
        ("a\n\n\nb\nc\n", ["a", "", "", "b c", ""]),
        ("  a\nb\n  c\nd", ["a b", "c d"]),
        ("- a\n  b\n- c\n1. d", ["a b", "c", "d"]),
        ("- a\n  b\nc", ["a b", "c"]),
        ("I saw the\ndog. It ran.\na) b\n(2) c", ["I saw the dog. It ran.", "b", "c"]),
        ("He was born\nin the year\n1990.", ["He was born in the year 1990."]),
        ("See the page\nhttps://a.example/" + "b" * 90 + "\nfor the\nrest.", None),
        (
            "　　两只小狗在草地上玩，\n后来走了。\n　　一个人。",
            ["两只小狗在草地上玩，后来走了。", "一个人。"],
        ),
        ("> a b\n> c\n>> d\n>> e\nf", ["a b c", "d e", "f"]),
        ("I saw a well-\nknown dog and ex\u00ad\nample.", ["I saw a well-known dog and example."]),
        (
            "He saw the big dogs that\nwere\nhere all day.",
            ["He saw the big dogs that were", "here all day."],
        ),
        (
            "He saw the big dogs\nthat were here all day.",
            ["He saw the big dogs that were here all day."],
        ),  # by hand
        ("", [""]),
    ],
)
def test_wrapped_text_finds_paragraphs(text, expected):
    assert paragraphs(text) == (expected or [" ".join(text.split("\n"))])


PROSE = textwrap.fill(WORDS, 40)
VERSE = [
    "Tiger, tiger, burning bright,",
    "In the forests of the night;",
    "What immortal hand or eye,",
]
ROW = "a dog      a cat     a man     a house xx"


@pytest.mark.parametrize(
    "lines",
    [
        ["A heading", PROSE],
        [PROSE, "=" * 40, PROSE],
        ["eggs", "milk and bread", "two apples", "", PROSE],
        [*VERSE, PROSE],
        ["| a dog | a cat |", "|-------|-------|", "| a man | a boy |", PROSE],
        [ROW, ROW, PROSE],
        ["Name\tAge of each of the many members", "Ann\tthirty years and a few more days", PROSE],
        ["From: Ann", "To: Ben", "", PROSE, "--", "Ann"],
        ["* one", "* two", "  * three", "4) four", "5. five", PROSE],
    ],
)
def test_wrapped_text_joins_no_headings_lists_verses_and_tables(lines):
    expected = "\n".join(lines).replace(PROSE, WORDS).split("\n")
    text = "\n".join(lines)
    paragraphs_of_text = WrappedText(text)._paragraphs
    starts = [line.indent + line.mark for line, *_ in paragraphs_of_text]
    assert [*map("".join, zip(starts, paragraphs(text), strict=True))] == expected
    assert translate(text, copy) == text


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_wrapped_text_wraps_translations_at_its_width(mark, line_end):
    lines = textwrap.wrap(WORDS, 40, initial_indent="  ")
    text = mark + line_end.join([*lines, "", "- an item", "  more", ""])
    width = max(map(len, lines))
    ((translation, _),) = reverse([WORDS])
    expected = textwrap.wrap(translation, width, initial_indent="  ")
    expected += ["", "- MORE ITEM AN", ""]
    assert translate(text, reverse) == mark + line_end.join(expected)


def test_wrapped_text_keeps_marks_of_items_and_quotations():
    quoted = {"initial_indent": "> ", "subsequent_indent": "> "}
    text = "\n".join([*textwrap.wrap(WORDS, 40, **quoted), ">", "> 1. one"])
    assert translate(text, shout) == text.upper()
    indents = {"initial_indent": " * ", "subsequent_indent": "   "}
    item = textwrap.fill(WORDS, 40, **indents)
    assert translate(item, shout) == item.upper()
    long = "\n".join([*[PROSE] * 7, f"- {WORDS}"])
    width = WrappedText(long).width
    indents = {"initial_indent": "- ", "subsequent_indent": "  "}
    item = textwrap.fill(WORDS.upper(), width, **indents)
    assert width <= 40
    assert translate(long, shout).endswith("\n" + item)


def test_wrapped_text_keeps_rows_of_tables_on_one_line():
    row = "| " + " | ".join(WORDS.split()) + " |"
    assert translate(f"{PROSE}\n\n{row}", shout).endswith("\n\n" + row.upper())


def test_wrapped_text_that_is_copied_is_the_same():
    text = "\ufeff  a  b\r\nc\r\n\r\n- d\r\n   e \r\n\r\n\r\n"
    assert translate(text, copy) == text


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["今日は", "いい天気"], "今日はいい天気"),
        (["他说：", "“你好。”", "我走了。"], "他说：“你好。”我走了。"),
        (["使用 Python", "语言"], "使用 Python 语言"),
        (["คน", "นอน"], "คนนอน"),
        (["두 마리의", "개"], "두 마리의 개"),
        (["एक आदमी है", "वह"], "एक आदमी है वह"),
        (["ما هذا؟", "نعم"], "ما هذا؟ نعم"),
        (["well-", "known", "X-", "Ray -", "a"], "well-known X- Ray - a"),
    ],
)
def test_join_lines_writes_spaces_where_the_script_has_them(lines, expected):
    assert join_lines(lines) == expected


def test_wrap_knows_wide_characters_and_punctuation():
    """No line begins with punctuation."""
    lines = ["男人在", "（这", "里）。ok", "今日は何"]
    assert wrap("男人在（这里）。ok 今日は何", 8) == lines
    for line in wrap(CHINESE, 20):
        assert len(line) <= 10
        assert line[0] not in "，。"
    assert "".join(wrap(CHINESE, 20)) == CHINESE
    long = "b" * 30
    assert wrap(f"a {long} c", 10, "> ", "> ") == ["> a", f"> {long}", "> c"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (textwrap.fill(WORDS, 40), [1, 2]),
        ("The file could not be saved\nbecause the disk is full.", [1]),
        ("The file could not be saved.\nbecause the disk is full.", []),
        ("The file could not be saved:\nthe disk is full.", []),
        ("The file could not be saved: \nthe disk is full.", []),
        ("Read more about the file here\nhttps://example.org/file", []),
        ("Could not open the file\n%s", []),
        ("Open the file of the day\nSave the file", []),
        ("- The first item of all that\n  is long\n- b\n\nYes, of all of these the\nlast.", [1, 5]),
        ("red\ngreen\nblue", []),
        (textwrap.fill(WORDS, 20).replace("\nth", "\nTh"), [1, 2, 3, 4, 5]),
        ("\n".join(wrap(CHINESE, 20)), [1, 2, 3, 4]),
        ("", []),
    ],
)
def test_lines_of_a_message_end_within_its_sentences(text, lines):
    numbers = []
    for end in WrappedText(text).find_wraps():
        assert text[end] == "\n"
        numbers.append(text.count("\n", 0, end) + 1)
    assert sorted(numbers) == lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (textwrap.fill(WORDS, 25), True),
        (textwrap.fill(WORDS, 30) + "\n\n" + textwrap.fill(WORDS, 30), True),
        ("A heading\n" + textwrap.fill(f"{WORDS} {WORDS}", 30), True),
        ("\n".join(wrap(CHINESE, 20)), True),
        (textwrap.fill(HINDI, 30), True),
        (textwrap.fill(ARABIC, 30), True),
        (
            "A man sleeps.\nTwo dogs are running on the grass.\nA child.\nIt is late now.\nYes.",
            False,
        ),
        ("他睡觉。\n两只小狗在草地上玩球。\n今天很晚了。\n是的，他们都在这里。\n好。", False),
        ("เขานอน\nสุนัขสองตัวกำลังเล่นอยู่บนสนามหญ้า\nวันนี้ดึกแล้ว\nใช่\nดี", False),
        (
            "\n".join(
                f"The dog {name} sleeps well."
                for name in ("Ann", "Ben", "Cat", "Dan", "Eve", "Fay")
            ),
            False,
        ),
        ("\n".join([PROSE, PROSE, *["A man and a dog", "A cat and a cow"] * 5]), False),
        ("\n".join(["a dog      a cat     a man", "a cow      a pig     a boy"] * 4), False),
        ("eggs\nmilk\nbread\napples\nsugar", False),
        ("New York\nOld Town\nSan Jose\nLos Pinos\nSan Mateo", False),
        (
            "\n".join(
                f"description_of_the_page_{name}" for name in ("ann", "ben", "cat", "dan", "eve")
            ),
            False,
        ),
        (WORDS, False),
        ("", False),
    ],
)
def test_wrapped_text_tells_whether_lines_are_wrapped(text, expected):
    assert WrappedText(text).is_wrapped is expected
