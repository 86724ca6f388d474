"""Texts and lines in UTF-8; other encodings are named."""

import re
import time

import pytest

from vanilla_transformer.files.text_files import (
    decode_document,
    decode_text,
    fit_encoding,
    stream_lines,
)

_WIDE = ["The old house.\nIt is red.\n", "Старый дом.\nОн красный, да.\n"]
_WIDE.append("这座老房子。\n它是红色的。\n" * 9)


@pytest.mark.parametrize("text", _WIDE)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_decode_text_names_utf_16(text, encoding):
    name = "UTF-32" if encoding.startswith("utf-32") else encoding.upper().replace("16-", "16")
    text = f"\ufeff{text}" if encoding == "utf-32-be" else text
    command = f"`iconv -f {name} -t UTF-8 OLD > NEW`"
    message = f"a.en must be UTF-8, but it is {name}. Convert the file: {command}."
    with pytest.raises(ValueError, match=re.escape(message)):
        decode_text(text.encode(encoding), "a.en")


@pytest.mark.parametrize("text", [*_WIDE, "It is a\0b, and no more: 1, 2, 3 and so on.\n" * 9, ""])
def test_decode_text_reads_utf_8(text):
    assert decode_text(text.encode(), "a.en") == text
    assert decode_text(b"\xef\xbb\xbf" + text.encode(), "a.en") == text


def test_decoding_names_the_line_and_the_byte():
    message = "a must be UTF-8, but line 2 has the byte 0xe4 .* `iconv -f cp1252 -t utf-8`"
    with pytest.raises(ValueError, match=message):
        decode_text(b"one\n\xe4\n", "a")
    with pytest.raises(ValueError, match=message):
        decode_text(b"\xef\xbb\xbfone\n\xe4\n", "a")
    with pytest.raises(ValueError, match=message):
        decode_text(b"\xe4", "a", first=2)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Was du möchtest, ist das Allerwichtigste.", "cp1252"),
        ("Dzień dobry, jak się masz? Świetnie, dziękuję bardzo.", "cp1250"),
        ("Москва и мы идём домой.", "cp1251"),
        ("今日はいい天気ですね。", "cp932"),
        ("今天天气很好，我们去公园。", "gb18030"),
    ],
)
def test_decoding_names_the_likely_encoding(text, encoding):
    command = f"`iconv -f {encoding} -t utf-8`"
    message = f"It may be {encoding}: convert the file, .* {command}"
    with pytest.raises(ValueError, match=message):
        decode_text(text.encode(encoding), "a")


XML = '<?xml version="1.0" encoding="{}"?>\n<a>{}</a>'
PAGE = '<html><head><meta charset="{}"></head>{}</html>'


@pytest.mark.parametrize(
    ("text", "encoding", "declared"),
    [
        ("\ufeffä", "utf-16-le", "UTF-16-LE"),
        ("\ufeffä", "utf-16-be", "UTF-16-BE"),
        ("\ufeffä", "utf-8", "UTF-8"),
        ("\ufeff" + XML.format("UTF-16", "ä"), "utf-16-be", "UTF-16-BE"),
        (XML.format("ISO-8859-1", "ä"), "latin-1", "ISO-8859-1"),
        (XML.format("ISO-8859-1", "a"), "latin-1", "ISO-8859-1"),
        (PAGE.format("windows-1251", "дом"), "cp1251", "windows-1251"),
        ('<meta charset="ISO-8859-1"><p>ä', "latin-1", "ISO-8859-1"),
        (XML.format("ISO-8859-1", "ä"), "utf-8", "UTF-8"),  # another name of UTF-8
        (XML.format("UTF-16", "a"), "utf-8", "UTF-8"),
        (XML.format("no-such", "a"), "utf-8", "UTF-8"),
        ("ISO-8859-1 a", "utf-8", "UTF-8"),
    ],
)
def test_decode_document_reads_declared_encodings(text, encoding, declared):
    assert decode_document(text.encode(encoding), "a") == (text, declared)
    if declared != "UTF-8":
        assert fit_encoding(text, declared) == text


def test_decode_document_refuses_other_encodings():
    unknown = XML.format("no-such", "ä").encode("latin-1")
    for content in (unknown, "ä".encode("latin-1"), b"\xff\xfea"):
        with pytest.raises(ValueError, match="a must be UTF-8, but .* `iconv"):
            decode_document(content, "a")


def test_decode_document_reads_properties_as_java_does():
    assert decode_document("a = ä".encode("latin-1"), "a", "properties") == ("a = ä", "latin-1")
    assert decode_document("a = ä".encode(), "a", "properties") == ("a = ä", "UTF-8")
    assert fit_encoding("a = ä ж 😀", "latin-1") == r"a = ä \u0436 \ud83d\ude00"
    with pytest.raises(ValueError, match="a must be text"):
        decode_document(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff", "a", "properties")


def test_fit_encoding_writes_references_and_the_name():
    declared = XML.format("UTF-8", "ä ж")
    assert fit_encoding(declared, "ISO-8859-1") == XML.format("ISO-8859-1", "ä &#1078;")
    assert fit_encoding(declared, "UTF-16-LE") == XML.format("UTF-16", "ä ж")
    assert fit_encoding(declared, "UTF-8") == declared


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r\r\n"])
def test_stream_lines_leaves_out_any_line_end(tmp_path, line_end):
    (tmp_path / "a").write_bytes(f"one{line_end}two{line_end}".encode())
    assert [*stream_lines(tmp_path / "a")] == ["one", "two"]


HEADS = ["<html><meta charset=" + " " * 60_000 + "<"]
HEADS.append("<" + "<meta " * 660 + "a" * 2_000_000)


@pytest.mark.parametrize("head", HEADS)
def test_decode_document_asks_for_the_encoding_in_linear_time(head):
    started = time.process_time()
    assert decode_document(head.encode(), "a.html", "html") == (head, "UTF-8")
    assert time.process_time() - started < 2  # 20 ms, and minutes in quadratic time
