"""Reading parallel text: every mistake of a user is named with its file and line."""

import gzip
import io
import json
import lzma
import os
import tracemalloc
import zipfile
from itertools import chain

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.sweeps import sample
from vanilla_transformer.data.readers import (
    CorpusRow,
    CorpusSpec,
    Piece,
    SentencePair,
    content_key,
    line_formats,
    open_corpus,
    read_lines,
    read_pairs,
    read_rows,
    read_text_files,
    split_corpus,
    stream_lines,
)
from vanilla_transformer.files.text_files import LONGEST_LINE

PAIRS = [SentencePair("one", "eins"), SentencePair("two", "zwei")]
ROWS = [{"en": "one", "de": "eins"}, {"en": " two", "de": "zwei "}]
LANGUAGES = {"source_language": "en", "target_language": "de"}
COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def parse(spec, **options):
    with open_corpus(spec, **options) as corpus:
        return list(read_pairs(corpus))


@pytest.mark.parametrize(
    ("source", "target", "pairs"),
    [
        ("one\n two \nthree", "eins\nzwei\ndrei\n", [*PAIRS, SentencePair("three", "drei")]),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", "eins\nzwei\n", PAIRS),
        ("one\x0bmore\u2028more\n", "eins\n", [SentencePair("one\x0bmore\u2028more", "eins")]),
        ("one\n\ntwo\n", "eins\n\nzwei\n", PAIRS),
    ],
    ids=["spaces", "Windows", "line feeds", "blank on both sides"],
)
def test_read_text_files_pairs_lines(write, source, target, pairs):
    assert read_text_files(write("a.en", source), write("a.de", target)) == pairs


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("", "eins\n", "a.en is empty"),
        ("\n \n", "eins\n", "a.en is empty"),
        ("one\ntwo\n", "eins\n", "got 2 in .*a.en and 1 in .*a.de"),
        ("one\ntwo\n", b"eins\n\xe4pfel\n", "a.de must be UTF-8, but line 2 has the byte 0xe4"),
        ("one\ntwo\nthree\n", "eins\n\ndrei\n", "Line 2 of .*a.de is blank"),
    ],
)
def test_read_text_files_names_a_mistake(write, source, target, message):
    with pytest.raises(ValueError, match=message):
        read_text_files(write("a.en", source), write("a.de", target))
    with pytest.raises(FileNotFoundError, match="There is no file nowhere.en"):
        read_text_files("nowhere.en", write("a.de", target))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_read_pairs_names_utf_16(write, ending, encoding):
    content = COMPRESSIONS[ending]("one\ttwo\n".encode(encoding))
    file = write("a.tsv" + ending, content)
    name = encoding.upper().replace("16-", "16")
    message = f"a.tsv.* must be UTF-8, but it is {name}. .* `iconv -f {name} -t UTF-8"
    with pytest.raises(ValueError, match=message):
        parse(CorpusSpec(file=str(file)))


@pytest.fixture
def dataset(tmp_path):
    pairs = [("one", "eins"), ("two ", " zwei"), ("", "drei")]
    rows = [{"en": english, "de": german} for english, german in pairs]
    folder = tmp_path / "dataset"
    training = datasets.Dataset.from_dict({"translation": rows})
    datasets.DatasetDict({"train": training}).save_to_disk(folder)
    return str(folder)


def test_read_pairs_reads_a_saved_dataset(dataset):
    pairs = parse(CorpusSpec(dataset=dataset, **LANGUAGES))
    assert pairs == [*PAIRS, SentencePair("", "drei")]
    with pytest.raises(ValueError, match="split 'test', it has 'train'"):
        parse(CorpusSpec(dataset=dataset, split="test", **LANGUAGES))
    with pytest.raises(ValueError, match="no language 'fr', it has 'de', 'en'"):
        parse(CorpusSpec(dataset=dataset, **LANGUAGES | {"target_language": "fr"}))


def pack(ending, text):
    return COMPRESSIONS[ending](text.encode())


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_readers_decompress(write, ending):
    source = write("a.en" + ending, pack(ending, "one\ntwo\n"))
    target = write("a.de", "eins\nzwei\n")
    assert read_text_files(source, target) == PAIRS
    assert parse(CorpusSpec(source=str(source), target=str(target))) == PAIRS
    table = write("a.tsv" + ending, pack(ending, "\ufeffone\teins\n two\tzwei \n"))
    assert parse(CorpusSpec(file=str(table))) == PAIRS
    lines = write("a" + ending, pack(ending, "fünf\n\n zwölf\n"))
    assert read_lines(lines) == ["fünf", "", "zwölf"]


SCORED = [CorpusRow(1, PAIRS[0], 0.9), CorpusRow(2, PAIRS[1], -1.5)]


def parse_rows(spec):
    with open_corpus(spec) as corpus:
        return list(read_rows(corpus))


SCORES = "".join(f"a{number}\tA{number}\t0.{number}\n" for number in range(1, 8))
JSON_LINES = [json.dumps({"source": f"a{number}", "target": "A"}) for number in range(7)]
SPLIT = {
    "one and two": ("\ufeffa\r\n\nb\n{}\n\nd\n", "A\n\nB\nC\n\nD"),
    "blank lines": ("a" + "\n" * 20, "A\n" + " \n" * 19),
    "table": (SCORES.replace("a3", "WEBVTT"),),
    "table with names": (f"source\ttarget\tscore\n{SCORES}",),
    "rows": ("\n".join([JSON_LINES[0], "", *JSON_LINES[1:]]),),
}


def split_spec(write, kind):
    """Write the files of a corpus of `SPLIT`, and return it."""
    contents = SPLIT[kind]
    if len(contents) == 2:
        source, target = write("a.en", contents[0]), write("a.de", contents[1])
        return CorpusSpec(source=str(source), target=str(target))
    ending = ".jsonl" if kind == "rows" else ".tsv"
    return CorpusSpec(file=str(write(f"a{ending}", contents[0])), reverse=True)


def parse_pieces(spec, lines):
    """Return the rows of each piece of a corpus, of which the last is read first."""
    with open_corpus(spec) as corpus:
        pieces = split_corpus(corpus, lines)
    parts = []
    for piece in reversed(pieces):
        with open_corpus(spec) as corpus:
            parts.append(list(read_rows(corpus._replace(piece=piece))))
    return parts[::-1]


@pytest.mark.parametrize("lines", [1, 2, 3, 5, 8, 99])
@pytest.mark.parametrize("kind", SPLIT)
def test_pieces_of_a_corpus_are_its_rows(write, kind, lines, caplog):
    caplog.set_level("INFO")
    spec = split_spec(write, kind)
    expected = parse_rows(spec)
    messages = [*caplog.messages]
    pieces = parse_pieces(spec, lines)
    assert [*chain.from_iterable(pieces)] == expected
    total = len(SPLIT[kind][0].splitlines())
    assert len(pieces) == -(-total // lines)
    assert caplog.messages == messages * 2  # once for all pieces


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_compressed_files_and_other_formats_are_one_piece(write, tmp_path, ending):
    write("a.en", "one\n" * 4)
    target = write("a.de" + ending, pack(ending, "eins\n" * 4))
    spec = CorpusSpec(source=str(tmp_path / "a.en"), target=str(target))
    with open_corpus(spec) as corpus:
        assert len(split_corpus(corpus, 2)) == (1 if ending else 2)
    with open_corpus(CorpusSpec(file=str(write("a.tmx", TMX)))) as corpus:
        assert split_corpus(corpus, 2) == [Piece()]


PIECE_MISTAKES = {
    ("a\nb\nc\nd\n", "A\nB\nC\n"): "number of lines, got 4 in .*a.en and 3 in .*a.de",
    ("a\nb\nc\n", "A\nB\nC\nD\nE\nF\nG\n"): "number of lines, got 3 in .*a.en and 7 in .*a.de",
    ("a\nb\nc\n" + "d" * (LONGEST_LINE + 1), "A\nB\nC\nD\n"): "Line 4 of .*a.en must have at most",
}


@pytest.mark.parametrize("contents", PIECE_MISTAKES, ids=["shorter", "longer", "a long line"])
def test_pieces_name_mistakes_by_the_lines_of_the_file(write, contents):
    source, target = write("a.en", contents[0]), write("a.de", contents[1])
    with pytest.raises(ValueError, match=PIECE_MISTAKES[contents]):
        parse_pieces(CorpusSpec(source=str(source), target=str(target)), 2)


NAMES = ["source\ttarget", "SRC\ttgt", "src\ttrg", "en\tde", "en-US\tde_AT", "EN\tDE"]
VARIANTS = {name: f"{code}_XX" for name, code in LANGUAGES.items()}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("languages", [{}, LANGUAGES, VARIANTS])
def test_read_rows_leaves_out_names_of_columns(write, caplog, names, languages):
    caplog.set_level("INFO")
    file = write("a.tsv", f"\ufeff{names}\r\none\teins\r\n")
    rows = parse_rows(CorpusSpec(file=str(file), **languages))
    if "XX" in str(languages) and "US" in names:
        assert len(rows) == 2  # of other variants
    else:
        assert rows == [CorpusRow(2, PAIRS[0])]  # errors name the line of the file
        columns = "column 1 is the source, column 2 the target."
        assert f"a.tsv: The first line names the columns: {columns}" in caplog.text


LIKE_NAMES = ["yes\tja", "no\tnein", "en\ten", "is\tist"]
LIKE_NAMES += ["source\tQuelle", "Source code\ttarget"]


@pytest.mark.parametrize("line", LIKE_NAMES)
def test_read_rows_keeps_text_like_names_of_columns(write, line):
    text = write("a.tsv", f"{line}\none\teins\n")
    first, _ = parse_rows(CorpusSpec(file=str(text)))
    assert first == CorpusRow(1, SentencePair(*line.split("\t")))
    codes = write("b.tsv", "is\tes\n")
    rows = parse_rows(CorpusSpec(file=str(codes), **LANGUAGES))
    assert rows == [CorpusRow(1, ("is", "es"))]


SCORES = {
    "one\teins\t0.9\n two\tzwei \t-1.5\n": "column 1 is the source, column 2 the target, and column 3 has scores",
    "0.9\tone\teins\n-1.5\ttwo\tzwei\n": "column 2 is the source, column 3 the target, and column 1 has scores",
    "de\tscore\ten\neins\t0.9\tone\nzwei\t-1.5\ttwo\n": "column 3 is the source, column 1 the target, and column 2",
    "id\tsource\ttarget\tscore\n7\tone\teins\t0.9\n8\ttwo\tzwei\t-1.5\n": "and column 4 has scores",
}


@pytest.mark.parametrize(("content", "described"), SCORES.items())
def test_read_rows_finds_scores_of_tsv(write, caplog, content, described):
    caplog.set_level("INFO")
    first = 1 + (not content.startswith(("one", "0.9")))
    rows = parse_rows(CorpusSpec(file=str(write("a.tsv", content)), **LANGUAGES))
    assert rows == [row._replace(number=row.number + first - 1) for row in SCORED]
    assert described in caplog.text and len(caplog.records) == 1


def test_read_rows_says_that_columns_are_not_read(write, caplog):
    caplog.set_level("INFO")
    # Sentences and their numbers, as Tatoeba exports them
    content = "12\tone\t77\teins\n13\ttwo\t78\tzwei\n"
    rows = parse_rows(CorpusSpec(file=str(write("a.tsv", content))))
    assert [row.score for row in rows] == [None, None]
    assert "column 2 is the source, column 4 the target; no other is read" in caplog.text


@pytest.fixture
def store(write, tmp_path):
    """Return a function that writes rows as JSONL, Parquet and a dataset, and returns how a corpus
    names each.
    """

    def store(rows):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        lines = write("a.jsonl.gz", pack(".gz", text))
        table, saved = tmp_path / "a.parquet", tmp_path / "saved"
        pa.parquet.write_table(pa.Table.from_pylist(rows), table)
        datasets.Dataset.from_list(rows).save_to_disk(saved)
        return {"file": str(lines)}, {"file": str(table)}, {"dataset": str(saved)}

    return store


def test_read_rows_finds_scores_of_rows(store):
    rows = [{"translation": ROWS[0], "score": 0.9}, {"translation": ROWS[1], "score": -1.5}]
    for location in store(rows):
        assert parse_rows(CorpusSpec(**location, **LANGUAGES)) == SCORED
        reverse = parse_rows(CorpusSpec(**location, **LANGUAGES, reverse=True))
        assert reverse == [row._replace(pair=SentencePair(*row.pair[::-1])) for row in SCORED]


def test_read_pairs_keeps_quotation_marks_of_tsv(write):
    path = write("a.tsv", '"one\t"eins"\n\tzwei\n\n')
    assert parse(CorpusSpec(file=str(path))) == [('"one', '"eins"'), ("", "zwei"), ("", "")]
    blank = write("b.tsv", b" \n\x1c\n")  # the sign is white space to Python
    assert parse(CorpusSpec(file=str(blank))) == [("", ""), ("", "")]


@pytest.mark.parametrize(
    "rows",
    [
        [{"translation": row} for row in ROWS],
        ROWS,
        [{"source": row["en"], "target": row["de"]} for row in ROWS],
    ],
    ids=["translation", "languages", "source and target"],
)
def test_read_pairs_finds_columns_named_in_three_ways(store, rows):
    for location in store(rows):
        assert parse(CorpusSpec(**location, **LANGUAGES)) == PAIRS


def test_read_pairs_reads_null_as_blank(store, tmp_path):
    rows = [{"source": "one", "target": None}, {"source": "two", "target": "zwei"}]
    for location in store(rows):
        assert parse(CorpusSpec(**location)) == [SentencePair("one", ""), PAIRS[1]]
    pa.parquet.write_table(pa.table({"source": [1], "target": [2]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="must hold sentences, but it has a column of type int64"):
        parse(CorpusSpec(file=str(tmp_path / "a.parquet")))


def test_read_pairs_reads_a_dataset_with_configuration(monkeypatch):
    asked = []

    def load_dataset(*name):
        asked.append(name)
        rows = [{"translation": row} for row in ROWS]
        return {"train": datasets.Dataset.from_list(rows)}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    spec = CorpusSpec(dataset="wmt14:de-en", **LANGUAGES)
    assert parse(spec) == PAIRS
    assert asked == [("wmt14", "de-en")]


def test_read_pairs_is_lazy(write):
    """Numbers of lines that differ are found at the end, so that what comes before has been
    yielded.
    """
    source, target = write("a.en", "one\ntwo\n3\n4"), write("a.de", "eins\nzwei")
    spec = CorpusSpec(source=str(source), target=str(target))
    with open_corpus(spec) as corpus:
        pairs = read_pairs(corpus)
        assert [next(pairs), next(pairs)] == PAIRS
        with pytest.raises(ValueError, match="got 4 in .*a.en and 2 in .*a.de"):
            next(pairs)


UNLISTED = "Line 1 of .*a.jsonl must list a sentence for each language, got"
HUNDRED_SCORES = "one\teins\t1\n" * 100
# By the name of a file: its content → what the refusal says.
MISTAKES = {
    "a.tsv": {
        "one\teins\ntwo zwei\n": "Line 2 of .*a.tsv must have two columns, source TAB target, it has 1",
        "one\teins\tCC-BY\n": "two columns, source TAB target, besides columns of numbers, it has 3. Name",
        "one\t1\t2\n": "besides columns of numbers, it has 3. Name the columns in a first line",
        "one\teins\t1\ntwo\tzwei\n": "Line 2 of .*a.tsv must have 3 columns, as the first, it has 2",
        HUNDRED_SCORES + "two\tzwei\t-\n": "Line 101 of .* a number as its score, got '-'",
        "": "a.tsv is empty",
    },
    "a.jsonl": {
        '{"source": "a", "target": "b", "score": "high"}\n': "must have a number as its score, got 'high'",
        '{"source": "a", "target": "b"}\n{\n': "Line 2 of .*a.jsonl must be JSON",
        "[1]\n": "Line 1 of .*a.jsonl must be a JSON object, got list",
        '{"source": "a", "target": 3}\n': "must hold sentences, got 3",
        '{"a": "b"}\n': "must have a column 'translation', it has 'a'",
        '{"translation": {"language": ["en", "de"], "translation": ["a"]}}\n': UNLISTED,
        '{"translation": {"language": ["en", "de"], "translation": "ab"}}\n': UNLISTED,
        '{"translation": {"en": "a", "de": "b"}}\n': "needs `source_language` and `target_language`",
    },
    "a.parquet": {"text": "a.parquet: it must be a Parquet file"},
    "a.tsv.gz": {
        "text": "a.tsv.gz: the .gz file is truncated or corrupt",
        gzip.compress(b"one\teins\n" * 99, mtime=0)[
            :-12
        ]: "a.tsv.gz: the .gz file is truncated or corrupt",
    },
    "a.tsv.xz": {"text": "a.tsv.xz: the .xz file is truncated or corrupt"},
}
WRONG_FILES = [(name, content) for name in MISTAKES for content in MISTAKES[name]]


@pytest.mark.parametrize(("name", "content"), WRONG_FILES)
def test_read_pairs_names_the_line_of_an_error(write, name, content):
    path = write(name, content)
    message = MISTAKES[name][content]
    with pytest.raises(ValueError, match=message):
        parse(CorpusSpec(file=str(path)))


MEBIBYTE = 2**20


def zipped(line):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("a.en", "a.de"):
            archive.writestr(name, line)
    return content.getvalue()


LONG_LINES = {
    "a.tsv": bytes,
    "a.tsv.gz": lambda line: gzip.compress(line, 1),
    "a.tsv.xz": lambda line: lzma.compress(line, preset=0),
    "a.tsv.zst": lambda line: pa.Codec("zstd").compress(line, asbytes=True),
    "a.zip": zipped,
}


LIMITS = {b"a": "must have at most 16,777,216 bytes", b"\n": "are blank"}


@pytest.mark.parametrize("line, said", LIMITS.items())
@pytest.mark.parametrize("name", sample(LONG_LINES, "a.tsv", "a.tsv.zst", "a.zip"))
def test_read_pairs_limits_lines_while_they_are_unpacked(name, line, said, write):
    path = write(name, LONG_LINES[name](line * 60 * MEBIBYTE))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"a\.(tsv|en|zip).* {said}"):
            parse(CorpusSpec(file=str(path), **(LANGUAGES if name == "a.zip" else {})))
        assert tracemalloc.get_traced_memory()[1] < 50 * MEBIBYTE
    finally:
        tracemalloc.stop()


def test_read_lines_takes_a_line_of_the_limit(write):
    path = write("a.txt.gz", gzip.compress(b"a" * (LONGEST_LINE - 1) + b"\nb\n", 1))
    assert [len(line) for line in read_lines(path)] == [LONGEST_LINE - 1, 1]


def test_parquet_is_read_in_tables_of_bounded_size(tmp_path, monkeypatch):
    """A few bytes of a file may be a dictionary whose longest text is in each of its rows."""
    monkeypatch.setattr(line_formats, "_BATCH_BYTES", 10_000)
    rows = [{"en": "a", "de": "b"}, {"en": "a" * 1000, "de": "b"}] * 50
    schema = pa.schema({"en": pa.dictionary(pa.int32(), pa.string()), "de": pa.string()})
    table = pa.Table.from_pylist(rows, schema)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    spec = CorpusSpec(file=str(tmp_path / "a.parquet"), **LANGUAGES)
    assert parse(spec) == [SentencePair(row["en"], row["de"]) for row in rows]
    with open_corpus(spec) as corpus:
        tables = line_formats._read_tables(corpus.files[0], spec)
        assert max(map(len, tables)) == 10
    pyarrow.parquet.write_table(table[:3], tmp_path / "a.parquet", compression="brotli")
    monkeypatch.setattr(line_formats, "_LARGEST_EXPANSION", 1)
    monkeypatch.setattr(line_formats, "_BATCH_BYTES", 100)
    message = "a.parquet must not expand more than 1-fold, but its column en does"
    with pytest.raises(ValueError, match=message):
        parse(spec)


TMX = "".join(
    f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>'
    for code, text in (("en", "one"), ("de", "eins"))
)
TMX = f'<tmx version="1.4"><header srclang="en"/><body><tu>{TMX}</tu></body></tmx>'


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.tmx", "a.parquet"])
def test_readers_refuse_a_file_that_changes_while_it_is_read(name, tmp_path):
    path, spec = tmp_path / name, CorpusSpec(file=str(tmp_path / name), **LANGUAGES)
    line = b"one\teins\n"
    texts = {".tsv": line, ".gz": gzip.compress(line), ".tmx": TMX.encode()}
    if path.suffix in texts:
        path.write_bytes(texts[path.suffix])
    else:
        pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), path)
    refusal = pytest.raises(ValueError, match=f"{name} must not change while it is read")
    with open_corpus(spec) as corpus, refusal:
        for _ in read_pairs(corpus):
            os.utime(path, ns=(1, 1))


def test_stream_lines_refuses_a_file_that_changes_while_it_is_read(write):
    path = write("a.txt", "old\n" * 100_000)
    message = "a.txt must not change while it is read, but it did"
    with pytest.raises(ValueError, match=message):
        for number, _ in enumerate(stream_lines(path)):
            if number == 0:
                path.write_text("new\n" * 100_001)
    assert len([*stream_lines(path)]) == 100_001


def test_jsonl_may_have_blank_lines_and_missing_sides(write):
    rows = [{"translation": ROWS[0]}, {"translation": {"en": "two"}}, {"de": "drei"}]
    file = write("a.jsonl", "\n\n".join(map(json.dumps, rows)) + "\n \n")
    with open_corpus(CorpusSpec(file=str(file), **LANGUAGES)) as corpus:
        read = [(row.number, *row.pair) for row in read_rows(corpus)]
    assert read == [(1, "one", "eins"), (3, "two", ""), (5, "", "drei")]


LISTS = [
    {"language": ["de", "en"], "translation": ["eins", "one"]},
    {"language": ["en"], "translation": ["two"]},
    None,
]


def test_parse_jsonl_reads_rows_that_list_their_languages(write):
    rows = [{"translation": row} for row in LISTS[:2]]
    file = write("a.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    assert parse(CorpusSpec(file=str(file), **LANGUAGES)) == [("one", "eins"), ("two", "")]


MAP = pa.map_(pa.string(), pa.string())
MAPS = pa.array([[("en", "one"), ("de", "eins")], [("en", "two")], None], MAP)
LISTED = {"TranslationVariableLanguages": pa.array(LISTS), "maps": MAPS}


@pytest.mark.parametrize("kind", LISTED)
def test_parse_reads_rows_of_parquet_that_list_their_languages(kind, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"translation": LISTED[kind], "score": [1.0, 2.0, 3.0]})
    pyarrow.parquet.write_table(table, path)
    with open_corpus(CorpusSpec(file=str(path), **LANGUAGES)) as corpus:
        read = [(*row.pair, row.score) for row in read_rows(corpus)]
    assert read == [("one", "eins", 1.0), ("two", "", 2.0), ("", "", 3.0)]
    with pytest.raises(ValueError, match="`source_language` must be given"):
        parse(CorpusSpec(file=str(path)))


def test_a_csv_file_is_refused_with_its_remedy():
    message = r"got a.csv. Convert CSV: python -c \"from pyarrow import csv"
    with pytest.raises(ValueError, match=message):
        CorpusSpec(file="a.csv")


# The beginning of a file that is called a text → what the refusal names.
OTHER_FORMATS = {
    "gzip": (gzip.compress(b"one"), "it is gzip. Rename it, so that its name ends with .gz"),
    "xz": (lzma.compress(b"one"), "it is xz. .*ends with .xz"),
    "zstd": (b"\x28\xb5\x2f\xfd$", "it is zstd. .*ends with .zst"),
    "a zip": (b"PK\3\4", "it is a zip, such as DOCX"),
    "Parquet": (b"PAR1", "it is Parquet. .*ends with .parquet"),
    "PDF": (b"%PDF-1.7\n", "it is PDF. Convert it to text"),
    "PNG": (b"\x89PNG\r\n", "it is PNG. Convert it to text"),
    "old Office": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is a document of Office"),
    "XLIFF": (b"<?xml version='1.0'?>\n<xliff>\n", "it is XLIFF. .*[*].xlf"),
    "TMX": (b"\xef\xbb\xbf<tmx version='1.4'>\n", "it is TMX. .*[*].tmx"),
    "HTML": (b"\n<!DOCTYPE html><p>one\n", "it is HTML. .*[*].html"),
    "XML": (b"<?xml version='1.0'?>\n<doc>\n", "it is XML. .*[*].xml"),
    "PO": (b'# one\nmsgid ""\nmsgstr ""\n', "it is PO. .*[*].po"),
    "JSONL": (b'{"en": "one"}\n', "it is JSONL. .*[*].jsonl"),
    "WebVTT": (b"WEBVTT\n\n", "it is VTT. .*[*].vtt"),
    "SubRip with points": (b"1\n00:00:01.000 --> 00:00:02.000\none\n", "it is SRT. .*[*].srt"),
    "SubRip": (b"1\r\n00:00:01,000 --> 00:00:02,000\r\none\r\n", "it is SRT. .*[*].srt"),
}


@pytest.mark.parametrize("kind", OTHER_FORMATS)
def test_a_text_that_is_of_another_format_is_refused_by_its_content(kind, write):
    content, said = OTHER_FORMATS[kind]
    path = write("a.txt", content)
    with pytest.raises(ValueError, match=f"a.txt must .*{said}"):
        read_lines(path)
    with pytest.raises(ValueError, match=f"a.txt must .*{said}"):
        parse(CorpusSpec(source=str(path), target=str(path)))


def test_lines_that_begin_as_other_formats_only_in_part_are_read(write):
    lines = ["<b>one</b>", "msgid of", "WEBVTTs", "{one}", "1", "<?php"]
    lines += ['{"a": 1}\tb', "BZ", "PK"]
    for line in lines:
        assert read_lines(write("a.txt", f"{line}\ntwo\n")) == [line, "two"]


def key_of(location, **changes):
    with open_corpus(CorpusSpec(**location, **LANGUAGES | changes)) as corpus:
        return content_key(corpus)


OTHER_LANGUAGES = [{"reverse": True}, {"source_language": "fr"}, {"target_language": "fr"}]


def test_content_key_differs_with_the_text_of_each_side(write):
    one, two = str(write("one", "one\n")), str(write("two", "two\n"))
    sides = [(one, two), (two, one), (one, one), (two, two)]
    keys = [key_of({"source": source, "target": target}) for source, target in sides]
    assert all(key not in keys[:number] for number, key in enumerate(keys))
    moved = {
        "source": str(write("three", "one\n")),
        "target": two,
        "name": "another",
        "weight": 2.0,
    }
    assert key_of(moved) == keys[0]


@pytest.mark.parametrize("changes", OTHER_LANGUAGES, ids=str)
def test_content_key_differs_with_the_direction(changes, store, write):
    files = {"source": str(write("one", "one\n")), "target": str(write("two", "two\n"))}
    for location in (files, *store([{"translation": row | {"fr": "un"}} for row in ROWS])):
        assert key_of(location) == key_of(location) != key_of(location, **changes)
