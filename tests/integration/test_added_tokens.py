"""An added token is one token, with one name, beside any character; text around marks comes back as
it was.
"""

import json

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast, TextStreamer

from tests.m2m_100_models import build_m2m_tokenizer, build_nllb_tokenizer
from tests.marian_files import build_marian_tokenizer
from tests.unicode_texts import normal_form
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.tokenizer_training import add_augmentation_tokens, extend_tokenizer
from vanilla_transformer.extensions.conversion.marian import library_tokenizer
from vanilla_transformer.text.inline_terms import TERM_TOKENS
from vanilla_transformer.text.protection import MASKS
from vanilla_transformer.tokenization_vanilla_transformer import with_normalization

TEXTS = ["A man (12) sleeps.", "Ein Mann „schläft“ = 日本."] * 4
ORDINARY = ["DNA", "a|b.c", "C++"]
neighbors = [" ", "  ", "“", "”", "(", ")", "=", "日本", "12", ".", ",", "'s", "<", ">", "man"]
neighbors += ["\u0301", "\u00a0", "\ufeff"]
texts_with_marks = st.lists(st.sampled_from([*MASKS[:3], *ORDINARY, *neighbors])).map("".join)


def ours(model="bpe", normalization="nfc"):
    return VanillaTransformerTokenizer.train_from_iterator(
        TEXTS, 300, model=model, normalization=normalization
    )


def reloaded(folder):
    ours_with_tokens().save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def ours_with_tokens():
    tokenizer = ours()
    add_tokens(tokenizer)
    return tokenizer


def foreign(pre_tokenizer=None, normalizer=None, decoder=None):
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer, backend.decoder = normalizer, pre_tokenizer, decoder
    characters = [
        *"".join([*TEXTS, *MASKS, *ORDINARY, *neighbors]),
        *pre_tokenizers.ByteLevel.alphabet(),
    ]
    options = {"special_tokens": ["<pad>", "</s>", "<unk>"], "show_progress": False}
    backend.train_from_iterator(
        [*TEXTS, *characters], trainers.BpeTrainer(vocab_size=500, **options)
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def byte_level():
    return foreign(pre_tokenizers.ByteLevel(add_prefix_space=False), None, decoders.ByteLevel())


def metaspace():
    return foreign(
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        None,
        decoders.Metaspace(prepend_scheme="first"),
    )


def with_prefix():
    """Build a tokenizer like Llama's."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    return foreign(None, normalizer, decoders.Sequence(steps))


OURS = {
    "BPE": lambda _: ours(),
    "WordPiece": lambda _: ours("wordpiece"),
    "unigram": lambda _: ours("unigram"),
    "nfkc": lambda _: ours(normalization="nfkc"),
    "none": lambda _: ours(normalization="none"),
    "normalized later": lambda _: with_normalization(ours(normalization="none")),
    "extended": lambda _: extend_tokenizer(ours(), TEXTS, 310),
    "extended with its tokens": lambda _: extend_tokenizer(ours_with_tokens(), TEXTS, 330),
    "normalized with its tokens": lambda _: with_normalization(
        add_tokens(ours(normalization="none"))
    ),
    "loaded": reloaded,
    "of the library": lambda _: library_tokenizer(ours_with_tokens()),
}
EXACT = {
    "byte-level": lambda _: byte_level(),
    "Metaspace": lambda _: metaspace(),
    "prefix": lambda _: with_prefix(),
}
IMPORTED = {  # each piece of text begins as a sentence does: the space before it is not the text's
    "Marian": lambda folder: build_marian_tokenizer(folder, TEXTS * 3, 50),
    "M2M-100": build_m2m_tokenizer,
    "NLLB": lambda _: build_nllb_tokenizer(),
}
KINDS = OURS | EXACT | IMPORTED


def add_tokens(tokenizer):
    if MASKS[0] not in tokenizer.get_added_vocab():
        add_augmentation_tokens(tokenizer, ["inline_terms", "placeholders"])
        tokenizer.add_tokens(ORDINARY if isinstance(tokenizer, VanillaTransformerTokenizer) else [])
    return tokenizer


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    return request.param, add_tokens(KINDS[request.param](tmp_path_factory.mktemp("tokenizer")))


def find_marks(text):
    return [mark for piece in text.split("<") for mark in MASKS if f"<{piece}".startswith(mark)]


@given(text=texts_with_marks)
@example(text="“<ph0>”")
@example(text="(<ph1>)")
@example(text="a=<ph2>")
@example(text="<ph0><ph1>")
@example(text=" <ph0> ")
@example(text="a <ph0>b<ph1> c")
def test_marks_are_one_token_with_one_name_beside_any_character(kind, text):
    name, tokenizer = kind
    vocabulary = tokenizer.get_vocab()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert [token for token in tokenizer.tokenize(text) if token in MASKS] == find_marks(text)
    assert [token for token in ids if token in {vocabulary[mark] for mark in MASKS}] == [
        vocabulary[mark] for mark in find_marks(text)
    ]
    if name not in IMPORTED:  # whose names of unknown words differ
        assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text)) == ids
        assert tokenizer.convert_ids_to_tokens(ids) == tokenizer.tokenize(text)
    if name in OURS:
        assert tokenizer.decode(ids) == (text if name == "none" else normal_form(text))
    elif name in EXACT:
        assert (
            tokenizer.decode(ids).lstrip() == text.lstrip()
        )  # Metaspace adds no second space at the start


@given(text=st.lists(st.sampled_from([*TERM_TOKENS, "<ph0>", "DNA", *neighbors])).map("".join))
def test_each_kind_of_added_token_has_one_name(kind, text):
    name, tokenizer = kind
    if name not in IMPORTED:
        tokens = tokenizer.tokenize(text)
        assert (
            tokenizer.convert_tokens_to_ids(tokens)
            == tokenizer(text, add_special_tokens=False)["input_ids"]
        )
        assert [token for token in tokens if token in TERM_TOKENS] == [
            token
            for piece in text.split("<")
            for token in TERM_TOKENS
            if f"<{piece}".startswith(token)
        ]


@pytest.mark.parametrize("model", ["bpe", "wordpiece", "unigram"])
def test_added_tokens_change_no_ids_of_other_text(model):
    plain, marked = ours(model), add_tokens(ours(model))
    for text in [*TEXTS, "", " ", "\ufeffa  b ", "<ph", "D N A"]:
        assert plain(text)["input_ids"] == marked(text)["input_ids"]


def test_words_beside_special_tokens_have_the_ids_of_words_in_a_text():
    tokenizer = add_tokens(ours())
    words = tokenizer("A man", add_special_tokens=False)["input_ids"]
    begin, end = (tokenizer.convert_tokens_to_ids(token) for token in ("<term>", "</term>"))
    for text in ("<term> A man </term>", "<term>A man</term>", " <term>\u00a0A  man</term>"):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == [begin, *words, end]


def test_tokenizer_with_marks_of_an_older_version_keeps_its_ids(tmp_path):
    """Its marks are found after a space, and its model has learned that."""
    tokenizer = ours()
    tokenizer.backend_tokenizer.add_tokens([*map(AddedToken, MASKS)])
    tokenizer.backend_tokenizer.add_tokens(
        [AddedToken("<term>", lstrip=True, rstrip=True, normalized=False)]
    )
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["extra_special_tokens"] = ["<term>"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "A <ph0> man <term> (<ph1>)"
    ids = tokenizer(text)["input_ids"]
    assert loaded.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    loaded.add_tokens(["DNA"])
    assert loaded(text)["input_ids"] == ids and len(loaded.tokenize("(DNA)")) == 3


LATIN = ["größer", "Zoë", "<größe>", "naï.ve|x", "Ġx", "Œuvre", "東京"]
LATIN_TEXT = "a größer b <größe> Zoë naï.ve|x Ġx groß Œuvre 東京 ë"


@pytest.mark.parametrize("model", ["bpe", "wordpiece", "unigram", "sentencepiece"])
def test_added_tokens_with_letters_of_latin_1_are_decoded(model, tmp_path):
    tokenizer = ours(model, *(["nfc"] if model != "sentencepiece" else []))
    tokenizer.add_tokens(LATIN[:4])
    tokenizer.add_tokens(LATIN[4:])
    tokenizer.add_special_tokens({"mask_token": "<maßke>"})
    tokenizer.save_pretrained(tmp_path)
    backend = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for loaded in (tokenizer, AutoTokenizer.from_pretrained(tmp_path), backend):
        ids = loaded(LATIN_TEXT).input_ids
        assert len({*LATIN} & {*loaded.convert_ids_to_tokens(ids)}) == len(LATIN)
        assert loaded.decode(ids, skip_special_tokens=True).removesuffix("</s>") == LATIN_TEXT
        assert loaded.decode(loaded.convert_tokens_to_ids("<maßke>")) == "<maßke>"
    assert tokenizer.decode([[ids[0]], ids], skip_special_tokens=True)[1] == LATIN_TEXT


def test_added_tokens_with_letters_of_latin_1_are_streamed(capsys):
    tokenizer = ours()
    tokenizer.add_tokens(LATIN)
    streamer = TextStreamer(tokenizer, skip_special_tokens=True)
    for token_id in tokenizer(LATIN_TEXT).input_ids:
        streamer.put(torch.tensor([token_id]))
    streamer.end()
    assert capsys.readouterr().out == LATIN_TEXT + "\n"


def test_stored_tokenizers_with_letters_of_latin_1_are_mended(tmp_path):
    tokenizer = ours()
    decoder = tokenizer.backend_tokenizer.decoder
    tokenizer.add_tokens(LATIN)
    tokenizer.backend_tokenizer.decoder = decoder  # as stored by older versions
    tokenizer.save_pretrained(tmp_path)
    loaded = VanillaTransformerTokenizer.from_pretrained(tmp_path)
    assert loaded.decode(loaded(LATIN_TEXT).input_ids, skip_special_tokens=True) == LATIN_TEXT


def test_entries_of_the_vocabulary_keep_their_bytes():
    tokenizer = VanillaTransformerTokenizer.train_from_iterator(["ö ö ö ö"] * 9, 300)
    entry = "Ã¶"  # of the bytes of ö
    assert entry in {token.removeprefix("Ġ") for token in tokenizer.get_vocab()}
    tokenizer.add_tokens([entry])
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids(entry)) == "ö"
