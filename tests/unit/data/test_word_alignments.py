"""Alignments in the format of Moses are read, checked and compared."""

import pytest

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import (
    grow_diagonally,
    parse_alignment,
    read_alignments,
    read_gold_alignments,
)

PAIRS = [SentencePair("a b c", "x y"), SentencePair("a", "x")]


def test_read_alignments_returns_the_pairs_of_each_line(tmp_path):
    (tmp_path / "text.align").write_text("0-0 2-1  1-1\n\n")
    assert read_alignments(tmp_path / "text.align", PAIRS) == [{(0, 0), (2, 1), (1, 1)}, set()]


@pytest.mark.parametrize("text", ["0-2", "3-0", "0", "0-", "a-b", "0-0-0", "-1-0", "0-99999999999"])
def test_parse_alignment_names_the_wrong_pair(text):
    rule = "must have pairs such as 0-1 of 3 words of the source and 2 of the target, got"
    with pytest.raises(ValueError, match=f"{rule} '{text}' in line 7 of f"):
        parse_alignment(f"0-0 {text}", PAIRS[0], "line 7 of f")


def test_read_alignments_counts_lines(tmp_path):
    (tmp_path / "text.align").write_text("0-0\n")
    with pytest.raises(ValueError, match="text.align must have a line for each of 2 pairs of sentences, got 1"):
        read_alignments(tmp_path / "text.align", PAIRS)


def test_read_gold_alignments_separates_sure_and_possible_pairs(tmp_path):
    (tmp_path / "text.align").write_text("0-0 2p1 1-1\n0p0\n")
    first, second = read_gold_alignments(tmp_path / "text.align", PAIRS)
    assert first == ({(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)})
    assert second == (set(), {(0, 0)})


@pytest.mark.parametrize("text", ["1p0", "0pp0", "0p", "0?0"])
def test_read_gold_alignments_names_the_wrong_pair(text, tmp_path):
    (tmp_path / "text.align").write_text(f"0-0\n{text}\n")
    with pytest.raises(ValueError, match="must have pairs such as 0-1 of 1 words .* in line 2 of .*text.align"):
        read_gold_alignments(tmp_path / "text.align", PAIRS)


def test_read_alignments_refuses_possible_pairs(tmp_path):
    (tmp_path / "text.align").write_text("0p0\n\n")
    with pytest.raises(ValueError, match="got '0p0' in line 1 of"):
        read_alignments(tmp_path / "text.align", PAIRS)


def test_grow_diagonally_adds_neighbors_of_words_without_links():
    forward, backward = [{(0, 0), (1, 1), (2, 1), (5, 5)}], [{(0, 0), (1, 1), (1, 0)}]
    # (2, 1) links word 2; (1, 0) links no new word, and (5, 5) is no neighbor
    assert grow_diagonally(forward, backward) == [{(0, 0), (1, 1), (2, 1)}]
    assert grow_diagonally([{(0, 0), (1, 0), (2, 0)}], [{(0, 0)}]) == [
        {(0, 0), (1, 0), (2, 0)}
    ]  # a neighbor of a neighbor
    assert grow_diagonally([{(0, 0)}, set()], [{(1, 1)}, set()]) == [set(), set()]
