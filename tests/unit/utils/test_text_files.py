"""Texts and lines in UTF-8; other encodings are named."""

import re

import pytest

from vanilla_transformer.utils.text_files import decode_text

_WIDE = ["The old house.\nIt is red.\n", "Старый дом.\nОн красный, да.\n", "这座老房子。\n它是红色的。\n" * 9]


@pytest.mark.parametrize("text", _WIDE)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_decode_text_names_utf_16(text, encoding):
    found = "UTF-32" if encoding == "utf-32" else encoding.upper().replace("16-", "16")
    message = f"a.en must be UTF-8, but it is {found}. Convert the file: `iconv -f {found} -t UTF-8 OLD > NEW`."
    with pytest.raises(ValueError, match=re.escape(message)):
        decode_text(text.encode(encoding), "a.en")


@pytest.mark.parametrize("text", [*_WIDE, "It is a\0b, and no more: 1, 2, 3 and so on.\n" * 9, ""])
def test_decode_text_reads_utf_8(text):
    assert decode_text(b"\xef\xbb\xbf" + text.encode(), "a.en") == decode_text(text.encode(), "a.en") == text


def test_decoding_names_the_line_and_the_byte():
    message = "a must be UTF-8, but line 2 has the byte 0xe4 .* `iconv -f latin1 -t utf-8`"
    with pytest.raises(ValueError, match=message):
        decode_text(b"one\n\xe4\n", "a")
    with pytest.raises(ValueError, match=message):
        decode_text(b"\xef\xbb\xbfone\n\xe4\n", "a")
    with pytest.raises(ValueError, match=message):
        decode_text(b"\xe4", "a", first=2)
