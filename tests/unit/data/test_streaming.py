"""Streams: window n is the same pairs whether one walks there or goes there directly, and nothing is written."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.cleaning_rules import CleaningRules
from vanilla_transformer.data.readers import CorpusRow, CorpusSpec, SentencePair
from vanilla_transformer.data.streaming import EndlessPairs, StreamedCorpus, StreamedTexts, split_window
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences


class Numbers(EndlessPairs):
    """Five pairs without a file."""

    def _open(self):
        return iter([CorpusRow(number + 1, SentencePair(f"s{number}", f"t{number}")) for number in range(5)])


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=6))
def test_endless_pairs_are_independent_of_the_way_there(places):
    stream = Numbers(CorpusSpec(file="a.tsv"))
    for first, count in places:
        read = [row.number for row in stream.read(first, count)]
        assert read == [place % 5 + 1 for place in range(first, first + count)]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=5), st.integers(5, 1000))
def test_split_window_is_proportional_to_the_weights(weights, window):
    shares = split_window(weights, window)
    assert sum(shares) == window and min(shares) >= 1
    exact = [weight / sum(weights) * (window - len(weights)) + 1 for weight in weights]
    assert all(abs(share - part) < 1 + 1e-6 for share, part in zip(shares, exact, strict=True))


def test_split_window_needs_a_pair_of_each_corpus():
    with pytest.raises(ValueError, match="a pair of each of the 2 corpora, got 1"):
        split_window([1, 1, 0], 1)


def test_split_window_leaves_out_corpora_of_weight_zero():
    assert split_window([0, 1, 3, 0], 10) == [0, 3, 7, 0]


@pytest.fixture
def specs(tmp_path):
    """Ten pairs, of which two are identical, and three."""
    lines = [f"a{number}\t{'a' if number in (3, 7) else 'b'}{number}\n" for number in range(10)]
    (tmp_path / "ten.tsv").write_text("".join(lines))
    (tmp_path / "three.tsv").write_text("c0\td0\nc1\td1\nc2\td2\n")
    return [CorpusSpec(file=str(tmp_path / "ten.tsv")), CorpusSpec(file=str(tmp_path / "three.tsv"), weight=0.5)]


@pytest.fixture
def open_corpus(specs, tiny_tokenizer):
    def open_one(weights=None, **rules):
        held_out = {"validation": [SentencePair("a0", "b0"), SentencePair("a9", "x")]}
        stream = StreamedTexts(specs, [CleaningRules(drop_identical=True, **rules)] * len(specs), window=6)
        return StreamedCorpus(stream, partial(encode_sentences, tiny_tokenizer), held_out, weights=weights)

    return open_one


def sources(corpus, number):
    rows = corpus.epoch(number).rows
    return corpus.texts.select(rows)["source"][:]


def test_streamed_corpus_restarts_each_corpus_at_its_end(open_corpus):
    corpus = open_corpus()
    assert sources(corpus, 0) == ["a0", "a1", "a2", "c0", "c1"]
    assert sources(corpus, 1) == ["a4", "a5", "a6", "c2", "c0"]
    assert sources(corpus, 2) == ["a8", "a9", "a0", "a1", "c1", "c2"]


def test_streamed_corpus_window_is_independent_of_the_way_there(open_corpus):
    walking = open_corpus(max_length_ratio=1.5)
    windows = [list(walking.epoch(number)) for number in range(8)]
    for number in (0, 3, 7):
        assert list(open_corpus(max_length_ratio=1.5).epoch(number)) == windows[number]
    assert list(walking.epoch(2)) == windows[2]


def test_streamed_corpus_has_the_mix_of_each_stage(open_corpus):
    weights = [[0, 1], [1, 1]]
    walking = open_corpus(weights)
    windows = [list(walking.epoch(number, stage)) for number, stage in ((0, 0), (1, 0), (2, 1), (3, 1))]
    assert [len(window) for window in windows] == [6, 6, 5, 6]  # one pair of three is identical
    assert windows[0] == windows[1] != windows[2]
    assert list(open_corpus(weights).epoch(2, 1)) == windows[2]
    rows = walking.texts.select(walking.epoch(3, 1).rows)
    assert rows["source"][:] == ["a9", "a0", "a1", "c0", "c1", "c2"]


def test_streamed_corpus_reads_a_repeated_window_once(open_corpus):
    corpus = open_corpus()
    assert corpus.epoch(1) is corpus.epoch(1)
    assert corpus.report.read == 6


def test_streamed_corpus_cleans_and_counts(open_corpus):
    corpus = open_corpus(max_length=2)
    with pytest.raises(ValueError, match="must leave some pairs"):
        corpus.epoch(0)
    corpus = open_corpus(max_length=99)
    for number in range(3):
        corpus.epoch(number)
    assert corpus.report.read == 18 and corpus.report.dropped == {"identical": 2, "max_length": 0}
    overlap = corpus.overlaps["validation"]
    assert (overlap.sources, overlap.targets, overlap.both) == (2, 1, 1)
    assert corpus.max_source_length == 99
    assert open_corpus().max_source_length == max(open_corpus().epoch(0).source_lengths)


def test_streamed_corpus_refuses_an_empty_window(tmp_path):
    (tmp_path / "a.tsv").write_text("a\ta\n")
    stream = StreamedTexts([CorpusSpec(file=str(tmp_path / "a.tsv"))], [CleaningRules(drop_identical=True)], 3)
    with pytest.raises(ValueError, match="got none. 0 of 3 pairs kept"):
        stream.read(0)


def test_streamed_corpus_names_the_line_in_every_pass(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n\tb\n")
    spec = CorpusSpec(file=str(tmp_path / "a.tsv"))
    for number in (0, 3):
        with pytest.raises(ValueError, match="Line 2 of .*a.tsv is blank"):
            StreamedTexts([spec], [CleaningRules()], 2).read(number)
