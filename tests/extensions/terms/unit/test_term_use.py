"""Terms of a glossary are counted in translations, as they are and with other endings."""

import unicodedata

import pytest

from vanilla_transformer.extensions.terms.glossary import Glossary, TermUse, count_forms

GLOSSARY = Glossary([("dog", "Köter"), ("big house", "große Villa")])


def use(source, translation):
    found = GLOSSARY.measure_use([source], [translation])
    return found.terms, found.exact, found.inflected


def test_measure_use_counts_terms_of_the_source():
    assert use("A dog!", "Ein Köter!") == (1, 1, 1)
    assert use("A dog, Dog", "Köter köter Köter") == (2, 2, 2)
    assert use("A dog, dog", "Ein Köter") == (2, 1, 1)
    assert use("A dog", "Des Köters") == (1, 0, 1)
    assert use("A dog", "Köterchenhaft, Hund") == (1, 0, 0)
    assert use("A cat", "Köter") == (0, 0, 0)
    assert use("The big house", "In der großen Villa") == (1, 0, 1)
    assert use("The big house", "Villa große") == (1, 0, 0)


def test_measure_use_adds_sentences():
    found = GLOSSARY.measure_use(["A dog", "A cat", "dog dog"], ["Köter", "Köter", "Köters"])
    assert found == TermUse(sentences=2, terms=3, exact=1, inflected=2)
    assert str(found) == "33.3% as given, 66.7% with any ending"
    assert str(GLOSSARY.measure_use([""], [""])) == "0.0% as given, 0.0% with any ending"


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
def test_count_forms_counts_phrases_by_words_and_their_endings(wanted, text, exact, inflected):
    assert (count_forms(wanted, text, exactly=True), count_forms(wanted, text)) == (exact, inflected)
