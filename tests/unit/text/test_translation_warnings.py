"""Warnings about translations: each rule by examples, and limits measured on text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.text import translation_warnings
from vanilla_transformer.text.scripts import count_scripts
from vanilla_transformer.text.translation_warnings import (
    WARNINGS,
    WarningLimits,
    find_warnings,
    has_other_numbers,
    has_other_scripts,
    length_ratio,
    measure_limits,
    most_repeats,
)

ANY = WarningLimits(scripts=("LATIN",))
LONG_ANSWER = "das ist eine sehr lange Antwort auf eine kurze Frage, die keiner stellte."
LOOPS = ("_ _ _ _", "No//////", "Naaaa", "hahahaha", "No.......")
LOOPS += ("-Stien-Stien-Stien-Stien-", "ein proproproprop")
FRENCH = [unicodedata.normalize(form, "déjà vu à côté près") for form in ("NFC", "NFD")]


@pytest.mark.parametrize(
    "source, translation, expected",
    [
        ("The dog sleeps on the sofa.", "Der Hund schläft auf dem Sofa.", []),
        ("", "", []),
        # copies, of a whole sentence or half of one, but not of names
        ("The dog sleeps on the sofa.", "The dog sleeps on the sofa.", ["copy"]),
        ("The dog sleeps on the sofa.", "THE DOG SLEEPS ON the Sofa", ["copy"]),
        ("The dog sleeps on the sofa all day.", "Der Hund sleeps on the sofa all Tag.", ["copy"]),
        ("He lives in New York.", "Er lebt in New York.", []),
        # nor of text to keep
        ("Run x --all --no-edit --dry-run", "Nutze x --all --no-edit --dry-run", []),
        ("Call {a}, {b}, {c}, {d} and {e}.", "Rufe {a}, {b}, {c}, {d} und {e}.", []),
        ("Tom Smith!", "Tom Smith!", []),
        ("Call 1 2 3 4 5 6.", "1 2 3 4 5 6", []),
        ("我们今天去公园玩。", "我们今天去公园。", ["copy", "script"]),
        # repetitions, unless the source has them
        ("A man runs.", "Ein Mann Mann läuft.", []),
        ("A man runs.", "Ein Mann Mann Mann läuft.", ["repetition"]),
        ("A man runs.", "Ein Mann und ein Mann und ein Mann läuft.", ["repetition"]),
        ("It is very, very, very good.", "Es ist sehr, sehr, sehr gut.", []),
        ("He walks hand in hand.", "Er geht Hand in Hand in die Stadt.", []),
        # of signs and parts of words
        *(("No.", loop, ["repetition"]) for loop in LOOPS),
        ("See the yyyy-mm date, please.", "Das Datum JJJJ-MM, bitte.", []),
        ("Chapter 1 ........ page 5", "Kapitel 1 ............ Seite 5", []),
        ("Please wait", "Bitte warten....", []),
        ("It costs 15 billion.", "Es kostet 15 000 000 000.", ["numbers"]),
        # numbers, in the format of any language
        ("It weighs 1,250.5 kg.", "Es wiegt 1.250,5 kg.", []),
        ("In 1999 we met.", "1999 trafen wir uns.", []),
        ("In 1999 we met.", "1989 trafen wir uns.", ["numbers"]),
        ("In 1999 we met.", "Damals trafen wir uns.", ["numbers"]),
        ("We met then.", "Wir trafen uns 1999.", ["numbers"]),
        ("Gate 5 is open.", "Tor fünf ist offen.", []),
        ("Gate 5 is open.", "Tor 6 ist offen.", ["numbers"]),
        ("From 20 to 20.", "Von 20.", ["numbers"]),
        ("٤٢ كتابا", "42 Bücher", []),
        # scripts, but neither a sign in a long sentence nor names
        ("The dog sleeps.", "Der Hund спит.", ["script"]),
        ("The Volga is long.", "Die Волга ist lang.", []),
        (
            "A resistor of 5 kΩ is in a long line.",
            "Ein Widerstand von 5 kΩ ist in einer langen Zeile.",
            [],
        ),
        # lengths
        ("Yes.", "Ja, " * 2 + LONG_ANSWER, ["length"]),
        # broken characters, unless the source has them
        ("The dog sleeps.", "Der Hund schl\ufffd\ufffdft.", ["characters"]),
        ("The \ufffd sleeps.", "Der \ufffd schläft.", []),
        ("A man in a red shirt stands on a ladder and cleans a window.", "Ei", ["length"]),
    ],
)
def test_find_warnings(source, translation, expected):
    assert find_warnings(source, translation, ANY) == expected


SAME_NUMBERS = [
    # times
    ("Just after 11:00.", "Peu après 11 h."),
    ("Just after 11:00.", "Peu après 11\u00a0h\u00a000."),
    ("At 11:20.", "11時20分になると。"),
    ("At 11:20.", "11 点 20 分。"),
    ("At 11:20.", "11시 20분에."),
    ("At 11:20.", "Um 11 Uhr 20."),
    ("At 11:00.", "ከ11፡00 በኋላ።"),
    ("At 9:30 (0230 UTC).", "Kello 9.30 (2.30 UTC)."),
    ("At 8:46 a.m.", "Ровно в 08:46."),
    ("By 11:35 pm.", "Kello 23.35."),
    ("At 1200 GMT.", "Vers 12 h 00 GMT."),
    ("It costs 11.00 euros.", "Es kostet 11 Euro."),
    # ordinals and decades
    ("His 60th goal.", "Hänen kuudeskymmenes maalinsa."),
    ("His 1,000th stamp.", "Hänen tuhannes postimerkkinsä."),
    ("In the 15th century.", "1400-luvulla."),
    ("In the 18th and 19th centuries.", "På 1700- och 1800-talet."),
    ("In the 1970s.", "20 世纪 70 年代。"),
    ("In the 1970s.", "في السبعينيات."),
    # years and dates
    ("Since 1995-96.", "1995-1996년 이후."),
    ("On September 24, 1759.", "24.9.1759."),
    ("In 2010.", "ปี พ.ศ. 2553"),
    # groups of digits and powers of ten
    ("A lease of 9,000 years.", "Un bail de 9\u2009000 ans."),
    ("Some 783,562 square kilometers.", "Noin 783 562 neliökilometriä."),
    ("It has 783,562 parts.", "تحتل 783،562 جزءا"),
    ("Some 1.2 million signatures.", "120万人の署名。"),
    ("Some 104,500 barrels.", "10万4500バレル。"),
    ("From 340 to 500 million.", "3억 4천만에서 5억."),
]
OTHER_NUMBERS = [
    ("At 11:20.", "Um 11:30."),
    ("At 11:20.", "11時30分。"),
    ("In the 15th century.", "1500-luvulla."),
    ("In the 15th century.", "Im 16. Jahrhundert."),
    ("In the 1970s.", "20 世纪 60 年代。"),
    ("Since 1995-96.", "Seit 1995-1997."),
    ("Since 1995.", "Seit 1995-96."),
    ("On September 24, 1759.", "25.9.1759."),
    ("Some 9,000 men.", "9 500 miestä."),
    ("Some 1.2 million men.", "130万人。"),
    ("It costs 11.50 euros.", "Es kostet 11 Euro."),
]


def test_numbers_in_other_notations_are_no_other_numbers():
    for source, text in SAME_NUMBERS:
        assert not has_other_numbers(source, text)
        assert not has_other_numbers(text, source)
    for source, text in OTHER_NUMBERS:
        assert has_other_numbers(source, text)


def test_numbers_up_to_a_limit_may_be_words():
    pair = "For 30 years, 15 banks and 100 men.", "Kolmekymmentä vuotta, viisitoista pankkia."
    assert has_other_numbers(*pair) and not has_other_numbers(*pair, spelled_out=100)
    assert has_other_numbers("For 30 years.", "40 vuotta.", spelled_out=100)
    assert has_other_numbers("For 200 years.", "Kaksisataa vuotta.", spelled_out=100)


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("It is good.", "ดีดีดี", ["repetition"]),
        ("It is very good.", "มันดีมากมันดีมาก", ["repetition"]),
        ("It is good.", "好好好", ["repetition"]),
        ("He is here.", "ខ្ញុំខ្ញុំខ្ញុំ", ["repetition"]),
        ("He is here.", "यह कमरा कमरा कमरा है", ["repetition"]),
        ("He is here.", "यह कमरा है", []),
        ("मैं हिन्दी नहीं जानता हूँ", "मैं हिन्दी नहीं जानता हूँ", ["copy"]),
        (*FRENCH, ["copy"]),
    ],
)
def test_find_warnings_in_many_scripts(source, translation, expected):
    assert find_warnings(source, translation, WarningLimits()) == expected


FRENCH_SENTENCE = "Il était une fois un roi et une reine."


@pytest.mark.parametrize(
    ("source", "translation", "evidence", "expected"),
    [
        (FRENCH_SENTENCE, "Ich bin da.", {"language": "en"}, ["language"]),
        (FRENCH_SENTENCE, "Ich bin da.", {"language": "fr"}, []),
        (FRENCH_SENTENCE, "Ich bin da.", {"language": "xx"}, []),
        (FRENCH_SENTENCE, "Ich bin da.", {}, []),
        ("Il était une fois.", "Ich bin da.", {"language": "en"}, []),
        ("STOP THE CAR", "„StO-Se", {"is_spelled": True}, ["capitals"]),
        ("STOP THE CAR", "Halt an", {"is_spelled": False}, []),
        ("NASA", "die NASA", {"is_spelled": True}, []),
        ("Nasa", "die Frau", {"is_spelled": True}, []),
        ("The red house", "Das rote Haus ist", {"aligned_end": 13}, ["ending"]),
        ("The red house", "Das rote Haus", {"aligned_end": 13}, []),
        ("Update all files", "Alle Dateien aktualisieren", {"aligned_end": 12}, []),
        ("The red house", "Das rote Haus!", {"aligned_end": 13}, []),
        ("A red file", "Eine rote XML-Datei", {"aligned_end": 14}, []),
        ("The red house", "Das rote Haus ist", {}, []),
        ("The red house.", "Das rote Haus ist", {"aligned_end": 13}, []),
        ("a " * 9, "Das rote Haus ist", {"aligned_end": 13}, []),
    ],
)
def test_find_warnings_by_evidence_of_a_model(source, translation, evidence, expected):
    assert find_warnings(source, translation, WarningLimits(), **evidence) == expected


SOURCES = st.text(st.sampled_from("aéüß ǘ"), max_size=40)
TRANSLATIONS = st.text(st.sampled_from("bñ가각"), max_size=40)


@given(SOURCES, TRANSLATIONS)
def test_length_ratio_does_not_depend_on_the_normal_form(source, translation):
    forms = [unicodedata.normalize("NFD", text) for text in (source, translation)]
    assert length_ratio(*forms) == length_ratio(source, translation)


@pytest.mark.parametrize(
    "translation, expected",
    [
        ("შესვლა GitHub-ით", []),
        ("CSV ფაილი", []),
        ("PDF", []),
        ("git clone https://a.example/b ბრძანება", []),
        ("https://a.example/b", []),
        ("please log in", ["script"]),
        ("Log in with GitHub", ["script"]),
        ("LOG IN WITH YOUR CODE", ["script"]),
        ("войти в систему", ["script"]),
        ("შესვლა систему", ["script"]),
    ],
)
def test_find_warnings_expects_latin_words(translation, expected):
    limits = WarningLimits(0.0, 99.0, scripts=("GEORGIAN",))
    numbers = ["numbers"][: "12" in translation]
    assert find_warnings("12", translation, limits) == numbers + expected


def test_find_warnings_names_scripts_only_if_the_usual_ones_are_known():
    assert find_warnings("The dog sleeps.", "Der Hund спит.", WarningLimits()) == []


@given(st.text(max_size=40), st.text(max_size=40))
def test_find_warnings_accepts_any_text(source, translation):
    warnings = find_warnings(source, translation, ANY)
    assert [name for name in WARNINGS if name in warnings] == warnings


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=9), st.integers(1, 3))
def test_most_repeats_counts_phrases_in_a_row(words, size):
    def repeats(start):
        phrase, count = words[start : start + size], 0
        if len(phrase) < size:
            return 0
        while words[start : start + size] == phrase:
            start += size
            count += 1
        return count

    assert most_repeats(words, size) == max(1, *map(repeats, range(len(words))))


def test_scripts_of_usual_letters_are_found_without_protected_text(monkeypatch):
    texts = {"LATIN": "A café opens at 9:30 (v1.2).", "CYRILLIC": "Кафе, 12 км, §\u00a05."}
    protected = "Файл https://example.org/read_me.html открыт."
    assert not has_other_scripts(protected, ["CYRILLIC"])
    monkeypatch.setattr(translation_warnings, "remove_protected", None)
    for script, text in texts.items():
        assert not has_other_scripts(text, [script])
    assert not has_other_scripts("".join(texts.values()), [*texts])


def test_text_without_other_than_latin_letters_is_found_by_a_pattern(monkeypatch):
    characters = filter(translation_warnings._LATIN.fullmatch, map(chr, range(0x3000)))
    latin = "".join(characters)
    assert len(latin) > 600 and {*count_scripts(latin)} == {"LATIN"}
    assert not translation_warnings._LATIN.fullmatch("5 \u00b5m")
    monkeypatch.setattr(translation_warnings, "count_scripts", None)
    assert not has_other_scripts("Ein Café öffnet – heute.", ["LATIN"])


def test_find_warnings_names_sources_in_scripts_of_no_source_in_training():
    limits = WarningLimits(source_scripts=("LATIN",))
    assert find_warnings("Собака спит на траве.", "A man is sleeping.", limits) == ["script"]
    assert find_warnings("Der Hund heißt Бобик.", "The dog is called Bobik.", limits) == []
    assert find_warnings("Собака спит на траве.", "A man is sleeping.", WarningLimits()) == []
    assert find_warnings("12:30 – ♪", "12:30 – ♪", limits) == []


def test_measure_limits_covers_the_usual_lengths_and_scripts():
    sources = ["a" * 10] * 2000
    translations = ["b" * 10] * 1000 + ["b" * 20] * 1000
    translations[7] = "b" * 9990
    translations[8] = "Ω"
    limits = measure_limits(sources, translations)
    assert (limits.shortest, limits.longest) == (1.0, 1.5)
    assert limits.scripts == limits.source_scripts == ("LATIN",)
    assert find_warnings(sources[7], translations[7], limits) == ["repetition", "length"]
    assert length_ratio("", "") == 1.0
