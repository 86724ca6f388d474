"""Names of columns in the first line of a TSV file."""

import pytest

from vanilla_transformer.text.column_names import find_named_columns


@pytest.mark.parametrize(
    ("line", "languages", "expected"),
    [
        ("source target", (), (0, 1)),
        ("TARGET Score Source", ("en", "de"), (2, 0)),
        ('"src" "trg"', (), (0, 1)),
        ("en de", (), (0, 1)),
        ("de en", ("en", "de"), (1, 0)),
        ("de-AT en_US", ("en", "de"), (1, 0)),
        ("deu eng", ("eng", "deu"), (1, 0)),
        ("id en de score", ("en", "de"), (1, 2)),
        ("pt-BR pt", ("pt-BR", "pt"), None),  # which is which is not clear
        ("en en", (), None),
        ("en fr", ("en", "de"), None),
        ("is tist", (), None),
        ("yes ja", (), None),
        ("he er", (), None),
        ("source source target", (), None),
        ("", ("en", "de"), None),
    ],
)
def test_find_named_columns(line, languages, expected):
    assert find_named_columns(line.split(" "), *languages) == expected
