"""Candidates: the ones of a file, which are chosen, their warnings and scores, and the corpora of a
student.
"""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from vanilla_transformer.decoding.corpus_shards import Shard
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.distillation import teacher
from vanilla_transformer.extensions.distillation.candidates import (
    DistillationText,
    Entry,
    read_candidates,
    text_of_file,
)
from vanilla_transformer.extensions.distillation.distillation_arguments import DistillationArguments
from vanilla_transformer.extensions.distillation.student import Row, write_student_corpora
from vanilla_transformer.extensions.distillation.teacher import (
    Candidate,
    choose_targets,
    measure_candidates,
)
from vanilla_transformer.files import text_files
from vanilla_transformer.text.translation_warnings import WarningLimits

DOG, MAN = "Ein Hund läuft schnell.", "Ein Mann schläft dort."
SHORT = "Ein Mann schläft."


@pytest.mark.parametrize(
    ("kind", "texts", "chosen"),
    [
        ("beam", [DOG, MAN, " ", SHORT], [DOG]),
        ("n_best", [DOG, MAN, " ", SHORT, DOG], [DOG, MAN, SHORT]),
        ("interpolated", [DOG, MAN, " ", SHORT], [SHORT]),
        ("interpolated", ["abc", "xyz"], ["abc"]),  # the likelier one of equals
        *((kind, ["", " "], []) for kind in ("beam", "n_best", "interpolated")),
    ],
)
def test_choose_targets(kind, texts, chosen):
    answers = [{"translation_text": text} for text in texts]
    assert choose_targets(answers, SHORT, kind) == chosen
    if kind == "beam":  # the pipeline returns one answer alone
        assert choose_targets(answers[0], SHORT, kind) == chosen


LINES = [
    '{"source": " A dog. ", "candidates": ["Ein Hund.", "Hund.\\tDort."]}',
    '{"source": "No.", "id": 7, "candidates": [{"text": "Nein.", "logprobs": []}]}',
    '{"source": "None", "candidates": []}',
]
ENTRIES = [
    Entry(0, "A dog.", None, ["Ein Hund.", "Hund.\tDort."]),
    Entry(0, "No.", None, ["Nein."]),
    Entry(0, "None", None, []),
]
SCORED = '{"source": "A", "candidates": [{"text": "B", "score": -1}, {"score": 0.5, "text": ""}]}'
TEXT = "\ufeff" + "\r\n".join(LINES)
COMPRESSED = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".zst": lambda content: pa.Codec("zstd").compress(content, asbytes=True),
}


@pytest.mark.parametrize("ending", COMPRESSED)
def test_read_candidates(tmp_path, ending):
    path = tmp_path / f"file.jsonl{ending}"
    path.write_bytes(COMPRESSED[ending](TEXT.encode()))
    assert [*read_candidates(str(path))] == ENTRIES
    text = text_of_file(str(path), has_candidates=True)
    assert text.total == 3
    for _ in range(2):
        assert [*text.entries()] == ENTRIES


def test_read_candidates_with_scores(tmp_path):
    (tmp_path / "file").write_text(f"{LINES[2]}\n{SCORED}\n")
    _, entry = read_candidates(str(tmp_path / "file"))
    assert entry == Entry(0, "A", None, ["B", ""], [-1.0, 0.5])


BAD_LINES = [
    (LINES[0][:-1], "Invalid JSON: EOF while parsing an object at column"),
    ("[" * 10_000, "Invalid JSON: recursion limit exceeded"),
    ('{"source": "\\ud800", "candidates": []}', "Invalid JSON: "),
    ("[]", "but: Input should be an object"),
    ("null", "but: Input should be an object"),
    ('{"candidates": ["B"]}', "but: source: Field required"),
    ('{"source": "A"}', "but: candidates: Field required"),
    (
        '{"source": " ", "candidates": ["B"]}',
        "but: source: String should have at least 1 character",
    ),
    ('{"source": 5, "candidates": ["B"]}', "but: source: Input should be a valid string"),
    ('{"source": "A", "candidates": "B"}', "but: candidates: Input should be a valid "),
    ('{"source": "A", "candidates": ["B", null]}', "but: candidates.1: Input should be "),
    ('{"source": "A", "candidates": [{"content": "B"}]}', "but: candidates.0.text: Field required"),
    (
        '{"source": "A", "candidates": [{"text": ["B"]}]}',
        "but: candidates.0.text: Input should be a valid string",
    ),
    *(
        (
            f'{{"source": "A", "candidates": [{{"text": "B", "score": {score}}}]}}',
            f"candidates.0.score: {words}",
        )
        for words, scores in (
            ("Input should be a valid number", ['"1"', "true", "[]"]),
            ("Inp", ["NaN", "1e999"]),
        )
        for score in scores
    ),
    ('{"source": "A", "candidates": ["B"], "scores": [1]}', "but: scores: Input should be "),
    (
        SCORED.replace('"score": -1', '"score": null'),
        "must have a `score`, or none, but line 2 of .* has 1 of 2",
    ),
    (SCORED, "All candidates of a file must have a `score`, or none, but line 2 of .* has 2 of 2"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_read_candidates_refuses_a_line_by_its_number(tmp_path, line, message):
    path = tmp_path / "file.jsonl"
    path.write_text(f"{LINES[0]}\n{line}\n{LINES[1]}\n")
    with pytest.raises(ValueError, match=message) as caught:
        text_of_file(str(path), has_candidates=True)
    assert type(caught.value) is UserError and "\n" not in str(caught.value)
    assert f"ine 2 of {path}" in str(caught.value)


BAD_FILES = [
    (b"", "file.jsonl is empty"),
    (TEXT.encode("utf-16"), "must be UTF-8, but it is UTF-16"),
    (LINES[0].encode() + b"\n\xff", "line 2 has the byte 0xff"),
    (b"\n" * 20_000, "must begin with text"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_read_candidates_refuses_a_file(tmp_path, content, message):
    (tmp_path / "file.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=message):
        text_of_file(str(tmp_path / "file.jsonl"), has_candidates=True)
    content = gzip.compress(content + b"x" * 999)[:-9]
    (tmp_path / "file.jsonl.gz").write_bytes(content)
    with pytest.raises(UserError):
        text_of_file(str(tmp_path / "file.jsonl.gz"), has_candidates=True)


def test_read_candidates_bounds_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "LONGEST_LINE", 100)
    (tmp_path / "file").write_text(f"{LINES[0]}\n{{{' ' * 200}")
    with pytest.raises(UserError, match="Line 2 of .* must have at most 100 bytes"):
        text_of_file(str(tmp_path / "file"), has_candidates=True)


def test_measure_candidates_scores_the_usable_ones():
    scored = []

    def score(pairs):
        scored.extend(pairs)
        return [-float(len(pair.target)) for pair in pairs]

    limits = WarningLimits()
    chosen = {"A man.": ["Ein Mann.", "Mann."], "Is 25?": ["Ist 26?"], "x": []}
    entries = [Entry(0, source, "", texts) for source, texts in chosen.items()]
    first, second, third = measure_candidates(entries, limits, [score])
    good = [Candidate("Ein Mann.", [], [-9.0]), Candidate("Mann.", [], [-5.0])]
    assert first == good
    assert second == [Candidate("Ist 26?", ["numbers"], [-7.0])]
    assert third == []
    good = [("A man.", "Ein Mann."), ("A man.", "Mann.")]
    assert scored == [*good, ("Is 25?", "Ist 26?")]
    del scored[:]
    measure_candidates(entries, limits, [score], drop_warnings=True)
    assert scored == good
    plain = Entry(0, "A", None, ["C"])
    assert measure_candidates([plain], limits, []) == [[Candidate("C", [], [])]]
    entry = Entry(0, "A", None, ["", "C", "C", "D"], [4.0, 3.0, 2.0, 1.0])
    (candidates,) = measure_candidates([entry], limits, [score])
    empty, best, again, last = candidates
    assert empty == Candidate("", ["empty"], [])
    assert best == Candidate("C", [], [-1.0, 3.0])
    assert again == Candidate("C", ["repeated"], [])
    assert last == Candidate("D", [], [-1.0, 1.0])


@pytest.mark.parametrize(
    ("source", "text", "reasons"),
    [
        ("Delete {name} now?", "{name} jetzt löschen?", []),
        ("Delete {name} now?", "Den Namen jetzt löschen?", ["placeholder"]),
        ("See https://a.example/x now.", "Siehe https://a.example/y jetzt.", ["placeholder"]),
        ("It costs 12,345.60 euros.", "Es kostet 12.345,60 Euro.", []),
        ("It costs US$30 now.", "Es kostet jetzt 30 US-Dollar.", []),
        ("A man is sleeping there.", "A man is sleeping there.", ["copy"]),
        ("A man.", "Ein Mann Mann Mann Mann.", ["repetition"]),
        ("A man.", "Мужчина спит.", ["script"]),
    ],
)
def test_reasons_to_drop_a_translation(source, text, reasons):
    limits = WarningLimits(scripts=("LATIN",))
    entry = Entry(0, source, None, [text])
    ((candidate,),) = measure_candidates([entry], limits, [])
    assert candidate.warnings == reasons


ROWS = [
    Row(0, "one", [Candidate("eins", [], [-1.0]), Candidate("ein", [], [-4.0])]),
    Row(0, "two\tof\nthem", [Candidate("zwei", ["length", "copy"], [-9.0])]),
    Row(1, "three", []),
    Row(1, "four", [Candidate("vier", [], [-2.0])]),
    Row(1, "five", [Candidate("fünf", [], [-3.0])]),
]


def written(folder, rows=ROWS, corpora=2, **changes):
    values = {"teacher": ["big"], "teacher_targets": "n_best"}
    values |= {"drop_lowest_scores": 0.0} | changes
    arguments = DistillationArguments(**values)
    report = write_student_corpora(folder, lambda: iter(rows), corpora, arguments)
    paths = [folder / f"corpus-{number}.tsv" for number in range(corpora)]
    return report, [path.read_text() for path in paths]


SHARES = [(0.0, None), (0.2, None), (0.25, -3.0), (0.5, -2.0), (0.74, -2.0)]


@pytest.mark.parametrize(("share", "lowest"), SHARES)
def test_write_student_corpora_drops_the_lowest_scores(tmp_path, share, lowest):
    report, _ = written(tmp_path / "corpora", drop_lowest_scores=share)
    assert report.least_score == lowest


def test_write_student_corpora_drops_warnings_first(tmp_path):
    report, texts = written(tmp_path / "corpora", drop_lowest_scores=0.25)
    assert texts == ["one\teins\n", "four\tvier\nfive\tfünf\n"]
    assert (report.sentences, report.untranslated) == (5, 1)
    assert (report.translations, report.kept) == (5, 3)
    assert report.dropped == {"score": 1, "length": 1}
    assert report.least_score == -3.0
    assert report.examples["score"] == [["one", "ein"]]
    stored = json.loads((tmp_path / "corpora" / "report.json").read_text())
    assert stored["dropped"] == report.dropped
    lines = str(report).splitlines()
    assert lines[0] == "3 of 5 translations of 5 sentences are kept."
    assert "- one | ein" in lines


def test_write_student_corpora_keeps_warnings(tmp_path):
    candidates = [Candidate("", ["empty"], []), Candidate("a", ["repeated"], [])]
    rows = [*ROWS, Row(0, "six", candidates)]
    report, texts = written(tmp_path / "corpora", rows, drop_warnings=False)
    assert texts[0] == "one\teins\none\tein\ntwo of them\tzwei\n"
    assert report.kept == 5
    assert report.reasons() == "1 by empty, 1 by repeated"


def test_write_student_corpora_needs_pairs_of_each_corpus(tmp_path):
    message = "must leave translations of each corpus .* none of corpus 1: 1 by length."
    with pytest.raises(ValueError, match=message):
        written(tmp_path / "corpora", rows=ROWS[1:])
    assert not (tmp_path / "corpora").exists()


CHOICES = [
    Candidate("a", ["copy"], [9.0]),
    Candidate("b", [], [1.0]),
    Candidate("c", [], [3.0]),
    Candidate("d", [], [3.0]),
]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"teacher_targets": "best"}, "c"),
        ({"teacher": [], "candidates": "file"}, "c"),
        ({"drop_warnings": False, "teacher_targets": "best"}, "a"),
        ({"teacher_n_best": 2}, "cd"),
        ({}, "bcd"),
    ],
)
def test_write_student_corpora_chooses_by_score(tmp_path, changes, kept):
    if "candidates" in changes:
        changes = {"teacher_targets": "beam"} | changes
    rows = [Row(0, "x", CHOICES)]
    report, (text,) = written(tmp_path / "corpora", rows, 1, **changes)
    assert text == "".join(f"x\t{letter}\n" for letter in kept)
    copied = report.dropped.get("copy", 0)
    assert report.dropped.get("choice", 0) == 4 - len(kept) - copied
    assert report.kept + sum(report.dropped.values()) == report.translations == 4


def test_write_student_corpora_chooses_the_first_without_scores(tmp_path):
    rows = [Row(0, "x", [Candidate(letter, [], []) for letter in "bac"])]
    options = {"teacher_targets": "best", "drop_lowest_scores": 0.9}
    _, texts = written(tmp_path / "corpora", rows, 1, **options)
    assert texts == ["x\tb\n"]


def test_write_student_corpora_weighs_several_scores_alike(tmp_path):
    """The second score has 500 times the range of the first, which standardization takes away."""
    pairs = {"a": [0.0, 1000.0], "b": [2.0, 0.0], "c": [1.9, 900.0]}
    candidates = [Candidate(letter, [], scores) for letter, scores in pairs.items()]
    rows = [Row(0, "x", candidates)]
    table = np.array([*pairs.values()])
    means = ((table - table.mean(0)) / table.std(0)).mean(1)
    report, texts = written(tmp_path / "corpora", rows, 1, drop_lowest_scores=0.7)
    assert texts == ["x\tc\n"]
    assert report.least_score == pytest.approx(max(means))
    # The first score is of no use.
    same = [Candidate("a", [], [1.0, 2.0]), Candidate("b", [], [1.0, 3.0])]
    rows = [Row(0, "x", same)]
    _, texts = written(tmp_path / "same", rows, 1, teacher_targets="best")
    assert texts == ["x\tb\n"]


OTHERS = [
    {"drop_warnings": False},
    {"reverse_model": "b"},
    {"quality_model": "b"},
    {"text": "b"},
    {"direction": "b"},
]


@pytest.mark.parametrize("changes", OTHERS, ids=[*map(str, OTHERS)])
def test_open_shards_continues_the_same_scoring_only(changes, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "hash_model", str)

    def reopened(overwrite=False, text="a", direction="a", **options):
        names = {"candidates": "c", "reverse_model": "a", "quality_model": "a"}
        arguments = DistillationArguments(**names | options)
        languages = {"direction": direction}
        entries = DistillationText(text, 1, lambda: iter(()))
        return teacher.open_shards(tmp_path, arguments, entries, languages, overwrite)

    reopened().write(Shard(0, 0, ["line"]), ["result"])
    shards = reopened(teacher_targets="n_best", drop_lowest_scores=0.5)
    assert shards.finished_lines == 1
    with pytest.raises(UserError, match=f"continue with the same .*{[*changes][0]}"):
        reopened(**changes)
    assert reopened(overwrite=True, **changes).finished_lines == 0


OTHER_SEARCHES = [
    ({"teacher": ["a", "b"]}, "the teacher is another one"),
    ({"teacher_weights": [1.0, 2.0]}, "`teacher_weights` was None"),
    ({"teacher_num_beams": 5}, "`teacher_num_beams` was None"),
    ({"teacher_precision": "int8"}, "`teacher_precision` was None"),
    ({"teacher_n_best": 3}, "`hypotheses` was 4"),
    ({"teacher_targets": "interpolated"}, "`teacher_targets` was 'n_best'"),
]


@pytest.mark.parametrize(("changes", "difference"), OTHER_SEARCHES)
def test_open_shards_continues_the_same_search_only(changes, difference, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "hash_model", str)
    text = DistillationText("a", 1, lambda: iter(()))

    def reopened(**options):
        values = {"teacher": ["a", "c"], "teacher_targets": "n_best"} | options
        return teacher.open_shards(tmp_path, DistillationArguments(**values), text, {}, False)

    reopened().write(Shard(0, 0, ["line"]), ["result"])
    shards = reopened(teacher_batch_size=8, drop_warnings=False)
    assert shards.finished_lines == 1
    with pytest.raises(UserError, match=difference):
        reopened(**changes)


def test_write_student_corpora_shows_ten_examples(tmp_path):
    empty = [Candidate("", ["empty"], [])] * 99
    row = Row(0, "x", [Candidate("b" * 1000, [], []), *empty])
    report, _ = written(tmp_path / "corpora", [row], 1)
    assert len(report.examples["empty"]) == 10
    assert report.dropped == {"empty": 99}
