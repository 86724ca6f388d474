"""Keep URLs, placeholders and numbers in translations: by masks, by constraints, or by translating
the rest alone.
"""

import re

import pytest

from vanilla_transformer.decoding.engine.phrase_constraints import ConstraintError
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.icu_messages import parse_message
from vanilla_transformer.decoding.protection.protected_search import (
    ProtectedSearch,
    remove_masks,
)
from vanilla_transformer.decoding.segments import join_cut
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.steps import keep_protected
from vanilla_transformer.decoding.translations import Link, Translation
from vanilla_transformer.pipeline_vanilla_transformer import Segment

SHOUTED = "MAIL {name} TO me@mail.example BY https://a.example/x 🙂 12,345.60"
TEXT = SHOUTED.replace("MAIL", "Mail").replace(" TO ", " to ").replace(" BY ", " by ")


def options_of(count=1, protect=True):
    return TranslationOptions(num_return_sequences=count, protect=protect)


class Tokenizer:
    """Words are tokens; `masks` are those that the model copies."""

    def __init__(self, masks=()):
        self._masks = masks
        self.all_special_ids = [0]

    def get_added_vocab(self):
        return dict(zip(self._masks, range(len(self._masks)), strict=True))

    def convert_ids_to_tokens(self, token):
        return "<unk>"

    def __call__(self, text_target, add_special_tokens):
        return {"input_ids": [[0 if "🙂" in text else len(text)] for text in text_target]}


class Model:
    """Write everything in capitals. Masks and, under constraints, phrases stay if it can."""

    def __init__(self, masks=(), can_constrain=False, count=1):
        self.masks, self.can_constrain, self.count = masks, can_constrain, count
        self.searched, self.constrained, self.done = [], [], 0

    def translate(self, sentences, uses_masks=True):
        search = keep_protected(self.decode, Tokenizer(self.masks), uses_masks)
        found = search(sentences, options_of(self.count), self._report)
        assert self.done == len(sentences)
        return [[each.text for each in row] for row in found]

    def _report(self, count):
        self.done += count

    def decode(self, sentences, options, report):
        if options.num_beams:
            return self._constrain(sentences)
        report(len(sentences))
        self.searched += sentences
        assert all(each.tokens in ((), [len(each.text)]) for each in sentences)
        return [
            [Translation(self._shout(each.text), score=-1.0)] * self.count for each in sentences
        ]

    def _shout(self, text):
        return " ".join(word if word in self.masks else word.upper() for word in text.split(" "))

    def _constrain(self, sentences):
        self.constrained += sentences
        if not self.can_constrain:
            raise ConstraintError("There are too many phrases.")
        return [[Translation(SHOUTED.replace("🙂 ", ""))] for _ in sentences]


def sentence(text, **given):
    return Sentence(text, "", [len(text)], **given)


MASKS = [f"<ph{number}>" for number in range(5)]
ICU = "You have {n, plural, one {# file} other {# files}} by {name} now"
SHOUTED_ICU = "YOU HAVE {n, plural, one {# FILE} other {# FILES}} BY {name} NOW"


@pytest.mark.parametrize(
    ("model", "sources", "translations", "searched"),
    [
        (Model(), ["A man.", "2 dogs at 10."], ["A MAN.", "2 DOGS AT 10."], None),
        (
            Model(MASKS),
            [TEXT, "A man."],
            [SHOUTED, "A MAN."],
            ["Mail <ph0> to <ph1> by <ph2> <ph3> <ph4>", "A man."],
        ),
        (Model(), ["At 12:30, 2,015 MEN."], ["AT 12:30, 2,015 MEN."], None),
        # The model's own tokens are marks.
        (
            Model(["<term>", "</term>", *MASKS]),
            ["A <term> dog </term> ."],
            ["A <term> DOG </term> ."],
            None,
        ),
        # What no translation has is copied; the vocabulary lacks the emoji.
        (Model(), [TEXT, "A man."], [SHOUTED, "A MAN."], [TEXT, "A man.", "Mail", "to", "by"]),
        (
            Model(count=3),
            [TEXT, "A man."],
            [SHOUTED, "A MAN."],
            [TEXT, "A man.", "Mail", "to", "by"],
        ),
        (
            Model(count=2),
            ["https://a.example/x 🙂 12345", "A man."],
            ["https://a.example/x 🙂 12345", "A MAN."],
            ["A man."],
        ),
        (
            Model(MASKS),
            ["A man.", ICU, "{n, plural, other {#}}"],
            ["A MAN.", SHOUTED_ICU, "{n, plural, other {#}}"],
            ["A man.", "You have <ph0> by <ph1> now", "<ph0> file", "<ph0> files"],
        ),
    ],
)
def test_protected_search_masks_or_goes_around(model, sources, translations, searched):
    assert model.translate([*map(sentence, sources)]) == [
        [text] * model.count for text in translations
    ]
    assert [text.text for text in model.searched] == (searched or sources)
    assert not model.constrained


def test_protected_search_translates_again_under_constraints():
    model, text = Model(can_constrain=True), TEXT.replace("🙂 ", "")
    assert model.translate([sentence(text)]) == [[SHOUTED.replace("🙂 ", "")]]
    (again,) = model.constrained
    assert [list(phrase) for phrase in again.phrases] == [[6], [15], [19], [9]] and len(
        model.searched
    ) == 1


@pytest.mark.parametrize("options", [{"do_sample": True}, {"mbr": "chrf"}])
def test_protected_search_constrains_no_samples(options):
    model, text = Model(can_constrain=True), TEXT.replace("🙂 ", "")
    search = keep_protected(model.decode, Tokenizer())
    ((found,),) = search(
        [sentence(text)], TranslationOptions(protect=True, **options), lambda done: None
    )
    assert found.text == SHOUTED.replace("🙂 ", "") and not model.constrained


def test_protected_search_gives_up_constraints_of_single_sentences():
    calls = []

    def decode(sentences, options, report):
        constrained = [each.text for each in sentences if each.phrases]
        if constrained:
            calls.append((len(constrained), options.num_beams, options.count))
            if any("bad" in text for text in constrained):
                raise ConstraintError("It has too many phrases.")
        return [
            [Translation(each.text.upper().replace("{A}", "{a}" * bool(constrained)))] * 5
            for each in sentences
        ]

    options = TranslationOptions(num_beams=2, num_return_sequences=5, protect=True)
    sentences = [sentence(f"{word} {{a}}") for word in ("good", "bad", "fine", "well")]
    found = keep_protected(decode, Tokenizer())(sentences, options, lambda done: None)
    assert [row[0].text for row in found] == ["GOOD {a}", "BAD {a}", "FINE {a}", "WELL {a}"]
    assert calls == [(4, 5, 5), (2, 5, 5), (1, 5, 5), (1, 5, 5), (2, 5, 5)]
    assert [TranslationOptions(num_beams=beams).with_beams().num_beams for beams in (None, 8)] == [
        4,
        8,
    ]


def test_protected_search_does_not_change_sentences_with_a_prefix_or_lose_phrases():
    model = Model(masks=["<ph0>"])
    prefixed, constrained = sentence("See {a}.", prefix=[5]), sentence("See {a}.", phrases=[[7]])
    assert model.translate([prefixed, constrained]) == [["SEE {A}."], ["SEE {A}."]]
    searched = [part._replace(kept=None) for part in model.searched]
    assert searched == [prefixed, constrained] and model.constrained[0].phrases[0] == [7]


def test_protected_search_uses_no_masks_that_a_reverse_model_lacks():
    model = Model(masks=["<ph0>"])
    assert model.translate([sentence("See {a} now.")], uses_masks=False) == [["SEE {a} NOW."]]
    assert model.searched[0].text == "See {a} now."


def test_join_cut_joins_segments_that_cut_text_to_keep():
    cut = [
        Segment("A. {n, plural,", "\n"),
        Segment("other {# files.", " "),
        Segment("Yes.}}", " "),
        Segment("B.", ""),
    ]
    joined = [Segment("A. {n, plural,\nother {# files. Yes.}}", " "), Segment("B.", "")]
    assert join_cut(cut, True) == joined and join_cut(cut, False) == cut


def search(text, answer, kept=None):
    """Return the translation that a search makes, given the answer of a model to each text that it
    sees.
    """
    search = ProtectedSearch(
        lambda some, options, report: [[answer(each.text)] for each in some], options_of()
    )
    ((found,),) = search([sentence(text, kept=kept)], lambda done: None)
    return found


def test_protected_search_links_the_words_and_the_syntax_of_a_message():
    links = [Link(0, 2, 10, 12, 0.5), Link(9, 12, 0, 3, 0.5)]
    known = {"it's {0} men": Translation("MEN's {0} IT", alignment=links)}
    text, expected = (
        "it''s {n, plural, one {a} other {b}} men",
        "MEN''s {n, plural, one {A} other {B}} IT",
    )
    found = search(text, lambda shown: known.get(shown, Translation(shown.upper())))
    assert found.text == expected
    pairs = {(text[start:end], expected[low:high]) for start, end, low, high, _ in found.alignment}
    assert pairs == {("it", "IT"), ("men", "MEN"), (text[6:-4], expected[7:-3])}


@pytest.mark.parametrize("answer", ["{7}", "{0}", "'", "#"])
def test_protected_search_keeps_the_syntax_of_messages(answer):
    found = search("{n, plural, one {file} other {files}}", lambda shown: Translation(answer))
    assert [each.spaces for each in parse_message(found.text).messages()] == [("", "")] * 3


def test_protected_search_links_what_survives_with_itself():
    found = search(
        "see {a} 🙂 men",
        lambda shown: Translation(shown.upper(), alignment=[Link(0, 3, 0, 3, 0.5)]),
    )
    assert found.text == "SEE {a} 🙂 MEN"
    assert [link[:4] for link in found.alignment] == [
        (0, 3, 0, 3),
        (4, 7, 4, 7),
        (8, 9, 8, 9),
        (10, 13, 10, 13),
    ]


def test_protected_search_spaces_translations_around_what_survives():
    answers = {"Name:": "NAME", ", or": "OR", "men": "MEN"}
    found = search(
        "Name:{a}, or {b} men",
        lambda text: Translation(answers.get(text, ""), alignment=[Link(0, 1, 0, 1, 0.5)]),
    )
    assert found.text == "NAME {a} OR {b} MEN"
    assert Link(8, 9, 9, 10, 0.5) in found.alignment  # of ", or"


def test_protected_search_keeps_links_in_place_beside_a_space_that_it_adds():
    found = search(
        "{a} men", lambda shown: Translation("{a}MEN", alignment=[Link(4, 7, 3, 6, 0.5)])
    )
    assert found.text == "{a} MEN" and Link(4, 7, 4, 7, 0.5) in found.alignment


@pytest.mark.parametrize(
    ("links", "place"),
    [
        ([], (0, 3)),
        ([Link(0, 3, 8, 11, 0.9), Link(8, 11, 0, 3, 0.5)], (8, 11)),
        ([Link(0, 3, 8, 11, 0.4), Link(8, 11, 8, 11, 0.5), Link(0, 3, 0, 3, 0.5)], (0, 3)),
    ],
)
def test_protected_search_tells_text_to_keep_from_equal_words_by_links(links, place):
    found = search(
        "Tom and Tom", lambda shown: Translation("Tom und Tom", alignment=links), [(0, 3)]
    )
    assert found.text == "Tom und Tom" and [
        link for link in found.alignment if link.weight == 1
    ] == [Link(0, 3, *place, 1)]


@pytest.mark.parametrize(
    ("text", "kept", "translation", "is_right"),
    [
        ("Tom and Tom", [(0, 3)], "Tom und er", True),
        ("Tom and Tom", [(0, 3)], "Tom, Tom und Tom", False),
        ("Tom and Tomtom", [(0, 3)], "Tom und Tom", False),
        ("use v1.2 now", [(4, 8)], "nimm v1.2 jetzt", True),
        ("use v1.2 now", [(4, 8)], "nimm x.v1.2 jetzt", False),  # no version any more
        ("see https://a.b/x now", [(4, 17)], "siehe https://a.b/x", True),
        ("see https://a.b/x now", [(4, 17)], "siehe https://a.b/x(y)", False),
        ("see {a} now", [(4, 7)], "siehe {a} %s", False),
        ("see {a} now", [(4, 7)], "siehe {a} <ph3>", False),
        ("see {a} now", [(4, 7)], "siehe {a} 100", True),
        ("ab{c} now", [(0, 2), (2, 5)], "jetzt ab{c}", True),
        ("ab{c} now", [(0, 2), (2, 5)], "ab jetzt {c}", False),
        ("ab{c} now", [(0, 2), (2, 5)], "{c}ab jetzt", False),
    ],
)
def test_protected_search_takes_whole_fields_only(text, kept, translation, is_right):
    found = search(text, lambda shown: Translation(translation), kept)
    assert (found.text == translation) == is_right


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("%s has no idea.", "% hat keine Ahnung. %s.", "%s HAS NO IDEA."),
        ("%s has no idea.", "%s hat     keine Ahnung.", "%s HAS NO IDEA."),
        ("See {name} now", "Sieh {name} jetzt {", "SEE {name} NOW"),
        ("See {name} now", "Sieh > {name} jetzt", "SEE {name} NOW"),
        ("See {name} now", "Sieh $ {name} jetzt", "SEE {name} NOW"),
        ("See &nbsp; now", "Sieh & jetzt &nbsp;", "SEE &nbsp; NOW"),
        ("{n} has 50% of it", "{n} hat 50 % davon", "{n} hat 50 % davon"),
        ("{n} > 5 & more", "Mehr & {n} > 5", "Mehr & {n} > 5"),
        ("{n}:  it is", "{n}:  das ist", "{n}:  das ist"),
        ("It costs 12,345.60 dollars", "Es kostet 12,345.60 $", "Es kostet 12,345.60 $"),
    ],
)
def test_protected_search_adds_no_signs_of_placeholders(text, translation, expected):
    answers = {text: translation}
    found = search(text, lambda shown: Translation(answers.get(shown, shown.upper())))
    assert found.text == expected and not found.is_open


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See {name} now", "See {name} now"),
        ("{n, plural, one {a {name}} other {b}}", "{n, plural, one {a {name}} other {B %}}"),
        ("See <b>it</b> now", "See <b>it</b> now"),
    ],
)
def test_protected_search_tells_what_it_leaves_open(text, expected):
    sign = "<" if "<" in text else "%"
    found = search(text, lambda shown: Translation(f"{shown.upper()} {sign}"))
    assert found.is_open and found.text == expected


@pytest.mark.parametrize(
    ("source", "answer", "shown", "places"),
    [
        ("Two dogs.", "Zwei <ph1> Hunde.", "Zwei Hunde.", [(0, 4), (5, 11)]),
        ("Two dogs.", "<ph0> Hunde", "Hunde", [(0, 5)]),
        ("Two dogs.", "Hunde (<ph0>)<ph12>", "Hunde ()", [(0, 5)]),
        (
            "Two <ph0> dogs.",
            "Zwei <ph0> Hunde <ph7>",
            "Zwei <ph0> Hunde",
            [(0, 4), (5, 10), (11, 16)],
        ),
        ("Two <b> dogs.", "Zwei <b> <phone> Hunde", "Zwei <b> <phone> Hunde", None),
    ],
)
def test_masks_that_no_source_has_are_not_shown(source, answer, shown, places):
    words = [*re.finditer(r"\S+", answer)]
    found = Translation(answer, alignment=[Link(0, 3, *word.span(), 1.0) for word in words])
    search = remove_masks(lambda some, options, report: [[found] for _ in some])
    (((text, *_, links),),) = search(
        [sentence(source)], options_of(protect=False), lambda done: None
    )
    assert text == shown
    if places is not None:
        assert [(link.target_start, link.target_end) for link in links] == places
