"""Text in a wrong encoding, and markup, without false alarms."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.damage import has_bad_encoding, has_markup
from vanilla_transformer.data.demo_corpus import read_demo_corpus

SENTENCES = [
    "Der Hund läuft über die Straße.",
    "Ärger über Äpfel",
    "Où est-elle allée ? À la plage.",
    "Él cantó una canción en español.",
    "Zażółć gęślą jaźń.",
    "Příliš žluťoučký kůň",
    "“It’s fine” — he said…",
    "Старый дом стоит у реки.",
    "Το παλιό σπίτι είναι κόκκινο.",
    "البيت القديم أحمر.",
    "הבית הישן אדום.",
    "यह घर पुराना है।",
    "บ้านเก่าเป็นสีแดง",
    "这座老房子是红色的。",
    "この古い家は赤いです。",
    "그 오래된 집은 빨간색이다.",
    "Ngôi nhà cũ màu đỏ.",
    "20 € – 30 °C",
    "It is fun 😀",
]


def misread(text, encoding):
    """Return a text that is written as UTF-8 and read in an encoding with a character for each
    byte.
    """
    characters = []
    for byte in text.encode():
        character = bytes([byte]).decode(encoding, "replace")
        characters.append(chr(byte) if character == "\ufffd" else character)
    return "".join(characters)


@pytest.mark.parametrize("text", SENTENCES)
@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_has_bad_encoding_finds_utf_8_that_was_read_in_another_encoding(text, encoding):
    assert has_bad_encoding(misread(text, encoding))
    assert has_bad_encoding(misread(misread(text, encoding), encoding))
    assert not has_bad_encoding(text)
    assert not has_bad_encoding(unicodedata.normalize("NFD", text))


@pytest.mark.parametrize("character", ["\0", "\x02", "\x1b", "\x7f", "\x80", "\x93", "\ufffd"])
def test_has_bad_encoding_finds_characters_that_no_text_has(character):
    assert has_bad_encoding(f"one{character}two")


@pytest.mark.parametrize(
    "text",
    [
        "A tab\there, a form feed\x0c and a next line\x85.",
        "«CAFÉ»",
        "DIE “IRMÃ” E A «MAÇû",
        "“AMANHÔ",
        "»Spaß« und »Fuß«…",
        "»PÅ« – »Å«",
        "PRÊT… FORÊT— ÉTÉ™ À « part »",
        "ÃO CORAÇÃO, NÃO, SÃO: MÃE",
        "ĐÃ MÃ CÂY À Â Ê",
        "Ångström Åse Ärzte Öl Über",
        "naïve café — “naïveté”",
        "É 20° À 30° Â",
        "ÐÞÆ ðþæ",
        "100 € à 200 €, £5, ½ l, ±3, §4",
    ],
)
def test_has_bad_encoding_lets_real_text_pass(text):
    assert not has_bad_encoding(text)


def test_has_bad_encoding_has_no_false_alarm_in_the_demo_corpus():
    sides = [side for pair in read_demo_corpus("train", 20_000) for side in pair]
    assert not any(map(has_bad_encoding, sides)) and not any(map(has_markup, sides))
    damaged = [misread(side, "cp1252") for side in sides if not side.isascii()]
    assert len(damaged) > 1_000 and all(map(has_bad_encoding, damaged))


def test_has_bad_encoding_finds_words_that_a_thin_space_separates():
    letters = [misread(letter, "cp1252") for letter in "при"]
    assert has_bad_encoding("\u2009".join(letters))


@given(st.text())
def test_has_bad_encoding_takes_any_text(text):
    assert has_bad_encoding(text) in (True, False) and has_markup(text) in (True, False)


MARKUP = ["a <b>big</b> dog", "<br/>", "<a href='x'>", "</p>", "<!-- no -->"]
MARKUP += ["x&nbsp;y", "&amp;", "&#39;", "&#xE4;", "<x:y>"]


@pytest.mark.parametrize("text", MARKUP)
def test_has_markup_finds_tags_and_entities(text):
    assert has_markup(text)


@pytest.mark.parametrize(
    "text",
    ["a < b and c > d", "I <3 you", "AT&T; R&D", "<john@x.org>", "&c.", "&we;", "a <- b", "1<2>1"],
)
def test_has_markup_lets_text_pass(text):
    assert not has_markup(text)
