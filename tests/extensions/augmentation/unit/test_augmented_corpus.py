"""Augmented and segmented corpora change in each epoch, and are the same in the same epoch."""

import pytest

from tests.tiny_runs import flags
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.data.prepare_data import load_texts, tokenize
from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer
from vanilla_transformer.training.recipe import parse_recipe

BOTH = '{"inline_terms": 0.3, "placeholders": 0.5}'


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    write_demo_corpus(folder, train=200, validation=5, test=5)
    for name in ("train", "validation"):
        (folder / f"{name}.en").rename(folder / f"{name}.a")
        (folder / f"{name}.de").rename(folder / f"{name}.b")
    return folder


def opened(texts, **changes):
    options = {"cache_dir": texts / "cache", "augment": BOTH, "max_tokens": 400} | changes
    loaded = load_texts(parse_recipe(flags(texts, texts / "out", **options)).data)
    tokenizer = load_or_train_tokenizer(loaded)
    return tokenize(loaded, tokenizer, seed=0), tokenizer


def ids(pairs):
    return [tuple(pairs[number]) for number in range(len(pairs))]


def decoded(tokenizer, pairs):
    return [tuple(tokenizer.decode([*side[:-1]]) for side in pair) for pair in pairs]


def with_tokens(corpus, pairs):
    rows = corpus.texts.select(pairs.rows)
    return [
        number for number, text in enumerate(rows["source"]) if "<term>" in text or "<ph" in text
    ]


DROPOUT = {"augment": None, "bpe_dropout": 0.5}


@pytest.mark.parametrize("changes", [{}, DROPOUT])
def test_epochs_depend_on_their_number(texts, changes):
    (one, _), (other, _) = opened(texts, **changes), opened(texts, **changes)
    first, second = ids(one.epoch(0)), ids(one.epoch(1))
    assert first != second and len(first) == len(second) == 200
    assert ids(other.epoch(1)) == second  # without having been at the first
    assert ids(one.epoch(0)) == first


def test_bpe_dropout_corpus_keeps_the_text(texts):
    corpus, tokenizer = opened(texts, **DROPOUT)
    plain, segmented = corpus.plain.epoch(0), corpus.epoch(3)
    assert (
        len(segmented) == len(plain) and segmented.source_lengths.sum() > plain.source_lengths.sum()
    )
    assert decoded(tokenizer, segmented) == decoded(tokenizer, plain)


def test_bpe_dropout_corpus_respects_max_tokens(texts):
    limit = int(opened(texts, augment=None)[0].epoch(0).target_lengths.max())
    corpus, _ = opened(texts, **DROPOUT | {"bpe_dropout": 0.9, "max_tokens": limit})
    assert corpus.epoch(0).target_lengths.max() <= limit


def test_augmented_corpus_changes_its_share_and_keeps_the_rest(texts):
    corpus, _ = opened(texts, augment='{"inline_terms": 0.3}')
    plain = ids(corpus.plain.epoch(0))
    found = corpus.epoch(0)
    changed = with_tokens(corpus, found)
    assert 30 < len(changed) < 80
    for number, pair in enumerate(ids(found)):
        assert (pair != plain[number]) == (number in changed)


def test_augmented_corpus_texts_are_the_text_of_its_pairs(texts):
    corpus, tokenizer = opened(texts)
    pairs = corpus.epoch(2)
    rows = corpus.texts.select(pairs.rows)
    for (source, target), text, expected in zip(
        decoded(tokenizer, pairs), rows["source"], rows["target"], strict=True
    ):
        assert source.replace(" ", "") == text.replace(" ", "") and target == expected
    assert pairs.source_lengths.tolist() == [len(source) for source, _ in ids(pairs)]


def test_augmented_corpus_keeps_pairs_that_would_become_too_long(texts):
    corpus, _ = opened(texts)
    limit = int(
        max(corpus.plain.epoch(0).source_lengths.max(), corpus.plain.epoch(0).target_lengths.max())
    )
    assert corpus.epoch(0).source_lengths.max() > limit
    bounded, _ = opened(texts, max_tokens=limit)
    assert bounded.epoch(0).source_lengths.max() <= limit


def test_augmented_corpus_is_segmented_by_bpe_dropout(texts):
    corpus, tokenizer = opened(texts, bpe_dropout=0.3)
    pairs = corpus.epoch(1)
    changed = with_tokens(corpus, pairs)
    whole = {tokenizer.convert_tokens_to_ids(token) for token in tokenizer.get_added_vocab()}
    assert changed and all(whole & set(pairs[number].source) for number in changed)


def test_augmented_corpus_perturbs_pairs_before_it_inserts_tokens(texts):
    changes = (
        '{"placeholders": 0.5, "inline_terms": 0.3, "upper_case": 0.3, "typos": 0.3, '
        '"noise_pairs": 0.1}'
    )
    corpus, _ = opened(texts, augment=changes)
    pairs, plain = corpus.epoch(0), corpus.plain.epoch(0)
    rows, plain = corpus.texts.select(pairs.rows), corpus.plain.texts.select(plain.rows)
    upper = [
        source
        for source, before in zip(rows["source"], plain["source"], strict=True)
        if source == before.upper()
    ]
    assert 20 < len(upper) < 80
    assert (
        10
        <= sum(
            source == target for source, target in zip(rows["source"], rows["target"], strict=True)
        )
        < 40
    )
    marked = [source for source in rows["source"] if "<" in source]
    assert marked and not any("<PH" in source or "<TERM" in source for source in marked)
    assert ids(corpus.epoch(0)) == ids(opened(texts, augment=changes)[0].epoch(0))


def test_augmented_corpus_needs_terms_to_annotate(corpus):
    with pytest.raises(
        ValueError, match="^`inline_terms` of `augment` must be given for text whose words have"
    ):
        opened(corpus, augment='{"inline_terms": 0.3}')
