"""German endings and forms against tables written by hand."""

import pytest

from tools.demo_corpus.english import present_participle, third_person
from tools.demo_corpus.german import (
    adjective_word,
    declension_after,
    determiner_word,
    finite_verb,
    form_of,
    imperative_verb,
    noun_word,
    pronoun_word,
    zu_infinitive,
)
from tools.demo_corpus.lexicon import (
    BARE,
    DEFINITE,
    INDEFINITE,
    MANY,
    MY,
    NEGATIVE,
    OUR,
    SOME,
    THIS,
    WHICH,
    adjective,
)
from tools.demo_corpus.nouns import noun
from tools.demo_corpus.structures import Case, Determiner, Noun, Pronoun, Verb
from tools.demo_corpus.verbs import VERBS

CASES: tuple[Case, ...] = ("nominative", "accusative", "dative", "genitive")
BY_FORM = {"masculine": "man", "feminine": "woman", "neuter": "child"}

# The whole phrase in each case: masculine, feminine, neuter, plural.
WEAK = """
der alte Mann       die alte Frau        das alte Kind       die alten Kinder
den alten Mann      die alte Frau        das alte Kind       die alten Kinder
dem alten Mann      der alten Frau       dem alten Kind      den alten Kindern
des alten Mannes    der alten Frau       des alten Kindes    der alten Kinder
"""
WEAK_THIS = """
dieser alte Mann    diese alte Frau      dieses alte Kind    diese alten Kinder
diesen alten Mann   diese alte Frau      dieses alte Kind    diese alten Kinder
diesem alten Mann   dieser alten Frau    diesem alten Kind   diesen alten Kindern
dieses alten Mannes dieser alten Frau    dieses alten Kindes dieser alten Kinder
"""
MIXED_KEIN = """
kein alter Mann      keine alte Frau     kein altes Kind      keine alten Kinder
keinen alten Mann    keine alte Frau     kein altes Kind      keine alten Kinder
keinem alten Mann    keiner alten Frau   keinem alten Kind    keinen alten Kindern
keines alten Mannes  keiner alten Frau   keines alten Kindes  keiner alten Kinder
"""
MIXED_UNSER = """
unser alter Mann      unsere alte Frau     unser altes Kind      unsere alten Kinder
unseren alten Mann    unsere alte Frau     unser altes Kind      unsere alten Kinder
unserem alten Mann    unserer alten Frau   unserem alten Kind    unseren alten Kindern
unseres alten Mannes  unserer alten Frau   unseres alten Kindes  unserer alten Kinder
"""
STRONG = """
alter Mann      alte Frau     altes Kind      alte Kinder
alten Mann      alte Frau     altes Kind      alte Kinder
altem Mann      alter Frau    altem Kind      alten Kindern
alten Mannes    alter Frau    alten Kindes    alter Kinder
"""
TABLES = [(DEFINITE, WEAK), (THIS, WEAK_THIS), (NEGATIVE, MIXED_KEIN), (OUR, MIXED_UNSER), (BARE, STRONG)]


def rows(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.strip().splitlines()]


def declined(determiner: Determiner, case: Case) -> str:
    """Return a determiner with "old" and a noun in all three genders and in the plural."""
    phrases = [one_phrase(determiner, noun(english), case, plural=False) for english in BY_FORM.values()]
    return " ".join([*phrases, one_phrase(determiner, noun("child"), case, plural=True)])


def one_phrase(determiner: Determiner, thing: Noun, case: Case, plural: bool) -> str:
    form = form_of(thing.gender, plural)
    words = [
        determiner_word(determiner, case, form),
        adjective_word(adjective("old"), declension_after(determiner), case, form),
        noun_word(thing, case, plural),
    ]
    return " ".join(word for word in words if word)


@pytest.mark.parametrize(("determiner", "table"), TABLES, ids=["weak", "this", "kein", "unser", "strong"])
def test_noun_phrase_words_agree_in_all_cases_and_genders(determiner: Determiner, table: str) -> None:
    assert [declined(determiner, case) for case in CASES] == rows(table)


def test_indefinite_article_has_no_ending_where_kein_has_none() -> None:
    words = [determiner_word(INDEFINITE, case, form) for case in CASES for form in ("masculine", "feminine", "neuter")]
    assert " ".join(words) == "ein eine ein einen eine ein einem einer einem eines einer eines"


@pytest.mark.parametrize(("determiner", "expected"), [(MANY, "viele"), (SOME, "einige"), (WHICH, "welche")])
def test_determiner_word_of_quantity_ends_like_der(determiner: Determiner, expected: str) -> None:
    assert determiner_word(determiner, "accusative", "plural") == expected


def test_declension_after_many_is_strong_and_after_possessives_mixed() -> None:
    assert declension_after(MANY) == "strong"
    assert declension_after(MY) == "mixed"


@pytest.mark.parametrize(
    ("english", "inflected"),
    [("expensive", "teures"), ("dark", "dunkles"), ("tired", "müdes"), ("big", "großes"), ("hot", "heißes")],
)
def test_adjective_word_changes_its_stem_before_endings(english: str, inflected: str) -> None:
    assert adjective_word(adjective(english), "strong", "nominative", "neuter") == inflected


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("boy", "Junge Jungen Jungen Jungen Jungen Jungen Jungen Jungen"),
        ("student", "Student Studenten Studenten Studenten Studenten Studenten Studenten Studenten"),
        ("neighbour", "Nachbar Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn Nachbarn"),
        ("apple", "Apfel Apfel Apfel Apfels Äpfel Äpfel Äpfeln Äpfel"),
        ("garden", "Garten Garten Garten Gartens Gärten Gärten Gärten Gärten"),
        ("car", "Auto Auto Auto Autos Autos Autos Autos Autos"),
        ("teacher", "Lehrer Lehrer Lehrer Lehrers Lehrer Lehrer Lehrern Lehrer"),
        ("town", "Stadt Stadt Stadt Stadt Städte Städte Städten Städte"),
        ("girl", "Mädchen Mädchen Mädchen Mädchens Mädchen Mädchen Mädchen Mädchen"),
    ],
)
def test_noun_word_declines_as_written_by_hand(english: str, forms: str) -> None:
    assert [noun_word(noun(english), case, plural) for plural in (False, True) for case in CASES] == forms.split()


@pytest.mark.parametrize(
    ("pronoun", "forms"),
    [
        (Pronoun(1, False), "ich mich mir"),
        (Pronoun(2, False), "du dich dir"),
        (Pronoun(3, False, "masculine"), "er ihn ihm"),
        (Pronoun(3, False, "feminine"), "sie sie ihr"),
        (Pronoun(3, False, "neuter"), "es es ihm"),
        (Pronoun(1, True), "wir uns uns"),
        (Pronoun(3, True), "sie sie ihnen"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pronoun_word_has_three_cases(pronoun: Pronoun, forms: str) -> None:
    assert [pronoun_word(pronoun, case) for case in CASES[:3]] == forms.split()


def verb(infinitive: str) -> Verb:
    return next(verb for verb in VERBS if verb.infinitive == infinitive)


@pytest.mark.parametrize(
    ("infinitive", "forms"),
    [
        ("sein", "bin bist ist sind"),
        ("haben", "habe hast hat haben"),
        ("kaufen", "kaufe kaufst kauft kaufen"),
        ("essen", "esse isst isst essen"),
        ("lesen", "lese liest liest lesen"),
        ("geben", "gebe gibst gibt geben"),
        ("fahren", "fahre fährst fährt fahren"),
        ("schlafen", "schlafe schläfst schläft schlafen"),
        ("waschen", "wasche wäschst wäscht waschen"),
        ("sitzen", "sitze sitzt sitzt sitzen"),
        ("arbeiten", "arbeite arbeitest arbeitet arbeiten"),
        ("finden", "finde findest findet finden"),
        ("mögen", "mag magst mag mögen"),
        ("wissen", "weiß weißt weiß wissen"),
        ("einladen", "lade lädst lädt laden"),
        ("anrufen", "rufe rufst ruft rufen"),
        ("vergessen", "vergesse vergisst vergisst vergessen"),
    ],
)
def test_finite_verb_conjugates_as_written_by_hand(infinitive: str, forms: str) -> None:
    found = [finite_verb(verb(infinitive), person, False) for person in (1, 2, 3)]
    assert [*found, finite_verb(verb(infinitive), 3, True)] == forms.split()


@pytest.mark.parametrize(
    ("infinitive", "imperative"),
    [
        ("lesen", "lies"),
        ("geben", "gib"),
        ("helfen", "hilf"),
        ("warten", "warte"),
        ("kaufen", "kauf"),
        ("einladen", "lade"),
    ],
)
def test_imperative_verb_changes_e_to_i_and_keeps_a(infinitive: str, imperative: str) -> None:
    assert imperative_verb(verb(infinitive)) == imperative


def test_zu_infinitive_puts_zu_inside_a_separable_verb() -> None:
    assert [word.text for word in zu_infinitive(verb("aufmachen"))] == ["aufzumachen"]
    assert [word.text for word in zu_infinitive(verb("verkaufen"))] == ["zu", "verkaufen"]


@pytest.mark.parametrize(
    ("infinitive", "ing", "third"),
    [
        ("legen", "putting", "puts"),
        ("liegen", "lying", "lies"),
        ("schreiben", "writing", "writes"),
        ("tragen", "carrying", "carries"),
        ("waschen", "washing", "washes"),
        ("gehen", "going", "goes"),
        ("sehen", "seeing", "sees"),
        ("besuchen", "visiting", "visits"),
    ],
)
def test_present_participle_and_third_person_have_their_spelling(infinitive: str, ing: str, third: str) -> None:
    assert present_participle(verb(infinitive)) == ing
    assert third_person(verb(infinitive).english) == third
