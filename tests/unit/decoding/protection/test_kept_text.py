"""Text that must survive keeps its order and the white space beside it."""

import pytest

from vanilla_transformer.decoding.protection.kept_text import (
    add_quotation_marks,
    is_in_marks,
    keeps_order,
    space_gap,
)


@pytest.mark.parametrize(
    ("texts", "order", "is_kept"),
    [
        (["%d", "%s"], [0, 1], True),
        (["%d", "%s"], [1, 0], False),
        (["{}", "{:>5}"], [1, 0], False),
        (["<b>", "</b>"], [1, 0], False),
        (["`%d`", "%s"], [1, 0], False),
        (["%2$s", "%1$s"], [1, 0], True),
        (["%%", "%date%", "https://a.b/%20d%2fd", "%d"], [3, 2, 1, 0], True),
    ],
)
def test_keeps_order_tells_fields_without_names_from_others(texts, order, is_kept):
    assert keeps_order(texts, order) == is_kept


@pytest.mark.parametrize(
    ("gap", "after", "before", "expected"),
    [
        ("Dateien", " files", None, " Dateien"),
        ("Dateien", "\u00a0files", None, "\u00a0Dateien"),
        ("ファイル", " files", None, "ファイル"),
        ("개", " files", None, "개"),
        ("Datei", None, "file ", "Datei "),
        ("Datei", None, "", "Datei "),
        (" MB frei", "MB free", None, "MB frei"),
        (" Mann", "MB free", None, " Mann"),
        ("( ", None, "(", "("),
        ("  Mann", " man", None, "  Mann"),
        (" man", "\nman", None, " man"),
        ("man ", None, "man\n", "man "),
        ("", " and ", " and ", " "),
        ("Datei", ", file", None, " Datei"),
        ("Datei", None, "(", "Datei "),
        ("s Datei", "'s file", None, "s Datei"),
        ("Datei", "' file", None, " Datei"),
        ("l'", None, "the '", "l'"),
        ("der", None, "the '", "der "),
        ("l", None, "l'", "l"),
        ("Datei", "file", None, "Datei"),
        ("ファイル", "-file", None, "ファイル"),
        ("s", "s", None, "s"),
        ("ב", None, "in ", "ב"),
        ("מ", " in", None, " מ"),
        ("של", None, "of ", "של "),
        ("مبلغ", None, "amount ", "مبلغ "),
        ("و", None, "and ", "و "),
        ("و", None, "(", "و "),
        ("و", " and", None, " و"),
        ("की", None, "of ", "की "),
        ("เป็น", None, "is ", "เป็น"),
        ("か\u3099", None, "is ", "か\u3099"),
    ],
)
def test_space_gap_gives_words_the_spaces_of_the_source(gap, after, before, expected):
    assert space_gap(gap, after, before) == expected


@pytest.mark.parametrize(
    ("text", "kept", "quoted"),
    [
        ("a '%s' b", ["%s"], ["'%s'"]),
        ('(%s) "%d" “{a}” «%1» „%2“ [%3]', None, None),
        ("'%s\" %d's l'%1' '%2", ["%s", "%d", "%1", "%2"], ["%s", "%d", "%1", "%2"]),
        ("'%s''%d'", ["%s", "%d"], ["'%s'", "'%d'"]),
        ("'%s'%d'", ["%s", "%d"], ["'%s'", "%d"]),
        ("'%s%d'", ["%s", "%d"], ["%s", "%d"]),
        ("%s", ["%s"], ["%s"]),
    ],
)
def test_quotation_marks_belong_to_the_text_directly_in_them(text, kept, quoted):
    kept = kept or ["%s", "%d", "{a}", "%1", "%2", "%3"]
    places = [(text.index(word), text.index(word) + len(word)) for word in kept]
    wider = [text[start:end] for start, end in add_quotation_marks(text, places)]
    assert wider == (quoted or text.split())


def test_marks_of_other_languages_are_around_a_text():
    for text in ("„x“", "« x »", "「x」", "(x)", "'x'", "（x）"):
        assert is_in_marks(text, text.index("x"), text.index("x") + 1)
    for text in ("x", "'x", "x'", "a x b"):
        assert not is_in_marks(text, text.index("x"), text.index("x") + 1)
