"""Texts of many scripts for property tests: letters with their marks, words, and sentences. Also the
normal form of a text, character by character, as new tokenizers return it.
"""

import unicodedata

import regex
from hypothesis import strategies as st

# Letters, marks of which each one may follow, the mark at the end of a sentence, and the space
# between words.
_LATIN, _GREEK, _CYRILLIC, _HANGUL = "aeosnlABÉéüßñ", "αεησωΑΕάέΰ", "аеийстЁё", "가각한국어는말"
SCRIPTS = {
    "Latin": (_LATIN, "", ".", " "),
    "Latin in NFD": ("aeosnlAB", "\u0301\u0308\u0327", ".", " "),
    "Greek": (_GREEK, "", ".", " "),
    "Cyrillic": (_CYRILLIC, "\u0301", ".", " "),
    "Arabic": ("ابتسلمن", "\u064e\u064f\u0651", ".", " "),
    "Hebrew": ("אבגדהלמש", "\u05b0\u05b8\u05bc", ".", " "),
    "Devanagari": ("कखगतनमरसअ", "\u093e\u093f\u0940\u0947\u0902\u094d", "।", " "),
    "Tamil": ("கசதநமரலஅ", "\u0bbe\u0bbf\u0bc1\u0bcd", ".", " "),
    "Thai": ("กขคงดตนมรส", "\u0e31\u0e34\u0e35\u0e48\u0e49", "", ""),
    "Han": ("我今天去学校他来了", "", "。", ""),
    "Hangul": (_HANGUL, "", ".", " "),
}
WITH_CASE = ("Latin", "Latin in NFD", "Greek", "Cyrillic")
UNSPACED = ("Thai", "Han")
WITHOUT_PERIODS = ("Thai",)


def letters(text: str) -> list[str]:
    """Return the characters of a text, each with its marks."""
    return regex.findall(r"\P{M}\p{M}*", text)


def words(script: str) -> st.SearchStrategy[str]:
    bases, marks, _, _ = SCRIPTS[script]
    letter = st.builds(str.__add__, st.sampled_from(bases), st.sampled_from(["", *marks]))
    return st.lists(letter, min_size=1, max_size=7).map("".join)


def sentences(script: str) -> st.SearchStrategy[str]:
    _, _, period, space = SCRIPTS[script]
    words_of_sentence = st.lists(words(script), min_size=1, max_size=12)
    return words_of_sentence.map(lambda spelled: space.join(spelled) + period)


def in_form(form: str, text: str) -> str:
    return unicodedata.normalize(form, text)


INVISIBLE = {chr(code) for code in (0xAD, 0x61C, 0x200B, 0x200E, 0x200F, 0xFEFF)}
INVISIBLE |= {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2060, 0x2070))}
JOINERS = "\u200c\u200d"
# Latin, Greek and Cyrillic.
UNJOINED = [(0x41, 0x5A), (0x61, 0x7A), (0xAA, 0x52F), (0x1E00, 0x1FFF)]


def normal_form(text):
    """Return a text without invisible characters and idle joiners, with single spaces, composed
    (NFC).
    """
    kept = ""
    for index, character in enumerate(text):
        if not is_invisible(character) and not is_idle_joiner(text, index):
            kept += character
    return " ".join(unicodedata.normalize("NFC", kept).split())


def is_invisible(character):
    control = unicodedata.category(character) == "Cc" and not character.isspace()
    return control or character in INVISIBLE


def is_idle_joiner(text, index):
    if text[index] not in JOINERS:
        return False
    before, after = text[:index].rstrip(JOINERS), text[index:].lstrip(JOINERS)
    return not joins(before[-1:]) and not joins(after[:1])


def joins(character):
    if not character or character.isspace() or is_invisible(character):
        return False
    if unicodedata.category(character)[0] in "NP":
        return False
    return not any(low <= ord(character) <= high for low, high in UNJOINED)
