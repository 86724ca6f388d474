"""The text of each token, and alignments of words from the attention between tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tests.marian_files import build_marian_tokenizer
from tests.tiny import TINY_SENTENCES, TINY_VOCAB_SIZE
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.decoding.token_texts import token_texts
from vanilla_transformer.decoding.unit_links import (
    link_units,
    moses_pairs,
    token_spans,
)
from vanilla_transformer.extensions.conversion.common import build_sentencepiece_tokenizer
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.units import split_units

TOKENIZERS = {
    kind: train_tokenizer(TINY_SENTENCES * 2, TINY_VOCAB_SIZE, model=kind)
    for kind in ("bpe", "unigram", "wordpiece")
}
BYTES = [f"<0x{byte:02X}>" for byte in (0x41, 0xE2, 0x82, 0xAC, 0xC3, 0xBC)]
PIECES = ["</s>", "▁a", "b", "▁", ".", *BYTES]


def library_tokenizer(*decoders_of_pieces):
    """Return a tokenizer whose tokens are pieces and bytes of SentencePiece."""
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="."))
    backend.decoder = decoders.Sequence([*decoders_of_pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", clean_up_tokenization_spaces=False
    )


TOKENIZERS["metaspace"] = library_tokenizer(decoders.ByteFallback(), decoders.Metaspace())
TOKENIZERS["pieces"] = library_tokenizer(decoders.Metaspace(), decoders.Fuse())


def texts_of_prefixes(tokenizer, ids):
    """Return the text of each token by its definition, from the text of all tokens up to it."""
    texts, done = [], 0
    for position, token in enumerate(ids):
        if token in tokenizer.all_special_ids:
            texts.append(tokenizer.convert_ids_to_tokens(token))
            continue
        longer = tokenizer.decode(ids[: position + 1], skip_special_tokens=True)
        if not {*ids[position + 1 :]} <= {*tokenizer.all_special_ids}:
            longer = longer.rstrip("\ufffd")
        texts.append(longer[done:])
        done = max(done, len(longer))
    return texts


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_token_texts_are_what_each_token_adds_to_the_text(name, data):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
    assert token_texts(tokenizer, ids) == texts_of_prefixes(tokenizer, ids)


@settings(max_examples=30)
@given(st.text(max_size=20))
def test_token_texts_join_to_any_text(text):
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer(text)["input_ids"]
    assert token_texts(tokenizer, ids) == texts_of_prefixes(tokenizer, ids)
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert "".join(token_texts(tokenizer, ids)[:-1]) == decoded


def test_token_texts_names_tokens_by_the_vocabulary_of_their_side(tmp_path):
    pieces = [*build_marian_tokenizer(tmp_path).encoder]
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    vocabularies = pieces, [*pieces[:2], *reversed(pieces[2:-1]), "<pad>"]
    files = tmp_path / "source.spm", tmp_path / "target.spm"
    tokenizer = build_sentencepiece_tokenizer(files, vocabularies, special)
    for as_source in (True, False, True):
        (ids,) = encode_sentences(tokenizer, ["Two dogs run"], as_target=not as_source)
        *texts, eos = token_texts(tokenizer, ids, as_source)
        assert "".join(texts) == "Twodogsrun" and eos == "</s>"  # Marian's decoding strips spaces
    assert tokenizer.separate_vocabs


def test_token_texts_decodes_each_token_a_few_times():
    class Counting:
        all_special_ids = ()
        decoded = 0

        def decode(self, ids, skip_special_tokens):
            self.decoded += len(ids)
            return "".join("xyz"[token] for token in ids)

        def convert_ids_to_tokens(self, token):
            return "xyz"[token]

    tokenizer = Counting()
    assert token_texts(tokenizer, [0, 1, 2] * 100) == [*"xyz"] * 100
    assert tokenizer.decoded < 4 * 300


def words(text):
    return [text[start:end] for start, end in split_units(text)]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("Hello, world!", ["Hello", ",", "world", "!"]),
        ("a_1  e-mail\n", ["a_1", "e", "-", "mail"]),
        ("猫がabc。", ["猫", "が", "abc", "。"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("e\u0301te\u0301 🐕", ["e\u0301te\u0301", "🐕"]),
        (" \t", []),
        ("", []),
    ],
)
def test_split_units_keeps_words_and_parts_punctuation(text, units):
    assert words(text) == units


def test_link_units_sums_over_sources_and_averages_over_targets():
    # Tokens: "He", "llo", "," and "wor", "ld", EOS of the source; "Hal", "lo", ", Welt", EOS of the
    # target.
    source_spans = [(0, 2), (2, 5), (5, 6), (6, 10), (10, 12), (12, 12)]
    target_spans = [(0, 3), (3, 5), (5, 11), (11, 11)]
    weights = [[0.5, 0.3, 0.0, 0.1, 0.0, 0.1], [0.1, 0.5, 0.2, 0.0, 0.0, 0.2]]
    weights += [[0.0, 0.0, 0.1, 0.4, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    attention = torch.tensor(weights)
    links = link_units("Hello, world", source_spans, "Hallo, Welt", target_spans, attention)
    assert [link[:4] for link in links] == [(0, 5, 0, 5), (7, 12, 5, 6), (7, 12, 7, 11)]
    assert [link.weight for link in links] == pytest.approx([0.7, 0.9, 0.9])


LETTERS = [(start, start + 1) for start in range(0, 12, 2)]


@pytest.mark.parametrize(
    "source, spans, attention, starts",
    [
        ("a b c d e f", LETTERS, [1 / 6] * 6, []),  # spread
        ("a", [(0, 1), (1, 1)], [0.1, 0.9], []),  # to EOS
        ("", [(0, 0)], [1.0], []),
        ("a b c", LETTERS[:3], [0.5, 0.3, 0.2], [0, 2]),  # shared
    ],
)
def test_link_units_links_all_with_much_attention(source, spans, attention, starts):
    links = link_units(source, spans, "x", [(0, 1)], torch.tensor([attention]))
    assert [link.source_start for link in links] == starts


@pytest.mark.parametrize(
    "source, target, links, expected",
    [
        (
            "one two three",
            "aaa bbb ccc",
            [(0, 3, 0, 3), (4, 7, 8, 11), (8, 11, 4, 7)],
            "0-0 1-2 2-1",
        ),
        ("one", "aaa", [], ""),
        # Punctuation at a word does not count.
        (
            "He has one.",
            "Er hat eins .",
            [(0, 2, 0, 2), (7, 10, 7, 11), (10, 11, 12, 13)],
            "0-0 2-2",
        ),
        ("One .", "Er hat eins .", [(4, 5, 12, 13)], "1-3"),
    ],
)
def test_moses_pairs_count_words_between_white_space(source, target, links, expected):
    assert moses_pairs(source, target, [(*link, 1.0) for link in links]) == expected


def test_token_spans_cover_the_text(tiny_tokenizer):
    texts = ["Ein Mann schläft.", "", "a 🐕 b"]
    for text, spans in zip(texts, token_spans(tiny_tokenizer, texts), strict=True):
        ids = tiny_tokenizer(text)["input_ids"]
        assert len(spans) == len(ids) and spans[-1] == (len(text), len(text))
        covered = set()
        for start, end in spans:
            covered |= {*range(start, end)}
        assert covered == {*range(len(text))}


def test_token_spans_need_a_fast_tokenizer():
    class SlowTokenizer:
        is_fast = False

    with pytest.raises(ValueError, match="Alignments need a fast tokenizer, got SlowTokenizer"):
        token_spans(SlowTokenizer(), ["a"])


def test_token_spans_begin_with_languages_without_characters():
    (ids,) = encode_sentences(TOKENIZERS["bpe"], TINY_SENTENCES[:1])
    (spans,) = token_spans(TOKENIZERS["bpe"], TINY_SENTENCES[:1])
    (longer,) = token_spans(TOKENIZERS["bpe"], TINY_SENTENCES[:1], [[7, 8, *ids]])
    assert len(spans) == len(ids) and spans[0] != (0, 0)
    assert longer == [(0, 0), (0, 0), *spans]
