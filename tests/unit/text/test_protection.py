"""Where text to keep is, and where it is found again in a translation."""

import time

import pytest

from vanilla_transformer.text.protection import find_protected, locate


@pytest.mark.parametrize(
    ("texts", "translation", "expected"),
    [
        (["https://a.b"], "Siehe https://a.b jetzt.", [(6, 17)]),
        (["https://a.b"], "Siehe https://a.bäle jetzt.", None),
        (["https://a.b"], "Смотри https://a.bя", None),
        (["123"], "1234", None),
        (["123"], "第123号", [(1, 4)]),
        (["{a}", "{b}", "{a}"], "{b}x{a} {a}", [(4, 7), (0, 3), (8, 11)]),
        (["{a}", "{a}"], "{a} {b}", None),
    ],
)
def test_locate_finds_text_that_is_no_part_of_a_longer_word(texts, translation, expected):
    assert locate(texts, translation) == expected


@pytest.mark.parametrize(
    ("text", "translation", "is_found"),
    [
        ("123", "ที่123", True),
        ("กา", "กาแฟ", True),
        ("กา", "กา\u0e48", False),
        ("cafe", "cafe\u0301", False),
        ("❤", "❤\ufe0f", True),
        ("ཀ", "ཀཁ", True),
    ],
)
def test_locate_finds_whole_letters_of_scripts_without_spaces(text, translation, is_found):
    assert (locate([text], translation) is not None) == is_found


def test_locate_finds_texts_side_by_side():
    assert locate(["%s", "{name}"], "x {name}%s") == [(8, 10), (2, 8)]


@pytest.mark.parametrize("text", ["a" * 50_000, "%" + "0" * 50_000, "$" + "1" * 50_000 + ".1"])
def test_find_protected_takes_linear_time(text):
    started = time.process_time()
    find_protected(text)
    assert time.process_time() - started < 5  # 30 ms, and 30 s in quadratic time
