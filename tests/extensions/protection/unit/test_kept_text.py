"""Text that must survive keeps its order and the white space beside it."""

import pytest

from vanilla_transformer.extensions.protection.kept_text import keeps_order, space_gap


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
        ("Dateien", " files", None, (1, " Dateien")),
        ("Dateien", "\u00a0files", None, (1, "\u00a0Dateien")),
        ("ファイル", " files", None, (0, "ファイル")),
        ("개", " files", None, (0, "개")),
        ("Datei", None, "file ", (0, "Datei ")),
        ("Datei", None, "", (0, "Datei ")),
        (" MB frei", "MB free", None, (-1, "MB frei")),
        (" Mann", "MB free", None, (0, " Mann")),
        ("( ", None, "(", (0, "(")),
        ("", " and ", " and ", (0, " ")),
        ("Datei", ", file", None, (1, " Datei")),
        ("Datei", None, "(", (0, "Datei ")),
        ("s Datei", "'s file", None, (0, "s Datei")),
        ("Datei", "file", None, (0, "Datei")),
        ("ファイル", "-file", None, (0, "ファイル")),
        ("s", "s", None, (0, "s")),
        ("ב", None, "in ", (0, "ב")),
        ("מ", " in", None, (1, " מ")),
        ("של", None, "of ", (0, "של ")),
        ("مبلغ", None, "amount ", (0, "مبلغ ")),
        ("و", None, "and ", (0, "و ")),
        ("و", None, "(", (0, "و ")),
        ("و", " and", None, (1, " و")),
        ("की", None, "of ", (0, "की ")),
        ("เป็น", None, "is ", (0, "เป็น")),
        ("か\u3099", None, "is ", (0, "か\u3099")),
    ],
)
def test_space_gap_gives_words_the_spaces_of_the_source(gap, after, before, expected):
    assert space_gap(gap, after, before) == expected
