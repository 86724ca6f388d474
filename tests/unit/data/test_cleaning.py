"""Cleaning: what each rule drops and keeps, in which order, and what the report says; overlap with
held-out text.
"""

import tracemalloc
from itertools import count, repeat

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.cleaning import CleaningReport, clean_text, find_duplicates
from vanilla_transformer.data.cleaning_rules import (
    DROPPED,
    RULES,
    CleaningRules,
    has_unequal_numbers,
    hash_pair,
)
from vanilla_transformer.data.readers import CorpusRow, CorpusSpec, SentencePair

FILES = CorpusSpec(source="a.en", target="a.de")
ALL_OF_TEXT = CleaningRules(drop=["empty", "invalid_unicode", "identical"])


def clean(pairs, rules, spec=FILES, scores=None):
    report, scores = CleaningReport(), scores or repeat(None)
    rows = map(CorpusRow, count(1), [SentencePair(*pair) for pair in pairs], scores)
    kept = clean_text(spec, rows, rules, report)
    return list(kept), report


def test_clean_text_counts_a_pair_for_the_first_rule():
    pairs = [("\udce4", ""), ("", "b\ud83d"), ("", "b"), ("same", "same")]
    pairs += [("Same", "same"), ("ä€😀", "b\ufffd")]
    kept, report = clean(pairs, ALL_OF_TEXT)
    assert kept == [("Same", "same"), ("ä€😀", "b\ufffd")]
    assert report.dropped == {"invalid_unicode": 2, "empty": 1, "identical": 1}
    assert (report.read, report.kept) == (6, 2)


def test_clean_text_drops_low_scores():
    rules = CleaningRules(min_score=1.05)
    pairs = [("a", "b"), ("c", "d"), ("", ""), ("e", "f")]
    kept, report = clean(pairs, rules, scores=[1.05, 1.04, None, -3.0])
    assert kept == [("a", "b")] and report.dropped == {"min_score": 2, "empty": 1}
    assert "2 dropped (50 %): with a lower score in the corpus than min_score" in str(report)
    message = "`min_score` needs scores, but line 1 of a.en | a.de has none. Leave it out, or"
    with pytest.raises(ValueError, match=message):
        clean(pairs, rules)
    _, report = clean(pairs, CleaningRules(), scores=[None, 0.1, None, 0.2])
    assert report.dropped == {"empty": 1}


OF_JSON = CorpusSpec(source="a.json", target="b.json")


@pytest.mark.parametrize(
    ("pairs", "spec", "dropped"),
    [
        ([("", ""), ("same", "same")], FILES, {"empty": 1}),
        ([("a", ""), ("a", "b")], CorpusSpec(dataset="x"), {"empty": 1}),
        ([("a", ""), ("a", "b")], OF_JSON, {"empty": 1}),
    ],
)
def test_clean_text_drops_blank_lines_and_rows(pairs, spec, dropped):
    kept, report = clean(pairs, CleaningRules(), spec)
    assert kept == pairs[1:] and report.dropped == dropped


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("", "b"), "Line 2 of a.en is blank, .* by `drop: \\[empty\\]`"),
        (("a", ""), "Line 2 of a.de is blank"),
        (
            ("a", "\udce4"),
            "a.de must be UTF-8, but line 2 has the byte 0xe4 .* by `drop: \\[invalid_unicode\\]`",
        ),
        (
            ("\ud83d", "b"),
            "Line 2 of a.en must be valid Unicode, .* U\\+D83D. Mend or delete it, or leave such "
            "pairs",
        ),
    ],
)
def test_clean_text_names_the_line_of_an_invalid_pair(pair, message):
    with pytest.raises(ValueError, match=message):
        clean([("a", "b"), pair], CleaningRules())


def mask_of_duplicates(hashes, ranks=None, kept=None):
    """Find the duplicates of 16-byte hashes, in chunks of three pairs."""
    numbers = np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, 2)
    halves = []
    for column in numbers.T.copy():
        chunks = [column[row : row + 3] for row in range(0, len(column), 3)]
        halves.append(pa.chunked_array(chunks, pa.uint64()))
    ranks = np.zeros(len(numbers), np.int8) if ranks is None else np.array(ranks, np.int8)
    kept = np.ones(len(numbers), bool) if kept is None else np.array(kept, bool)
    return find_duplicates(*halves, ranks, kept).tolist()


def test_find_duplicates_keeps_the_first_copy():
    pairs = [("a", "b"), ("c", "d"), ("a", "b"), ("a", "d"), ("a", "b")]
    digests = [hash_pair(SentencePair(*pair)) for pair in pairs]
    assert mask_of_duplicates(digests) == [False, False, True, False, True]


def test_find_duplicates_keeps_the_copy_of_the_lowest_rank():
    digests = [hash_pair(SentencePair(text, text)) for text in "abaaab"]
    duplicates = mask_of_duplicates(digests, [2, 1, 1, 0, 0, 3])
    assert duplicates == [True, False, True, False, True, True]


_HASHES = st.builds("{:x}{:015}".format, st.integers(0, 15), st.integers(0, 2)).map(str.encode)


@given(st.lists(st.tuples(_HASHES, st.integers(0, 2), st.booleans()), min_size=1))
def test_find_duplicates_matches_a_dictionary(pairs):
    places = {}
    for number, (key, rank, is_kept) in enumerate(pairs):
        if is_kept:
            places.setdefault(key, []).append((rank, number))
    firsts = {min(copies)[1] for copies in places.values()}
    hashes, ranks, kept = zip(*pairs, strict=True)
    expected = [is_kept and number not in firsts for number, is_kept in enumerate(kept)]
    assert mask_of_duplicates(hashes, ranks, kept) == expected


def test_find_duplicates_takes_at_most_40_bytes_a_pair():
    pairs = 100_000
    numbers = np.random.default_rng(0).integers(0, 1 << 64, (2, pairs), dtype=np.uint64)
    halves = [pa.chunked_array([*np.split(half, 10)]) for half in numbers]
    ranks, kept = np.zeros(pairs, np.int8), np.ones(pairs, bool)
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        find_duplicates(*halves, ranks, kept)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    assert peak + pool.max_memory() <= 40 * pairs


def test_numbers_up_to_100_may_be_words_of_one_side():
    assert not has_unequal_numbers(SentencePair("For 30 years.", "Kolmekymmentä vuotta."))
    assert has_unequal_numbers(SentencePair("For 30 years.", "40 vuotta."))
    assert has_unequal_numbers(SentencePair("In 2010.", "Silloin."))


def test_hash_pair_separates_the_sides():
    assert hash_pair(SentencePair("ab", "c")) != hash_pair(SentencePair("a", "bc"))
    assert len(hash_pair(SentencePair("a", "b"))) == 16


def test_cleaning_report_counts_each_rule():
    report = CleaningReport(read=1000)
    report.add("identical", [SentencePair("same", "same")])
    report.add("max_length_ratio", [SentencePair("a", "b " * 100)] * 3, count=24)
    report.add("max_length", [], count=0)
    large = CleaningReport(read=3)
    large.add("identical", [SentencePair("same", "same")] * 3)
    assert "3 dropped (100 %)" in str(large)
    assert str(report).splitlines() == [
        "975 of 1,000 pairs kept.",
        "  1 dropped (0.1 %): with a target that is its source, such as",
        "    same | same",
        "  24 dropped (2.4 %): beyond max_length_ratio, such as",
        *["    a | " + "b " * 50 + " …"] * 3,
    ]


def test_cleaning_report_keeps_three_examples():
    pairs = [("", "")] * 5 + [("bad \udce4\ud83d", "b")]
    _, report = clean(pairs, ALL_OF_TEXT)
    assert report.dropped["empty"] == 5 and len(report.examples["empty"]) == 3
    assert report.examples["invalid_unicode"] == [["bad \\xe4\\ud83d", "b"]]
    str(report).encode()
    assert CleaningReport.from_dict(report.to_dict()) == report
    assert report.to_dict()["kept"] == 0


def test_cleaning_reports_of_parts_make_one():
    pairs = [SentencePair(str(number), "a") for number in range(6)]
    whole, sides = CleaningReport(read=9, warnings=["a", "b"]), ("source", "target")
    whole.add("empty", pairs, 7)
    whole.add("identical", pairs[:1])
    whole.histograms = {side: {"kept": [2, 4], "dropped": [1, 3]} for side in sides}
    first, second = CleaningReport(read=4, warnings=["a"]), CleaningReport(read=5, warnings=["b"])
    first.add("empty", pairs[:2], 4)
    second.add("empty", pairs[2:], 3)
    second.add("identical", pairs[:1])
    second.histograms = {side: {"kept": [2, 1], "dropped": [1, 0]} for side in sides}
    third = CleaningReport()
    third.histograms = {side: {"kept": [0, 3], "dropped": [0, 3]} for side in sides}
    total = CleaningReport()
    for part in (first, second, third):
        total.extend(part)
    assert total == whole


def test_cleaning_report_describes_every_rule():
    assert {*vars(CleaningRules())} - {"drop"} | {*DROPPED} == {*RULES}
    assert CleaningRules(drop=[*DROPPED][::-1]).drop == (*DROPPED,)
