"""Words that stand in for text to keep: which ones a model copies, and where they come back."""

import re

import pytest

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch
from vanilla_transformer.decoding.protection.stand_ins import (
    StandIns,
    find_forms,
    probe_stand_ins,
)
from vanilla_transformer.decoding.sentences import Draft, Sentence, ignore
from vanilla_transformer.decoding.translations import Link, Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.text.protection import find_protected

WORDS = StandIns(("Tom", "Maria", "Peter"), ("47", "83"), ("example.com",))


@pytest.mark.parametrize(
    ("source", "first", "second"),
    [
        ("{name} saw %s.", ["Tom", "Maria"], ["Maria", "Peter"]),
        ("You have %d of {count} files.", ["47", "83"], ["83", "47"]),
        ("Tom saw `code`.", ["Maria"], ["Maria"]),
        ("It is %dMB.", ["47"], ["83"]),
        ("It was %1$dh or {n}d.", ["47", "83"], ["83", "47"]),
        ("See https://a.example/x or me@mail.example.", ["example.com", "Tom"], None),
        ("In 12,345.60 {a} ran.", ["12,345.60", "Tom"], ["83", "Maria"]),
        ("I ran 🙂 <br>", None, None),
        ("[b]Note[/b] see :ref:`the page <target>` now", None, None),
        ("The [X5X] file", ["Tom"], ["Maria"]),
        ("Use --force with index.html.", ["Tom", "Maria"], ["Maria", "Peter"]),
        ("{a} {b} {c} {d} {e} {f} ran.", None, None),
    ],
)
def test_choose_tells_words_by_the_kind_of_text(source, first, second):
    kept = find_protected(source)
    assert WORDS.choose(source, kept, 0) == first
    if second is not None:
        assert WORDS.choose(source, kept, 1) == second


def test_probe_keeps_the_words_that_come_back():
    """A model that spells numbers, transliterates a name in three sentences, and fails twice for
    another.
    """
    asked = []

    def translate(texts):
        answers = []
        for text in texts:
            asked.append(text)
            answer = re.sub(r"\d+", "viele", text)
            answer = re.sub("Peter(?= asked| is late| a )", "Pjotr", answer)
            answer = re.sub("(I saw|Call) Anna", "Anja", answer)
            answer = re.sub("(?<=saw )‘Tom|‘Tom’(?= is)", "Tom", answer)
            answer = re.sub('(?<=saw )"Tom"', "Tom", answer)
            answers.append(answer.replace("“", "« ").replace("”", " »"))
        return answers

    words = probe_stand_ins(translate, "en_XX")
    names = ("Tom", "Maria", "John", "David", "Julia", "Robert", "Paul", "Daniel", "Anna")
    marks = ("'", '"', "“", "„", "‚", "«")
    assert words == StandIns(names, (), ("example.com", "google.com"), marks)
    assert len(asked) <= 200 and "We gave 47 a new book." not in asked
    assert "Ich habe Tom gesehen." not in asked
    probe_stand_ins(translate, "de")
    assert "Ich habe Tom gesehen." in asked


@pytest.mark.parametrize(
    ("word", "translation", "keeps_ending", "forms"),
    [
        ("Tom", "Das ist Tom.", False, ["Tom"]),
        ("Tom", "Das ist Toms Hund, TOM!", False, ["Toms", "TOM"]),
        ("Tom", "Das ist Toms Hund.", True, ["Tom"]),
        ("Tom", "Das ist 'Tom', Tom's Hund.", False, ["Tom", "Tom's"]),
        ("Tom", "Tomaten, Atom, um Tom:30 Uhr", False, []),
        ("47", "47 und 470", False, ["47"]),
    ],
)
def test_find_forms_tells_endings_and_other_words(word, translation, keeps_ending, forms):
    places = find_forms(word, translation, keeps_ending)
    assert [translation[start:end] for start, end in places] == forms


def test_probe_asks_for_no_quotation_marks_without_a_name():
    words = probe_stand_ins(lambda texts: ["x"] * len(texts), "en")
    assert words == StandIns(quotation_marks=())


def search(source, *answers, count=1, alignment=(), words=WORDS):
    """Return the translation of a source by a model whose answers come one after the other, and
    what the model reads.
    """
    read, left = [], list(answers)

    def decode(sentences, options, report):
        rows = []
        for sentence in sentences:
            read.append(sentence.text)
            rows.append([Translation(left.pop(0), alignment=alignment)] * count)
        return rows

    options = TranslationOptions(num_return_sequences=count)
    protected = ProtectedSearch(decode, options, stand_ins=lambda: words)
    ((answer, *_),) = protected([Sentence(source, "", [1])], ignore)
    return answer.text, read


@pytest.mark.parametrize(
    ("source", "answers", "expected"),
    [
        ("{a} saw {b}.", ["Maria sah Tom."], "{b} sah {a}."),
        ("{a}'s dog ran.", ["Toms Hund lief."], "{a}s Hund lief."),
        ("The dog of {a} ran.", ["Toms Hund lief."], "{a} Hund lief."),
        # A repeated or missing stand-in: the next one
        ("{a} ran.", ["Tom und Tom.", "Maria lief."], "{a} lief."),
        ("{a} ran.", ["Er lief.", "MARIA lief."], "{a} lief."),
        # Both fail: the text around
        ("{a} ran.", ["Er lief.", "Sie lief.", "lief."], "{a} lief."),
        # Quotation marks, first by the model, and then with the text
        ("The dog '{a}' ran.", ["Der Hund „Tom“ lief."], "Der Hund „{a}“ lief."),
        ("The dog “{a}” ran.", ["Le chien « Tom » court."], "Le chien « {a} » court."),
        ("The dog '{a}' ran.", ["Der Hund lief.", "Der Hund Maria lief."], "Der Hund '{a}' lief."),
        ('"{a}" ran.', ["„Tom lief.", "Maria lief."], '"{a}" lief.'),
        ("({a}) ran.", ["Tom lief.", "Maria lief."], "({a}) lief."),
        (
            "The dog '{a}' ran, I said.",
            ["Lief.", "Lief.", "Der Hund", "lief, sagte ich."],
            "Der Hund '{a}' lief, sagte ich.",
        ),
        # Three do not change places without links.
        ("{a}, {b}, {c} ran.", ["Maria, Tom, Peter.", "Maria, Peter, Tom."], "{a}, {b}, {c}."),
    ],
)
def test_text_is_put_back_where_its_stand_in_is(source, answers, expected):
    answer, read = search(source, *answers)
    assert answer == expected
    assert len(read) == len(answers) and "{a}" not in read[0]


def test_name_stands_in_for_quotation_marks_that_the_model_loses():
    words = WORDS._replace(quotation_marks=("“",))
    answer, read = search("'{a}' and “{b}” ran.", "Tom und „Maria“.", words=words)
    assert read == ["Tom and “Maria” ran."]
    assert answer == "'{a}' und „{b}“."


@pytest.mark.parametrize(
    ("draft", "read", "written"),
    [
        ("Der Hund „{a}“ lief.", "Der Hund Maria lief.", "„{a}“"),
        ("Der Hund {a} lief.", "Der Hund Maria lief.", "{a}"),
        ("Der Hund lief.", "Der Hund lief.", "'{a}'"),
    ],
)
def test_quotation_marks_are_the_ones_of_a_draft(draft, read, written):
    drafts = []

    def decode(sentences, options, report):
        drafts.extend(sentence.draft for sentence in sentences)
        return [[Translation("Der Hund Maria lief.")] for _ in sentences]

    words = WORDS._replace(names=("Maria",), quotation_marks=())
    protected = ProtectedSearch(decode, TranslationOptions(), stand_ins=lambda: words)
    sentence = Sentence("The dog '{a}' ran.", "", [1], draft=Draft(draft, 0.0))
    ((answer,),) = protected([sentence], ignore)
    assert answer.text == f"Der Hund {written} lief."
    start = answer.text.index("{a}")
    assert answer.alignment == [Link(9, 12, start, start + 3, 1.0)]
    assert [draft.text for draft in drafts] == [read]


def test_texts_change_places_as_links_say():
    source, shown, answer = "{a}, {b}, {c} ran.", "Tom, Maria, Peter ran.", "Maria, Tom, Peter."
    links = []
    for word in ("Tom", "Maria", "Peter"):
        start, target = shown.index(word), answer.index(word)
        links.append(Link(start, start + len(word), target, target + len(word), 1.0))
    assert search(source, answer, alignment=links)[0] == "{b}, {a}, {c}."


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_text_in_quotation_marks_is_linked_without_them(lost):
    """Also where other stand-ins, or the text around, bring it back."""
    decoded = []

    def decode(sentences, options, report):
        decoded.append(sentences)
        texts = [sentence.text for sentence in sentences]
        return [[Translation("Nein." if len(decoded) <= lost else text)] for text in texts]

    protected = ProtectedSearch(decode, TranslationOptions(), stand_ins=lambda: WORDS)
    sentence = Sentence("The dog '{a}' ran.", "", [1], kept=[(9, 12)])
    ((answer,),) = protected([sentence], ignore)
    assert answer.text == sentence.text and len(decoded) == lost + 1
    assert Link(9, 12, 9, 12, 1.0) in answer.alignment


def test_every_hypothesis_has_the_text():
    assert search("{a} ran.", "Tom lief.", count=3)[0] == "{a} lief."


def test_configuration_has_the_words_of_each_direction():
    class Config:
        stand_ins = {"en-de": {"names": ["Tom"], "numbers": [], "domains": []}}

    assert StandIns.from_config(Config, Direction("en", "de")) == StandIns(("Tom",))
    assert StandIns.from_config(Config, NO_DIRECTION) is None
    Config.stand_ins["en-de"]["quotation_marks"] = []
    assert StandIns.from_config(Config, Direction("en", "de")).quotation_marks == ()
    for damaged in ([], {"en-de": {"nouns": []}}, {"en-de": 3}):
        Config.stand_ins = damaged
        with pytest.raises(UserError, match="`stand_ins` in the configuration is damaged"):
            StandIns.from_config(Config, Direction("en", "de"))
