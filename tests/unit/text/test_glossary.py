"""Glossaries are read from TSV and TBX, mistakes are named in one line, and terms are found in
texts.
"""

import pickle
import re
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.errors import UserError
from vanilla_transformer.text import glossary as glossaries
from vanilla_transformer.text.glossary import (
    Glossary,
    TermUse,
    as_glossary,
    count_forms,
    read_glossary,
)
from vanilla_transformer.user_input.reasons import mistakes_of

TBX_2 = """<?xml version="1.0" encoding="UTF-8"?>
<martif type="TBX" xml:lang="en"><text><body>
<termEntry id="1">
  <langSet xml:lang="en-US"><tig><term>dog</term></tig><ntig><termGrp><term>hound</term></termGrp></ntig></langSet>
  <langSet xml:lang="de"><tig><term>Töle</term>
    <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
    <tig><term>Köter</term></tig></langSet>
</termEntry>
<termEntry id="2"><langSet xml:lang="en"><tig><term>cat</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX_3 = """<tbx style="dca" type="TBX-Basic" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"><text><body>
<conceptEntry id="1">
  <langSec xml:lang="de"><termSec><term>Köter</term></termSec></langSec>
  <langSec xml:lang="en"><termSec><term>dog</term></termSec><termSec><term>hound</term></termSec></langSec>
</conceptEntry></body></text></tbx>"""


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def pairs(glossary):
    return [term[:2] for term in glossary.terms]


def targets(glossary, text):
    """Return the translations of the terms in a text."""
    return [match.target for match in glossary.find(text)]


USED = Glossary([("dog", "Köter"), ("big house", "große Villa")])


HEADERS = ["", "\ufeff", "Source\tTarget\r\n", "en\tde\n", "src\ttgt\n"]


@pytest.mark.parametrize("header", HEADERS)
def test_read_glossary_reads_tsv(tmp_path, header):
    lines = "dog\tKöter\r\n\nsteam  engine\tDampfmaschine\n...\tPunkt"
    path = write(tmp_path, "terms.tsv", f"{header}{lines}")
    dog, engine, dots = pairs(read_glossary(path))
    assert dog == ("dog", "Köter")
    assert engine == ("steam engine", "Dampfmaschine")
    assert dots == ("...", "Punkt")


BOMB = '<!DOCTYPE martif [<!ENTITY a "ha"><!ENTITY b SYSTEM "file:///etc/hostname">]>\n'


TBX_WITH_ENTITIES = BOMB + TBX_2.split("\n", 1)[1].replace("Köter", "&a;&b;x")
TBX_FILES = [
    (TBX_2, "Köter"),
    (TBX_3, "Köter"),
    (TBX_2.replace("UTF-8", "UTF-16").encode("utf-16"), "Köter"),
    (TBX_WITH_ENTITIES, "&a;&b;x"),  # no entity is expanded
]


@pytest.mark.parametrize("content, target", TBX_FILES)
def test_read_glossary_reads_both_versions_of_tbx(tmp_path, content, target):
    glossary = read_glossary(write(tmp_path, "terms.tbx", content), "en", "de")
    assert pairs(glossary) == [("dog", target), ("hound", target)]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.tsv", "", "terms.*a.tsv must have a term with its translation, but it is empty"),
        ("a.tsv", "source\ttarget\n", "must have a term with its translation, but it is empty"),
        ("a.tsv", "dog\tHund\ncat\n", "a term, a tab and its translation, got 'cat' in line 2"),
        ("a.tsv", "dog\tHund\ncat\t\n", "got 'cat' in line 2"),
        ("a.tsv", "a\tb\tc", r"got 'a\\tb\\tc' in line 1"),
        ("a.tsv", f"dog\tHund\n{'a-' * 51}\tb", "at most 100 .* in each source, got 102 in line 2"),
        ("a.tsv", f"dog\t{'Hund ' * 101}", "at most 100 .* in each target, got 101 in line 1"),
        (
            "a.tsv",
            "dog\tHund\ncat\tK\xf6ter\n".encode("latin-1"),
            "must be UTF-8, but line 2 has the byte 0xf6",
        ),
        ("a.tsv", "dog\tHund\n".encode("utf-16"), "must be UTF-8, but it is UTF-16"),
        (
            "a.tsv",
            "dog\tHund\ncat\tKatze\nDog\tKöter\ndog\tKöter",
            "of each term, got 'Hund' in line 1 and 'Köter' in",
        ),
        ("a.tbx", TBX_2[:300], "a.tbx must be TBX. The text must be well-formed XML: .*line 6"),
        ("a.tbx", "<xliff/>", "got none in <xliff>"),
        (
            "a.tbx",
            TBX_2.replace(' xml:lang="de"', ""),
            "must have the attribute xml:lang, got none in line 5",
        ),
        (
            "a.tbx",
            TBX_3.replace("<term>hound</term>", ""),
            "must have a <term> with text, got none in line 4",
        ),
        ("a.tbx", TBX_3.encode("latin-1"), "must be TBX"),
        ("a.tbx", TBX_3.replace("de", "fr"), "`target_language` must name .* has en, fr; got de"),
        (
            "b.tbx",
            TBX_3,
            "`source_language` must name the source language of .* has de, en; got None",
        ),
    ],
)
def test_read_glossary_names_the_mistake(tmp_path, name, content, message):
    folder = tmp_path / "terms"
    folder.mkdir()
    path = write(folder, name, content)
    languages = [] if name == "b.tbx" else ["en", "de"]
    with pytest.raises(ValueError, match=f"^[^\n]*{message}[^\n]*$"):
        read_glossary(path, *languages)


ENGINES = [
    ("engine", "Motor"),
    ("steam", "Dampf"),
    ("steam engine", "Dampfmaschine"),
    ("IT", "EDV"),
]
UPPER = [("STRASSE", "street"), ("ΌΔΟΣ", "way")]


@pytest.mark.parametrize(
    "terms, casefold, text, expected",
    [
        (
            ENGINES,
            False,
            "A Steam\u00a0engine, engines and an ENGINE.",
            [("Steam\u00a0engine", "Dampfmaschine"), ("ENGINE", "Motor")],
        ),
        (ENGINES, False, "It is IT.", [("IT", "EDV")]),
        ([("café", "Kaffeehaus")], False, "Cafe\u0301!", [("Cafe\u0301", "Kaffeehaus")]),
        (
            [("東京", "Tokyo")],
            False,
            "私は東京にいる",
            [("東京", "Tokyo")],
        ),  # no spaces between words
        (UPPER, False, "Die Straße, όδος", []),
        (UPPER, True, "Die Straße, όδος", [("Straße", "street"), ("όδος", "way")]),
    ],
)
def test_glossary_finds_the_longest_whole_words(terms, casefold, text, expected):
    glossary = Glossary(terms, casefold=casefold)
    matches = glossary.find(text)
    assert [(text[start:end], target) for start, end, target in matches] == expected


class CountedWord(str):
    """A word that counts how often it is looked up."""

    lookups = 0

    def __hash__(self):
        CountedWord.lookups += 1
        return super().__hash__()

    def casefold(self):
        return CountedWord(super().casefold())


SIZES = [
    ({"term": 20, "text": 200}, {"text": 800}),
    ({"term": 20, "text": 800}, {"term": 80}),
]


@pytest.mark.parametrize(("few", "many"), SIZES)
def test_glossary_find_is_linear_in_text_and_term(monkeypatch, few, many):
    def count_words(text):
        return [*map(CountedWord, text.split())]

    def count_lookups(term, text):
        """Count the look-ups of words in a text that nearly has a term, everywhere."""
        term = f"{'a b ' * (term // 2)}c"
        glossary = Glossary([(term, "x"), ("b c", "y")])
        monkeypatch.setattr(glossaries, "_normalize", count_words)
        CountedWord.lookups = 0
        assert not glossary.find("a b " * (text // 2))
        monkeypatch.undo()
        return CountedWord.lookups

    lookups = count_lookups(**few)
    assert 0 < count_lookups(**few | many) < 5 * lookups


def test_glossary_finds_long_terms_in_one_pass():
    words = " ".join(map(str, range(100)))
    glossary = Glossary([(words, "all"), ("2 3", "some")])
    glossary = pickle.loads(pickle.dumps(glossary))
    assert targets(glossary, f"1 2 3 {words}") == ["some", "all"]


@pytest.mark.parametrize(
    "source, translation, expected",
    [
        ("A dog!", "Ein Köter!", (1, 1, 1)),
        ("A dog, Dog", "Köter köter Köter", (2, 2, 2)),
        ("A dog, dog", "Ein Köter", (2, 1, 1)),
        ("A dog", "Des Köters", (1, 0, 1)),
        ("A dog", "Köterchenhaft, Hund", (1, 0, 0)),
        ("A cat", "Köter", (0, 0, 0)),
        ("The big house", "In der großen Villa", (1, 0, 1)),
        ("The big house", "Villa große", (1, 0, 0)),
    ],
)
def test_measure_use_counts_terms_with_other_endings(source, translation, expected):
    use = USED.measure_use([source], [translation])
    assert (use.terms, use.exact, use.inflected) == expected


def test_measure_use_adds_sentences():
    translations = ["Köter", "Köter", "Köters"]
    use = USED.measure_use(["A dog", "A cat", "dog dog"], translations)
    assert use == TermUse(sentences=2, terms=3, exact=1, inflected=2)
    assert str(use) == "33.3% as given, 66.7% with any ending"
    assert str(USED.measure_use([""], [""])) == "0.0% as given, 0.0% with any ending"


def test_as_glossary_takes_pairs_and_mappings():
    assert pairs(as_glossary({"dog": "Hund"})) == [("dog", "Hund")]
    assert pairs(as_glossary([["dog", "Hund"]])) == [("dog", "Hund")]
    double = [["dog", "Hund"], ["Dog", "x"], ["dog", "Köter"]]
    for wrong in (3, [("dog",)], [("dog", 3)], {"dog": None}, {}, double):
        with pytest.raises(ValueError, match="^[^\n]*$"):
            as_glossary(wrong)


def cut_tbx(cut, text):
    """Return a piece of TBX with other characters in it."""
    return (TBX_2[:cut] + text + TBX_2[cut:]).encode()


SHORT_FILES = st.text(alphabet='a\t\n\r\0\u2028<>/"é', max_size=40).map(str.encode)
PIECES = st.builds(cut_tbx, st.integers(0, 800), st.text(max_size=3))
BEGINNINGS = st.builds(lambda cut: TBX_3[:cut].encode(), st.integers(0, 500))
CONTENT = st.one_of(st.binary(max_size=80), SHORT_FILES, PIECES, BEGINNINGS)


@given(content=CONTENT, name=st.sampled_from(["a.tsv", "a.tbx"]))
def test_read_glossary_raises_a_line_for_each_mistake(content, name):
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), name, content)
        try:
            assert len(read_glossary(path, "en", "de"))
        except UserError as error:
            for mistake in mistakes_of(error):
                assert str(mistake) and "\n" not in str(mistake)


def test_glossary_is_refused_once_with_all_mistakes(tmp_path):
    lines = ["dog\tHund", "cat", "!\t", "?\t.", f"long\t{'a ' * 101}", "dog\tKöter"]
    path = write(tmp_path, "a.tsv", "\n".join(lines).encode())
    with pytest.raises(UserError) as refused:
        read_glossary(path)
    requirement = f"of {path} must have a term, a tab and its translation, got"
    assert str(refused.value).splitlines() == [
        f"Each line {requirement} 'cat' in line 2.",
        f"Each line {requirement} '!' in line 3.",
        f"The glossary {path} must have at most 100 words and signs in each target, got 101 in "
        "line 5. A glossary is for terms: split it.",
        f"The glossary {path} must have one translation of each term, got 'Hund' in line 1 and "
        "'Köter' in line 6 of 'dog'. Keep one.",
    ]


@pytest.mark.parametrize(
    ("wanted", "text", "exact", "inflected"),
    [
        ("große Villa", "In der großen Villa, Große Villa.", 1, 2),
        ("Villa", "Villain, Dorfvilla", 0, 1),
        ("a b c", "a b", 0, 0),
        ("schön", unicodedata.normalize("NFD", "Schönes Haus"), 0, 1),
        ("hund", "Hundes", 0, 1),
        ("hund", "Hunger", 0, 0),
        ("große", "groß großes", 0, 2),
        ("hunde", "hunden", 0, 1),
        ("haus", "häuser Hausaufgabe", 0, 0),
    ],
)
def test_count_forms_counts_words_and_their_endings(wanted, text, exact, inflected):
    assert count_forms(wanted, text, exactly=True) == exact
    assert count_forms(wanted, text) == inflected


def test_glossary_names_all_double_entries_at_once(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tHund\ncat\tKatze\ndog\tKöter\ndog\tHund\ncat\tKater\n")
    dogs = "'Hund' in line 1 and 'Köter' in line 3 of 'dog'"
    cats = "'Katze' in line 2 and 'Kater' in line 5 of 'cat'"
    message = f"one translation of each term, got {dogs}; {cats}. Keep one."
    with pytest.raises(UserError, match=re.escape(message)):
        read_glossary(path)


def test_override_goes_before_a_glossary_and_keeps_its_other_terms():
    base = Glossary([("dog", "Hund"), ("IT", "EDV"), ("small cat", "Kätzchen")])
    glossary = base.override([("dog", "Köter"), ("it", "es")])
    text = "Dog, IT and a small cat"
    assert targets(glossary, text) == ["Köter", "es", "Kätzchen"]
    assert targets(base, text) == ["Hund", "EDV", "Kätzchen"]


def test_glossaries_are_equal_if_they_find_the_same_terms():
    dogs, cats = [("dog", "Hund")], [("cat", "Katze")]
    assert Glossary(dogs) == Glossary([("dog", " Hund", "line 3")])
    assert hash(Glossary(dogs)) == hash(Glossary([("dog", " Hund", "line 3")]))
    overridden = Glossary(cats).override(dogs)
    assert overridden == Glossary(cats).override(dogs)
    others = [Glossary(cats), Glossary(dogs, casefold=True), overridden]
    others.append(Glossary([("cat", "Kater")]).override(dogs))
    for number, glossary in enumerate([Glossary(dogs), *others]):
        for other in [Glossary(dogs), *others][:number]:
            assert glossary != other
