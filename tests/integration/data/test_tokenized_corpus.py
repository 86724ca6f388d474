"""Pairs as token ids: what the tokenizer gives, however many processes share the work, on disk or
in memory.
"""

import pickle
from functools import partial

import datasets
import numpy as np
import pytest

from tests.m2m_100_models import build_nllb_tokenizer
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import (
    EncodedPairs,
    TokenTable,
    encode_pairs,
    encode_sides,
    encode_texts,
    encode_texts_cached,
    open_arrow_files,
)
from vanilla_transformer.data.tokenizer_training import hash_tokenizer
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

PAIRS = [SentencePair("a " * (number % 7), f"b{number}") for number in range(1, 40)]


@pytest.fixture
def texts():
    sources, targets = zip(*PAIRS, strict=True)
    return datasets.Dataset.from_dict({"source": sources, "target": targets})


@pytest.fixture
def encode(tiny_tokenizer):
    return partial(encode_sentences, tiny_tokenizer)


@pytest.mark.parametrize("num_proc", [1, 2])
@pytest.mark.parametrize("on_disk", [False, True])
def test_encode_texts_keeps_the_order(texts, encode, tiny_tokenizer, tmp_path, num_proc, on_disk):
    file = tmp_path / "encoded.arrow" if on_disk else None
    encoded = encode_texts(texts, partial(encode_sides, encode=encode), num_proc, file)
    expected = encode_pairs(tiny_tokenizer, PAIRS)
    assert list(EncodedPairs(TokenTable(encoded))) == expected
    assert len(list(tmp_path.iterdir())) == (num_proc if on_disk else 0)
    if on_disk:
        stored = TokenTable(open_arrow_files(tmp_path))
        assert list(EncodedPairs(stored)) == expected


@pytest.fixture
def pairs():
    """In two parts, as several processes leave them."""
    parts = [{"input_ids": [[1], [2, 2]], "labels": [[3], []]}]
    parts.append({"input_ids": [[4, 4, 4]], "labels": [[5]]})
    parts = [*map(datasets.Dataset.from_dict, parts)]
    return EncodedPairs(TokenTable(datasets.concatenate_datasets(parts)))


def test_encoded_pairs_agree_across_chunks(pairs):
    assert list(pairs) == [([1], [3]), ([2, 2], []), ([4, 4, 4], [5])]
    assert pairs[-1] == ([4, 4, 4], [5]) and len(pairs) == 3
    assert pairs.source_lengths.tolist() == [1, 2, 3]
    assert pairs.target_lengths.tolist() == [1, 0, 1]
    assert pairs.source_lengths.dtype == pairs.target_lengths.dtype == np.int32
    with pytest.raises(IndexError):
        pairs[3]


def test_encoded_pairs_select_with_repetitions(pairs):
    chosen = pairs.select(np.array([2, 0, 2]))
    assert list(chosen) == [([4, 4, 4], [5]), ([1], [3]), ([4, 4, 4], [5])]
    assert chosen.source_lengths.tolist() == [3, 1, 3]
    assert chosen.rows.tolist() == [2, 0, 2]
    assert list(chosen[1:]) == list(chosen)[1:]
    assert list(chosen.select(np.array([False, True, False]))) == [([1], [3])]


def test_token_table_pickles_without_its_tokens(texts, encode, tmp_path):
    sides, file = partial(encode_sides, encode=encode), tmp_path / "encoded.arrow"
    table = TokenTable(encode_texts(texts, sides, file=file))
    pickled = pickle.dumps(table)
    assert list(EncodedPairs(pickle.loads(pickled))) == list(EncodedPairs(table))
    assert len(pickled) < 3000


def test_encode_texts_cached_tokenizes_once(texts, encode, tmp_path):
    calls = []

    def counted(sentences, as_target=False):
        calls.append(len(sentences))
        return encode(sentences, as_target)

    first = encode_texts_cached(texts, "text", counted, "tokenizer", tmp_path)
    assert calls == [len(PAIRS)] * 2  # both sides
    again = encode_texts_cached(texts, "text", counted, "tokenizer", tmp_path)
    assert len(calls) == 2
    expected = list(EncodedPairs(TokenTable(first)))
    assert list(EncodedPairs(TokenTable(again))) == expected
    encode_texts_cached(texts, "other text", counted, "tokenizer", tmp_path)
    encode_texts_cached(texts, "text", counted, "other tokenizer", tmp_path)
    assert len(calls) == 6


def test_encode_pairs_marks_each_side_with_its_language():
    tokenizer = build_nllb_tokenizer()
    before = hash_tokenizer(tokenizer)
    tokenizer.src_lang, tokenizer.tgt_lang = "eng_Latn", "deu_Latn"
    (pair,) = encode_pairs(tokenizer, [SentencePair("Grass", "Grass")])
    firsts = tokenizer.convert_ids_to_tokens([pair.source[0], pair.target[0]])
    assert firsts == ["eng_Latn", "deu_Latn"]
    assert pair.source[1:] == pair.target[1:]
    assert pair.target[-1] == tokenizer.eos_token_id
    assert hash_tokenizer(tokenizer) != before
