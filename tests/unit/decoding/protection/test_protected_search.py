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


def texts_of(items):
    return [item.text for item in items]


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
        rows = search(sentences, options_of(self.count), self._report)
        assert self.done == len(sentences)
        return [texts_of(row) for row in rows]

    def _report(self, count):
        self.done += count

    def decode(self, sentences, options, report):
        if options.num_beams:
            return self._constrain(sentences)
        report(len(sentences))
        self.searched += sentences
        assert all(part.tokens in ((), [len(part.text)]) for part in sentences)
        shouted = [Translation(self._shout(text), score=-1.0) for text in texts_of(sentences)]
        return [[translation] * self.count for translation in shouted]

    def _shout(self, text):
        words = text.split(" ")
        return " ".join(word if word in self.masks else word.upper() for word in words)

    def _constrain(self, sentences):
        self.constrained += sentences
        if not self.can_constrain:
            raise ConstraintError("There are too many phrases.")
        return [[Translation(SHOUTED.replace("🙂 ", ""))] for _ in sentences]


def sentence(text, **fields):
    return Sentence(text, "", [len(text)], **fields)


MASKS = [f"<ph{number}>" for number in range(5)]
ICU = "You have {n, plural, one {# file} other {# files}} by {name} now"
SHOUTED_ICU = "YOU HAVE {n, plural, one {# FILE} other {# FILES}} BY {name} NOW"
MASKED = ["Mail <ph0> to <ph1> by <ph2> <ph3> <ph4>", "A man."]
AROUND = [TEXT, "A man.", "Mail", "to", "by"]
KEPT = "https://a.example/x 🙂 12345"
TERMS = ["<term>", "</term>", *MASKS]


@pytest.mark.parametrize(
    ("model", "sources", "translations", "searched"),
    [
        (Model(), ["A man.", "2 dogs at 10."], ["A MAN.", "2 DOGS AT 10."], None),
        (Model(MASKS), [TEXT, "A man."], [SHOUTED, "A MAN."], MASKED),
        (Model(), ["At 12:30, 2,015 MEN."], ["AT 12:30, 2,015 MEN."], None),
        # The model's own tokens are marks.
        (Model(TERMS), ["A <term> dog </term> ."], ["A <term> DOG </term> ."], None),
        # What no translation has is copied; the vocabulary lacks the emoji.
        (Model(), [TEXT, "A man."], [SHOUTED, "A MAN."], AROUND),
        (Model(count=3), [TEXT, "A man."], [SHOUTED, "A MAN."], AROUND),
        (Model(count=2), [KEPT, "A man."], [KEPT, "A MAN."], ["A man."]),
        (
            Model(MASKS),
            ["A man.", ICU, "{n, plural, other {#}}"],
            ["A MAN.", SHOUTED_ICU, "{n, plural, other {#}}"],
            ["A man.", "You have <ph0> by <ph1> now", "<ph0> file", "<ph0> files"],
        ),
    ],
)
def test_protected_search_masks_or_goes_around(model, sources, translations, searched):
    translated = model.translate([*map(sentence, sources)])
    assert translated == [[text] * model.count for text in translations]
    assert texts_of(model.searched) == (searched or sources)
    assert not model.constrained


def test_protected_search_translates_again_under_constraints():
    model, text = Model(can_constrain=True), TEXT.replace("🙂 ", "")
    assert model.translate([sentence(text)]) == [[SHOUTED.replace("🙂 ", "")]]
    (again,) = model.constrained
    assert [list(phrase) for phrase in again.phrases] == [[6], [15], [19], [9]]
    assert len(model.searched) == 1


@pytest.mark.parametrize("options", [{"do_sample": True}, {"mbr": "chrf"}])
def test_protected_search_constrains_no_samples(options):
    model, text = Model(can_constrain=True), TEXT.replace("🙂 ", "")
    search = keep_protected(model.decode, Tokenizer())
    options = TranslationOptions(protect=True, **options)
    ((translation,),) = search([sentence(text)], options, lambda done: None)
    assert translation.text == SHOUTED.replace("🙂 ", "") and not model.constrained


def test_protected_search_gives_up_constraints_of_single_sentences():
    calls = []

    def decode(sentences, options, report):
        constrained = [part.text for part in sentences if part.phrases]
        if constrained:
            calls.append((len(constrained), options.num_beams, options.count))
            if any("bad" in text for text in constrained):
                raise ConstraintError("It has too many phrases.")
        field = "{a}" if constrained else ""
        texts = [text.upper().replace("{A}", field) for text in texts_of(sentences)]
        return [[Translation(text)] * 5 for text in texts]

    options = TranslationOptions(num_beams=2, num_return_sequences=5, protect=True)
    sentences = [sentence(f"{word} {{a}}") for word in ("good", "bad", "fine", "well")]
    rows = keep_protected(decode, Tokenizer())(sentences, options, lambda done: None)
    assert [row[0].text for row in rows] == ["GOOD {a}", "BAD {a}", "FINE {a}", "WELL {a}"]
    assert calls == [(4, 5, 5), (2, 5, 5), (1, 5, 5), (1, 5, 5), (2, 5, 5)]
    assert TranslationOptions(num_beams=None).with_beams().num_beams == 4
    assert TranslationOptions(num_beams=8).with_beams().num_beams == 8


def test_protected_search_does_not_change_sentences_with_a_prefix_or_lose_phrases():
    model = Model(masks=["<ph0>"])
    prefixed = sentence("See {a}.", prefix=[5])
    constrained = sentence("See {a}.", phrases=[[7]])
    assert model.translate([prefixed, constrained]) == [["SEE {A}."], ["SEE {A}."]]
    searched = [part._replace(kept=None) for part in model.searched]
    assert searched == [prefixed, constrained] and model.constrained[0].phrases[0] == [7]


def test_protected_search_uses_no_masks_that_a_reverse_model_lacks():
    model = Model(masks=["<ph0>"])
    assert model.translate([sentence("See {a} now.")], uses_masks=False) == [["SEE {a} NOW."]]
    assert model.searched[0].text == "See {a} now."


def test_join_cut_joins_segments_that_cut_text_to_keep():
    cut = [Segment("A. {n, plural,", "\n"), Segment("other {# files.", " ")]
    cut += [Segment("Yes.}}", " "), Segment("B.", "")]
    whole = "A. {n, plural,\nother {# files. Yes.}}"
    joined = [Segment(whole, " "), Segment("B.", "")]
    assert join_cut(cut, True) == joined and join_cut(cut, False) == cut


def search(text, answer, kept=None):
    """Return the translation that a search makes, given the answer of a model to each text that it
    sees.
    """

    def decode(sentences, options, report):
        return [[answer(text)] for text in texts_of(sentences)]

    search = ProtectedSearch(decode, options_of())
    ((translation,),) = search([sentence(text, kept=kept)], lambda done: None)
    return translation


def test_protected_search_links_the_words_and_the_syntax_of_a_message():
    links = [Link(0, 2, 10, 12, 0.5), Link(9, 12, 0, 3, 0.5)]
    known = {"it's {0} men": Translation("MEN's {0} IT", alignment=links)}
    text = "it''s {n, plural, one {a} other {b}} men"
    expected = "MEN''s {n, plural, one {A} other {B}} IT"
    translation = search(text, lambda shown: known.get(shown, Translation(shown.upper())))
    assert translation.text == expected
    pairs = set()
    for start, end, low, high, _ in translation.alignment:
        pairs.add((text[start:end], expected[low:high]))
    assert pairs == {("it", "IT"), ("men", "MEN"), (text[6:-4], expected[7:-3])}


@pytest.mark.parametrize("answer", ["{7}", "{0}", "'", "#"])
def test_protected_search_keeps_the_syntax_of_messages(answer):
    text = "{n, plural, one {file} other {files}}"
    translation = search(text, lambda shown: Translation(answer))
    messages = parse_message(translation.text).messages()
    assert [message.spaces for message in messages] == [("", "")] * 3


def test_protected_search_links_what_survives_with_itself():
    links = [Link(0, 3, 0, 3, 0.5)]
    text = "see {a} 🙂 men"
    translation = search(text, lambda shown: Translation(shown.upper(), alignment=links))
    assert translation.text == "SEE {a} 🙂 MEN"
    spans = [(0, 3), (4, 7), (8, 9), (10, 13)]
    assert [link[:4] for link in translation.alignment] == [span * 2 for span in spans]


def test_protected_search_spaces_translations_around_what_survives():
    """Marks beside it stay, and a final mark that only the translation has goes before a colon."""
    answers = {"Name": "NAME.", "or see": "OR", "men.": "MEN!"}
    links = [Link(0, 1, 0, 1, 0.5)]

    def answer(text):
        return Translation(answers.get(text, ""), alignment=links)

    translation = search("Name:{a}, or see {b} men.", answer)
    assert translation.text == "NAME:{a}, OR {b} MEN!"
    assert Link(10, 11, 10, 11, 0.5) in translation.alignment  # of "or"


def test_protected_search_keeps_links_in_place_beside_a_space_that_it_adds():
    answer = Translation("{a}MEN", alignment=[Link(4, 7, 3, 6, 0.5)])
    translation = search("{a} men", lambda shown: answer)
    assert translation.text == "{a} MEN"
    assert Link(4, 7, 4, 7, 0.5) in translation.alignment


@pytest.mark.parametrize(
    ("links", "span"),
    [
        ([], (0, 3)),
        ([Link(0, 3, 8, 11, 0.9), Link(8, 11, 0, 3, 0.5)], (8, 11)),
        ([Link(0, 3, 8, 11, 0.4), Link(8, 11, 8, 11, 0.5), Link(0, 3, 0, 3, 0.5)], (0, 3)),
    ],
)
def test_protected_search_tells_text_to_keep_from_equal_words_by_links(links, span):
    answer = Translation("Tom und Tom", alignment=links)
    translation = search("Tom and Tom", lambda shown: answer, [(0, 3)])
    assert translation.text == "Tom und Tom"
    certain = [link for link in translation.alignment if link.weight == 1]
    assert certain == [Link(0, 3, *span, 1)]


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
    answer = search(text, lambda shown: Translation(translation), kept)
    assert (answer.text == translation) == is_right


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
    answer = search(text, lambda shown: Translation(answers.get(shown, shown.upper())))
    assert answer.text == expected and not answer.is_open


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
    translation = search(text, lambda shown: Translation(f"{shown.upper()} {sign}"))
    assert translation.is_open and translation.text == expected


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
    links = [Link(0, 3, *word.span(), 1.0) for word in re.finditer(r"\S+", answer)]
    translation = Translation(answer, alignment=links)
    search = remove_masks(lambda *_: [[translation]])
    options = options_of(protect=False)
    (((text, *_, links),),) = search([sentence(source)], options, lambda done: None)
    assert text == shown
    if places is not None:
        assert [(link.target_start, link.target_end) for link in links] == places
