"""Markup stays at its words, and beside text that must survive: URLs, fields, formulas, messages and codes."""

import pytest

from tests.fake_translation import copy_kept, reverse, shout
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.extensions.documents import BlockTranslator, translate_documents

UNIT = (
    '<xliff version="1.2"><file source-language="en" target-language="de" original="x"><body>'
    '<trans-unit id="1"><source>{}</source></trans-unit></body></file></xliff>'
)


MODEL = copy_kept(reverse)


def translate(text, format="html", protect=True, model=MODEL, **given):
    """Return a translated paragraph or segment, and the texts that the model read."""
    read = []

    def translate_all(texts):
        read.append(list(texts))
        return model(texts)

    document = f"<p>{text}</p>" if format == "html" else UNIT.format(text)
    translator = BlockTranslator(translate_all, split_simply, protect=protect, **given)
    (translated,) = translate_documents([document], format, translator)
    if format == "html":
        return translated.removeprefix("<p>").removesuffix("</p>"), read
    return translated.partition("<target")[2].partition(">")[2].partition("</target>")[0], read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "See <a href=x>https://a.example/x</a> and <b>me@mail.example</b> now.",
            "NOW. <b>me@mail.example</b> AND <a href=x>https://a.example/x</a> SEE",
        ),
        ("Drink H<sub>2</sub>O and <b>{name}</b> now", "NOW <b>{name}</b> AND H<sub>2</sub>O DRINK"),
        ("Run <code>a b</code>https://a.example/x now", "RUN <code>a b</code>https://a.example/x NOW"),
        ("1 <b>(2</b>) 3. Two <i>men</i> run.", "1 <b>(2</b>) 3. RUN. <i>MEN</i> TWO"),
        ("{a} (<b>(</b>( {b}. Two <i>men</i> run.", "{a} (<b>(</b>( {b}. RUN. <i>MEN</i> TWO"),
        ("{n, plural, one {# <code>f</code>} other {# files}} left.", None),
        (
            "<b>Now</b> {n, plural, one {a} other {b}} <i>files</i>",
            "<i>FILES</i> {n, plural, one {A} other {B}} <b>NOW</b>",
        ),
    ],
)
def test_block_translator_keeps_markup_at_text_that_survives(text, expected):
    assert translate(text)[0] == (expected or text.replace("left", "LEFT"))


def test_block_translator_translates_branches_of_messages_and_text_around_lost_text():
    text = "You have {n, plural, one {# file} other {%d and %s of # files}} now. <u>Two men</u> run."
    expected = "NOW. {n, plural, one {FILE #} other {%d AND %s OF # FILES}} HAVE YOU RUN. <u>MEN TWO</u>"
    translated, read = translate(text)
    assert translated == expected
    branches = ["You have {0} now.", "{0} file", "%d and %s of {0} files"]
    assert sorted(sum(read, [])) == sorted([*branches, "Two men run.", "and", "of", "files"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'Del <bpt id="1">&lt;b&gt;</bpt>{name}<ept id="1">&lt;/b&gt;</ept> <x id="2"/> of %s <g id="3">now</g>',
            '<g id="3">NOW</g> %s <x id="2"/> OF <bpt id="1">&lt;b&gt;</bpt>{name}<ept id="1">&lt;/b&gt;</ept> DEL',
        ),
    ],
)
def test_block_translator_keeps_codes_of_xliff_beside_fields(text, expected):
    assert translate(text, "xliff")[0] == expected


def test_block_translator_keeps_codes_of_xliff_in_branches_of_messages():
    text = 'You {n, plural, one {# file} other {# <x id="1"/> files}}'
    expected = 'YOU {n, plural, one {# FILE} other {# <x id="1"/> FILES}}'
    assert translate(text, "xliff", model=copy_kept(shout))[0] == expected


def test_block_translator_masks_fixed_text_and_fields_together():
    model = copy_kept(shout)
    translated, read = translate("Press <kbd>B c</kbd> at {a} now", model=model, masks=["<ph0>", "<ph1>"])
    assert (translated, read) == ("PRESS <kbd>B c</kbd> AT {a} NOW", [["Press <ph0> at <ph1> now"]])


def test_block_translator_keeps_a_piece_whose_translation_has_fixed_text_of_another_one():
    def repeat(texts):
        return [(f"{text.upper()} B c" if text == "Press" else text.upper(), None) for text in texts]

    assert translate("Press <kbd>B c</kbd> now", model=repeat)[0] == "Press <kbd>B c</kbd> NOW"


def test_block_translator_translates_around_fixed_text_whose_markup_would_cross():
    def cross(texts):
        return [("x A z B y C" if text == "a x b y c z." else text.upper(), None) for text in texts]

    text = "<b>a <code>x</code> b <code>y</code></b> <i>c <code>z</code></i>. Two <u>men</u> run."
    translated, _ = translate(text, model=cross)
    expected = "<b>A <code>x</code> B <code>y</code></b> <i>C <code>z</code></i>. TWO <u>MEN</u> RUN."
    assert translated == expected


@pytest.mark.parametrize(
    ("found", "model"), [(0, lambda texts: []), (2, lambda texts: [*MODEL(texts), ("more", None)])]
)
def test_translator_that_returns_another_number_of_translations_is_refused(found, model):
    with pytest.raises(ValueError, match=rf"^`translate` must return 1 translations, got {found}\.$"):
        translate("Two men run.", model=model)


def test_constrained_translations_of_another_number_are_refused():
    def constrain(texts, phrases):
        return []

    with pytest.raises(ValueError, match=r"^`translate` must return 1 translations, got 0\.$"):
        translate(
            "See https://a.example/x now.", model=lambda texts: [("Lost", None) for _ in texts], constrain=constrain
        )
