"""Find text that was read in a wrong encoding, and text with markup."""

import html.entities
import re

# Control characters but white space: U+0080 to U+009F are Windows-1252 that was read as Latin-1.
_BAD_CHARACTER = re.compile("[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd]")

# What each byte of UTF-8 after the first is in Windows-1252, or in Latin-1 where that has none.
# Quotation marks and dashes also stand after letters of real text.
_MARKS = "‚„…‘’“”•–—™‹›«»°\xa0"
_SIGNS = "".join(
    character
    for byte in range(0x80, 0xC0)
    if (character := bytes([byte]).decode("cp1252", errors="replace").replace("\ufffd", chr(byte)))
    not in _MARKS
)
_ANY = re.escape(_MARKS + _SIGNS)
_SIGN = re.escape(_SIGNS)
_MOJIBAKE = re.compile(
    # Letters of Latin-1 and Latin Extended-A
    rf"[ÃÄÅ](?:[{_SIGN}]|[{re.escape(_MARKS)}](?=[a-zß-ÿ]))"
    rf"|Ã\xa0|Â[\xa0-¿]|â[€‚„][{_ANY}]|[à-ï][{_ANY}]{{2}}(?:[à-ï][{_ANY}]{{2}})+|ð[Ÿ\x9f][{_ANY}]{{2}}|ï»¿"
    rf"|(?:[Ã-ß][{_ANY}]\s?){{3,}}"  # Cyrillic, Greek, Hebrew and Arabic
)


def has_bad_encoding(text: str) -> bool:
    """
    Return whether a text has control characters, U+FFFD, or UTF-8 that was read as Windows-1252 or
    Latin-1.

    The latter are sequences, such as `Ã¤`, `â€™` or `Ð¿Ñ€Ð¸`, that encode a character of UTF-8 and
    are rare in text.
    """
    if text.isascii() and text.isprintable():
        return False
    return _BAD_CHARACTER.search(text) is not None or any(map(_is_utf_8, _MOJIBAKE.finditer(text)))


def _is_utf_8(match: re.Match[str]) -> bool:
    """Return whether the bytes of some characters are UTF-8."""
    content = bytearray()
    for character in match[0].rstrip():
        content += character.encode("cp1252", "ignore") or character.encode("latin-1", "replace")
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


_TAG = re.compile(
    r"</?[A-Za-z][A-Za-z0-9:-]*(?:\s[^<>]*)?/?>|<!--|<!\[CDATA\[|<!DOCTYPE", re.IGNORECASE
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|([A-Za-z][A-Za-z0-9]{1,31}));")


def has_markup(text: str) -> bool:
    """Return whether a text has a tag, a comment or an entity of HTML or XML."""
    if "<" in text and _TAG.search(text):
        return True
    return "&" in text and any(
        match[1] is None or f"{match[1]};" in html.entities.html5
        for match in _ENTITY.finditer(text)
    )
