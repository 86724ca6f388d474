"""Bytes that are not UTF-8, which readers turn into lone surrogates (PEP 383)."""

import re
from pathlib import Path

_SURROGATE = re.compile("[\ud800-\udfff]")


def has_invalid_unicode(text: str) -> bool:
    """Return whether `text` holds surrogates, which UTF-8 cannot encode and which stand for invalid bytes here."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def escape_invalid_unicode(text: str) -> str:
    """Replace what UTF-8 cannot encode by escape sequences such as `\\xe4`."""
    return _SURROGATE.sub(lambda found: ascii(found[0])[1:-1].replace("\\udc", "\\x"), text)


def invalid_unicode_error(number: int, location: str | Path, text: str) -> ValueError:
    """Return the error for a line or row that is not valid Unicode."""
    code_point = ord(_SURROGATE.findall(text)[0])
    is_byte = 0xDC80 <= code_point <= 0xDCFF
    found = f"the byte 0x{code_point - 0xDC00:02x}" if is_byte else f"U+{code_point:04X}"
    return ValueError(
        f"{location} must be UTF-8, but line {number} has {found} where none can be. Convert the file, for example "
        "with `iconv -f latin1 -t utf-8`, or leave such pairs out by `drop_invalid_unicode`."
    )
