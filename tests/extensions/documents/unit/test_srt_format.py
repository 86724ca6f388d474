"""Sentences of subtitles go over several cues, and all but their text stays."""

import pytest

from tests.document_translation import copy, reverse, shout, translate_document
from vanilla_transformer.decoding.sentence_splitter import AbbreviationSplitter
from vanilla_transformer.extensions.documents import parse_document


def subtitles(*contents, pause=0.5):
    """Return subtitles with these contents, each two seconds long."""
    cues = []
    for number, content in enumerate(contents):
        start = round(number * (2 + pause) * 1000)
        times = ("00:00:{:02},{:03}".format(*divmod(time, 1000)) for time in (start, start + 2000))
        cues.append(f"{number + 1}\n{' --> '.join(times)}\n{content}\n\n")
    return "".join(cues)


def texts(*contents, **options):
    document = parse_document(subtitles(*contents, **options), "srt")
    return [block.text for block in document.blocks]


def translate(contents, model):
    text = subtitles(*contents)
    return translate_document(text, "srt", model, AbbreviationSplitter())


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (
            ["When the man", "came home,", "he slept. And\nthen", "he woke.", "Then"],
            ["When the man came home, he slept. And then he woke.", "Then"],
        ),
        (["- Hello.\n- And then we", "went home."], ["Hello.", "And then we went home."]),
        (["ANN: We sleep", "and wake."], ["ANN: We sleep and wake."]),
        (["ANN:\nWe sleep\nand", "wake."], ["ANN:", "We sleep and wake."]),
        (["We sleep", "Ann B.: \nNo.\nBEN:\nBen"], ["We sleep", "Ann B.:", "No.", "BEN:", "Ben"]),
        (["Hello,", "Ann. I have", "5 dogs."], ["Hello, Ann. I have 5 dogs."]),
        (["两只小狗", "在草地上玩。", "他\n睡觉。"], ["两只小狗在草地上玩。", "他睡觉。"]),
        (["今日は、", "いい天気"], ["今日は、いい天気"]),
        (["एक आदमी है", "जो सोता है।"], ["एक आदमी है जो सोता है।"]),
        (["الرجل العجوز،", "نام."], ["الرجل العجوز، نام."]),
        (["두 마리의 개가", "잔다."], ["두 마리의 개가 잔다."]),
        (["Два пса", "спят."], ["Два пса спят."]),
    ],
)
def test_srt_document_joins_the_cues_of_a_sentence(contents, expected):
    assert texts(*contents) == expected


@pytest.mark.parametrize(
    "contents",
    [
        ("He sleeps.", "and she"),
        ("He sleeps", "She wakes"),
        ("A child is sleeping", "Two dogs run."),  # many subtitles lack some full stops
        ("He sleeps…", "and wakes"),
        ("He sleeps -", "and wakes"),
        ("He sleeps", "- and you?"),
        ("He sleeps,", "ANN: And she?"),
        ("He sleeps", "(laughs)"),
        ("He sleeps", ">> and she?"),
        ("<i>He sleeps</i>", "and wakes"),
        ("He sleeps", "<i>and wakes</i>"),
        ("He sleeps", "{\\an8}and wakes"),
        ("♪", "la la"),
        ("♪ he sleeps", "and wakes ♪"),
        ("He sleeps", "", "and wakes"),
        ("今日は", "明日は"),
        ("他睡觉。", "她走了。", "是吗？", "好！"),
        ("他睡觉。", "她走了", "是吗", "好", "来", "去"),  # few full stops
        ("هل نام؟", "نعم."),
        ("वह सोता है।", "वह उठता है।"),
        ("one", "two", "three", "four", "five", "six", "seven"),  # no punctuation marks
    ],
)
def test_srt_document_keeps_sentences_apart(contents):
    assert len(texts(*contents)) == len(contents)


def test_srt_document_keeps_cues_apart_after_a_pause_and_at_one_time():
    assert len(texts("He sleeps", "and wakes", pause=2)) == 1
    assert len(texts("He sleeps", "and wakes", pause=3)) == 2
    assert len(texts("He sleeps", "and wakes", pause=-1)) == 2


@pytest.mark.parametrize(
    ("contents", "translate_texts", "expected"),
    [
        (("the man who", "sleeps here now."), shout, ("THE MAN WHO", "SLEEPS HERE NOW.")),
        (("a b c", "d\ne f"), reverse, ("F E D", "C B\nA")),
        (("a bb, cc", "dd ee ff."), shout, ("A BB,", "CC DD EE FF.")),
        (
            ("one two", "three", "four."),
            lambda all: [("Wort", None) for _ in all],
            ("Wort", "", ""),
        ),
        (
            ("one two", "three", "four."),
            lambda all: [("ein langesWort x", None) for _ in all],
            ("ein", "langesWort", "x"),
        ),
        (
            ("the man", "is here"),
            lambda all: [("男人在这里", None) for _ in all],
            ("男人", "在这里"),
        ),
        (("- x\n- a", "bbbbbbbbbbbb cc."), shout, ("- X\n- A", "BBBBBBBBBBBB CC.")),
        (("a man", "", "and a dog."), shout, ("A MAN", "", "AND A DOG.")),
        # Lines are wrapped by the text between tags.
        (
            ('<font color="#ff0000">aa bb</font>\ncc dd',),
            shout,
            ('<font color="#ff0000">AA BB</font>\nCC DD',),
        ),
        (
            ("{\\an8} aa bb cc\n<b><i>dd</i></b> ee ff",),
            shout,
            ("{\\an8} AA BB CC\n<b><i>DD</i></b> EE FF",),
        ),
        (("aa bb\u00a0cc\ndd <b> ee ff",), shout, ("AA BB\u00a0CC\nDD <b> EE FF",)),
    ],
)
def test_srt_document_divides_a_translation_over_cues(contents, translate_texts, expected):
    translated = translate(contents, translate_texts)
    assert translated.rstrip() == subtitles(*expected).rstrip()


def test_srt_document_that_is_copied_is_the_same():
    contents = ["When, the man", "came\nhome late", "late, he slept.", ""]
    text = subtitles(*contents, "- A\n- b", "c <i>d</i>.", "两只\n狗")
    for document in (text, "\ufeff" + text.replace("\n", "\r\n")):
        assert translate_document(document, "srt", copy, AbbreviationSplitter()) == document


@pytest.mark.parametrize(
    "text",
    [
        "00:00:01.000 --> 00:00:02.000\nno number\n\n7\n0:00:03,5-->0:00:04,50 X1:1\n\na\nb\n\n\n",
        "1\r\n00:00:01,000 --> 00:00:02,000\na\r\nb\n\r\n2\r\n00: 00: 03,000 -> 00: 00: 04,000\r\n"
        "c",
        "1\r00:00:01,000 --> 00:00:02,000\ra\rb\r\r2\r00:00:03,000 --> 00:00:04,000\rc\r",
    ],
)
def test_srt_document_keeps_times_numbers_and_line_ends(text):
    translated = translate_document(text, "srt", shout, AbbreviationSplitter())
    assert translated.lower() == text.lower()
    assert translated != text


def test_vtt_document_translates_speeches_only():
    text = (
        "\ufeffWEBVTT - a title\nKind: captions\n\nNOTE a note\nof --> two lines\n\nSTYLE\n"
        "::cue(b) {color: red}\n\n"
        "REGION\nid:fred\n\nintro\n00:01.000 --> 00:02.500 align:start\n<v Ann Lee>it is "
        "<c.red>cold &amp; wet</c>\n\n"
        "01:00:03.000 --> 01:00:04.000\n- so &lt;b\n- <00:03.500>no\n\nNOTE last\n\n01:01:00.000 "
        "--> 01:02:00.000\na"
    )
    expected = text.replace("it is", "IT IS").replace("&lt;b", "&lt;B")
    expected = expected.replace("cold &amp; wet", "COLD &amp; WET")
    expected = expected.replace("- so", "- SO").replace(">no", ">NO")[:-1] + "A"
    assert translate_document(text, "vtt", shout, AbbreviationSplitter()) == expected
    assert translate_document(text, "vtt", copy, AbbreviationSplitter()) == text


def test_vtt_document_escapes_what_the_specification_wants():
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\na"
    splitter = AbbreviationSplitter()
    answers = [("1 < 2 & 3\u00a0>", None)]
    translated = translate_document(text, "vtt", lambda texts: answers, splitter)
    assert translated.splitlines()[-1] == "1 &lt; 2 &amp; 3&nbsp;&gt;"
