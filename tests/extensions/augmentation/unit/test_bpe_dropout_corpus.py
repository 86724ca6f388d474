"""BPE-dropout segments the corpus differently in each epoch, and the same way in the same epoch."""

import pytest

from tests.tiny_runs import flags
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.training.recipe import parse_recipe


def opened(corpus, corpus_tokenizer, cache, **changes):
    data = parse_recipe(flags(corpus, corpus / "out", cache_dir=cache, **changes)).data
    return tokenize(load_texts(data), corpus_tokenizer, seed=0)


@pytest.fixture
def corpus_tokenizer(corpus):
    texts = (corpus / "train.a").read_text().split("\n")
    return train_tokenizer(texts, vocab_size=300)


def ids(pairs):
    return [tuple(pairs[number]) for number in range(len(pairs))]


def test_bpe_dropout_corpus_epochs_depend_on_their_number(corpus, tmp_path, corpus_tokenizer):
    one, other = (opened(corpus, corpus_tokenizer, tmp_path / "cache", bpe_dropout=0.5) for _ in range(2))
    first, second = ids(one.epoch(0)), ids(one.epoch(1))
    assert first != second
    assert ids(other.epoch(1)) == second  # without having been at the first
    assert ids(one.epoch(0)) == first


def test_bpe_dropout_corpus_keeps_the_text(corpus, tmp_path, corpus_tokenizer):
    plain = opened(corpus, corpus_tokenizer, tmp_path / "cache").epoch(0)
    cut = opened(corpus, corpus_tokenizer, tmp_path / "cache", bpe_dropout=0.5).epoch(3)
    assert len(cut) == len(plain) and cut.source_lengths.sum() > plain.source_lengths.sum()
    for number in range(len(plain)):
        assert corpus_tokenizer.decode(cut[number].source) == corpus_tokenizer.decode(plain[number].source)


def test_bpe_dropout_corpus_respects_max_tokens(corpus, tmp_path, corpus_tokenizer):
    plain = opened(corpus, corpus_tokenizer, tmp_path / "cache").epoch(0)
    limit = int(plain.target_lengths.max())
    cut = opened(corpus, corpus_tokenizer, tmp_path / "cache", bpe_dropout=0.9, max_tokens=limit).epoch(0)
    assert cut.target_lengths.max() <= limit
