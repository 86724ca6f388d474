"""BPE-dropout has the paper's probabilities, loses no text and draws the same for a text in
whichever process.
"""

import copy
import random
from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unicode_texts import normal_form
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.extensions.augmentation.bpe_dropout import BpeDropout
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

TEXTS = ["A man is sleeping.", "Two dogs run across the grass."]
TEXTS += ["Ein Mann schläft.", "Zwei Hunde laufen."]
TEXTS *= 3
PIECES = [" ", "\n", "</s>", "<2de>", "man", "Mann", "nnnn", "schläft", "日本", "🙂", "."]
any_characters = st.text(st.characters(exclude_categories=["Cs", "Cn"]))
any_text = any_characters | st.lists(st.sampled_from(PIECES)).map("".join)


@pytest.fixture(scope="module")
def tokenizer():
    """With an added token, which no dropout may split."""
    trained = train_tokenizer(TEXTS, vocab_size=320)
    trained.add_tokens(["<2de>"])
    return trained


# --- The segmentation -----------------------------------------------------------------------------


@settings(deadline=None)
@given(texts=st.lists(any_text, max_size=4), seed=st.integers())
@example(texts=["", "a</s>b", "Ein <2de> Mann", "nnnnnnn"], seed=0)
def test_bpe_dropout_of_zero_equals_the_tokenizer(tokenizer, texts, seed):
    expected = encode_sentences(tokenizer, texts)
    assert BpeDropout(tokenizer, 0.0).encode(texts, seed, epoch=0) == expected


@settings(deadline=None)
@given(text=any_text, dropout=st.floats(0.0, 1.0), seed=st.integers(0, 3))
def test_bpe_dropout_round_trips_any_text(tokenizer, text, dropout, seed):
    (ids,) = BpeDropout(tokenizer, dropout).encode([text], seed, epoch=0)
    assert tokenizer.decode(ids, skip_special_tokens=True) == normal_form(text)
    assert ids.count(tokenizer.eos_token_id) == 1
    assert ids[-1] == tokenizer.eos_token_id


def test_bpe_dropout_of_one_leaves_bytes(tokenizer):
    (ids,) = BpeDropout(tokenizer, 1.0).encode(["Ein Mann schläft."], seed=0, epoch=0)
    assert len(ids) == len(" Ein Mann schläft.".encode()) + 1


def test_bpe_dropout_ignores_padding_and_truncation_settings(tokenizer):
    texts = ["Ein Mann schläft.", "Ein"]
    before = BpeDropout(tokenizer, 0.3).encode(texts, 0, 0)
    tokenizer(texts, padding="max_length", truncation=True, max_length=3)
    assert BpeDropout(tokenizer, 0.3).encode(texts, 0, 0) == before


def test_bpe_dropout_removes_a_written_eos(tokenizer):
    taking = copy.deepcopy(tokenizer)
    taking.split_special_tokens = False
    texts = ["Ein</s> Mann", "Ein Mann"]
    assert encode_sentences(taking, texts) != encode_sentences(tokenizer, texts)
    expected = encode_sentences(taking, texts)
    assert BpeDropout(taking, 0.0).encode(texts, 0, 0) == expected


def merged(tokens, position):
    joined = tokens[position] + tokens[position + 1]
    return (*tokens[:position], joined, *tokens[position + 2 :])


def probabilities(tokens, ranks, dropout):
    """Algorithm 1 to the letter: the probability of each segmentation, over every set of places
    that may drop.
    """
    pairs = [*pairwise(tokens)]
    places = [position for position, pair in enumerate(pairs) if pair in ranks]
    result = Counter()
    for kept in range(len(places) + 1):
        for remaining in combinations(places, kept):
            dropped = dropout ** (len(places) - kept)
            probability = (1 - dropout) ** kept * dropped
            if not remaining:
                result[tokens] += probability
                continue
            _, first = min((ranks[pairs[position]], position) for position in remaining)
            rest = probabilities(merged(tokens, first), ranks, dropout)
            for segmentation, share in rest.items():
                result[segmentation] += probability * share
    return result


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_bpe_dropout_matches_the_frequencies_of_the_paper(dropout):
    tokenizer = train_tokenizer(["aab abab aaab bab"] * 3, vocab_size=268)
    bpe = BpeDropout(tokenizer, dropout)
    name = tokenizer.convert_ids_to_tokens
    ranks = {}
    for pair, (rank, _) in bpe._merges.items():
        ranks[tuple(name([*pair]))] = rank
    expected = probabilities(("Ġ", *"aabab"), ranks, dropout)
    assert len(expected) > 8
    draws = 20_000
    counts = Counter()
    for ids in bpe.encode(["aabab"] * draws, seed=0, epoch=0):
        counts[tuple(name(ids[:-1]))] += 1
    assert counts.keys() <= expected.keys()
    for segmentation, probability in expected.items():
        deviation = (probability * (1 - probability) / draws) ** 0.5
        difference = abs(counts[segmentation] / draws - probability)
        assert difference < 4.5 * deviation + 1 / draws, segmentation


# --- The draws ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    texts=st.lists(any_text, min_size=1, max_size=8),
    cut=st.integers(0, 8),
    first=st.integers(0, 10**9),
)
def test_bpe_dropout_is_independent_of_shards(tokenizer, texts, cut, first):
    def encode(shard, index):
        bpe = BpeDropout(tokenizer, 0.5)
        return bpe.encode(shard, seed=1, epoch=2, first_index=index)

    earlier, later = encode(texts[:cut], first), encode(texts[cut:], first + cut)
    assert earlier + later == encode(texts, first)


def test_bpe_dropout_is_independent_of_earlier_calls(tokenizer):
    bpe = BpeDropout(tokenizer, 0.5)
    first = bpe.encode(TEXTS, seed=0, epoch=0)
    assert bpe.encode(TEXTS, seed=0, epoch=1) != first
    random.seed(7)
    assert bpe.encode(TEXTS, seed=0, epoch=0) == first


CHANGES = [{"seed": 1}, {"epoch": 1}, {"first_index": 1}, {"stream": 1}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_bpe_dropout_depends_on_seed_epoch_index_and_side(tokenizer, change):
    bpe = BpeDropout(tokenizer, 0.5)
    texts = ["Ein Mann schläft."] * 10
    usual = {"seed": 0, "epoch": 0, "first_index": 0, "stream": 0}
    drawn = bpe.encode(texts, **usual)
    assert bpe.encode(texts, **usual) == drawn
    assert bpe.encode(texts, **usual | change) != drawn


# --- Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "dropout", "message"),
    [
        ("unigram", 0.1, "must have a BPE tokenizer, .* got Unigram"),
        ("wordpiece", 0.1, "must have a BPE tokenizer, .* got WordPiece"),
        (None, 0.1, "must have a VanillaTransformerTokenizer, got NoneType"),
        *(
            ("bpe", value, rf"`dropout` must be in \[0, 1\], got {value}")
            for value in (-0.1, 1.1, float("nan"))
        ),
    ],
)
def test_bpe_dropout_refuses(model, dropout, message):
    tokenizer = None
    if model is not None:
        tokenizer = train_tokenizer(TEXTS, vocab_size=320, model=model)
    with pytest.raises(ValueError, match=message):
        BpeDropout(tokenizer, dropout)
