"""Columns of CSV and TSV: their cells are translated and stay cells, and all other bytes stay."""

import csv
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.document_translation import copy, shout, translate_document
from tests.sweeps import examples
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.documents import parse_document


def translate(text, columns, form="csv", model=shout):
    return translate_document(text, form, model, split_simply, columns=columns)


SHOP = (
    '\ufeffid,"name", description,price\r\na1,red cup,"It holds ""tea"", or\nmilk",5\r\n'
    '"a2",  small  cup ,,6\n\r\na3,"big, cup","A\r\ncup"\r\n,,,\r\na4,5,x\r'
)
# Edits of the table by the columns that are translated
EDITS = {
    "name": {"red cup": "RED CUP", "small  cup": "SMALL  CUP", "big, cup": "BIG, CUP"},
    "description, name": {
        "red cup": "RED CUP",
        'It holds ""tea"", or\nmilk': 'IT HOLDS ""TEA"", OR\nMILK',
        "small  cup": "SMALL  CUP",
        "big, cup": "BIG, CUP",
        "A\r\ncup": "A\r\nCUP",
        "5,x": "5,X",
    },
    "1": {"id": "ID", "a1": "A1", "a2": "A2", "a3": "A3", "a4": "A4"},
    "4": {"price": "PRICE"},
}


@pytest.mark.parametrize("columns", EDITS)
@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
def test_cells_of_columns_are_translated_and_all_else_stays(columns, separator):
    source = expected = SHOP
    for before, after in EDITS[columns].items():
        assert expected.count(before) == 1, before
        expected = expected.replace(before, after)
    # Commas in quotation marks do not separate.
    swap = str.maketrans({",": separator, separator: ","})
    assert translate(source.translate(swap), columns) == expected.translate(swap)
    assert translate(source.translate(swap), columns, model=copy) == source.translate(swap)


@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("answer", ['a "b"', '"a"', "a, b", "a\tb", "a;b", "'a", '"', ',"', " a "])
def test_a_translation_is_one_cell(form, answer):
    separator = {"csv": ",", "tsv": "\t"}[form]
    rows = [["key", "a b", "c"], ["k", "two words", "d"], ["", "", ""]]
    plain = "\n".join(map(separator.join, rows))
    quoted = plain.replace("two words", '"two words"')
    for text in (plain, quoted):
        translated = translate(text, "a b", form, lambda texts: [(answer, None) for _ in texts])
        assert translated.startswith(plain[:10]) and translated.endswith(plain[-5:])
        expected = rows[:1] + [["k", answer, "d"]] + rows[2:]
        is_literal = form == "tsv" and text == plain and answer in ('a "b"', '"')
        if not is_literal:
            assert [*csv.reader(StringIO(translated), delimiter=separator)] == expected


def test_quotation_marks_of_tsv_may_be_text():
    text = 'a\tb\n1\t"Hello," he said\n2\t"so\n3\t"a ""big"" one"\n4\t"two\nlines"'
    assert translate(text, "b", "tsv") == text.upper().replace("A\tB\n", "a\tb\n", 1)
    swapped = translate(text, "b", "tsv", lambda texts: [('"x"', None) for _ in texts])
    assert '1\t"""x"""\n2\t"""x"""\n' in swapped


cells = st.text(st.sampled_from('ab1 ",;\t|\n'), max_size=5)


@examples(100)
@given(
    st.lists(st.lists(cells, min_size=2, max_size=4), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
)
def test_cells_are_read_as_python_reads_them(rows, line_end, quoting):
    file = StringIO(newline="")
    rows = [["a", "b"], *rows]
    csv.writer(file, lineterminator=line_end, quoting=quoting).writerows(rows)
    text = file.getvalue()
    assert translate(text, "b", model=copy) == text
    shouted = [*csv.reader(StringIO(translate(text, "b"), newline=""))]
    read = [*csv.reader(StringIO(text, newline=""))]
    for row in read[1:]:
        row[1:2] = [cell.upper() for cell in row[1:2]]
    assert shouted == read


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        (
            "a,b\n",
            "",
            "names in the first row or numbers from 1, of a, b, got none. Name them by `columns`",
        ),
        ("a,b\n", "b,c", "of a, b, got b,c"),
        ("a,b\n", "3", "of 1, 2, got 3"),
        ("a,b\n", "1,1", "must be different ones, got 1,1"),
        ("a,b\n", "b, b", "must be different ones, got b, b"),
        ("a,b\n", "0", "of 1, 2, got 0"),
        ("a," * 200 + "\n", "x", "a, a, …, got x"),
        ('a,b\n1,"x\n', "b", 'must be in the format csv, but line 2 is not: 1,"x'),
        ('a,b\n\n1,"x"y\n', "b", 'line 3 is not: 1,"x"y'),
        ("", "b", "got b"),
    ],
)
def test_other_tables_and_columns_are_refused(text, columns, words):
    with pytest.raises(UserError) as caught:
        translate(text, columns)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "existing", "columns", "words"),
    [
        ("k,a\nx,b\n", "k;a\nx;b\n", "a", "the separator and the columns of the source"),
        ("k,a\nx,b\n", "a,k\nb,x\n", "a", "the separator and the columns of the source"),
        ("k,a\nx,b\n", "k,b,c\n", "2", "the separator and the columns of the source"),
        ("a,b\n", "a,b\n", "1,2", "one of which is not translated"),
        (
            "k,a\nx,b\n",
            "k,a\nx\n",
            "a",
            "must have 2 cells and another key in the column k, but the one of 'x' has not",
        ),
        (
            "k,a\nx,b\n",
            "k,a\nx,b\nx,c\n",
            "a",
            "must have 2 cells and another key in the column k, but the one of 'x' has not",
        ),
    ],
)
def test_other_tables_are_not_filled(source, existing, columns, words):
    with pytest.raises(UserError) as caught:
        parse_document(source, "csv", existing=existing, columns=columns)
    assert "existing translation cannot be filled" in str(caught.value)
    assert words in str(caught.value)
