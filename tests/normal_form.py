"""The normal form of a text, character by character, as new tokenizers return it."""

import unicodedata

INVISIBLE = {chr(code) for code in (0xAD, 0x61C, 0x200B, 0x200E, 0x200F, 0xFEFF)}
INVISIBLE |= {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2060, 0x2070))}
JOINERS = "\u200c\u200d"
UNJOINED = [
    (0x41, 0x5A),
    (0x61, 0x7A),
    (0xAA, 0x52F),
    (0x1E00, 0x1FFF),
]  # Latin, Greek and Cyrillic


def normal_form(text):
    """Return a text without invisible characters and idle joiners, with single spaces, composed
    (NFC).
    """
    kept = "".join(
        each
        for at, each in enumerate(text)
        if not is_invisible(each) and not is_idle_joiner(text, at)
    )
    return " ".join(unicodedata.normalize("NFC", kept).split())


def is_invisible(character):
    control = unicodedata.category(character) == "Cc" and not character.isspace()
    return control or character in INVISIBLE


def is_idle_joiner(text, place):
    if text[place] not in JOINERS:
        return False
    return not joins(text[:place].rstrip(JOINERS)[-1:]) and not joins(
        text[place:].lstrip(JOINERS)[:1]
    )


def joins(character):
    if (
        not character
        or character.isspace()
        or is_invisible(character)
        or unicodedata.category(character)[0] in "NP"
    ):
        return False
    return not any(low <= ord(character) <= high for low, high in UNJOINED)
