"""Text comes back from each model of tokenizer as it went in, with this package or without; others
fit too.
"""

import copy
import json
import math
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.processes import run_python
from tests.sweeps import examples
from tests.tiny import tiny_tokenizer
from tests.unicode_texts import normal_form
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerTokenizer
from vanilla_transformer.data.data_arguments import NORMALIZED, TOKENIZER_MODELS
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.pipeline_vanilla_transformer import _encode_by_backend, encode_sentences
from vanilla_transformer.tokenization_vanilla_transformer import (
    _MAX_PIECE_LENGTH,
    _count_pieces,
    _fit_unigram,
)

WITHOUT_PACKAGE = Path(__file__).parents[1] / "without_package.py"
TINY_TEXTS = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "Ein Mann schläft.",
    "Zwei Hunde laufen über das grüne Gras.",
] * 2
# SentencePiece and sequences have separate tests.
BYTE_LEVEL = NORMALIZED
ALL = [model for model in TOKENIZER_MODELS if model != "regex"]  # which needs a pattern
TEXTS = ["A man is sleeping.", "Two dogs run."]
TEXTS = [*TEXTS, "Ein Mann schläft.", "Zwei Hunde laufen."] * 3
# Every Unicode text, with spaces, breaks and our own special tokens more often than chance has
# them.
SPACES = [" ", "  ", "\n", "\u3000", "\xa0", "\x1c", "\xad", "\x00", "\u0301"]
SPACES += ["\u200b", "\u200c", "\u200d", "\ufeff"]
WORDS_AND_NAMES = ["</s>", "<s>", "<pad>", "a", "Mann", "é", "日本", "م", "न", "🙂", "."]
any_character = st.characters(exclude_categories=["Cs", "Cn"])
parts = st.lists(st.sampled_from(SPACES + WORDS_AND_NAMES))
any_text = st.text(any_character) | parts.map("".join)


@pytest.fixture(scope="module", params=BYTE_LEVEL)
def any_tokenizer(request):
    """One of each model, trained on what `tiny_tokenizer` is trained on."""
    return train_tokenizer(TINY_TEXTS, vocab_size=300, model=request.param)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, any_tokenizer):
    folder = tmp_path_factory.mktemp("tokenizer")
    any_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(saved):
    return AutoTokenizer.from_pretrained(saved)


def decoded(tokenizer, text):
    """Return a text from its tokens."""
    ids = tokenizer(text)["input_ids"]
    return tokenizer.decode(ids, skip_special_tokens=True)


# --- Ids ------------------------------------------------------------------------------------------


def test_tokenizer_special_tokens_match_the_configuration(any_tokenizer):
    config = VanillaTransformerConfig()
    assert any_tokenizer.pad_token_id == config.pad_token_id
    assert any_tokenizer.bos_token_id == config.bos_token_id
    assert config.bos_token_id == config.decoder_start_token_id
    assert any_tokenizer.eos_token_id == config.eos_token_id
    assert any_tokenizer.unk_token is None
    assert any_tokenizer.backend_tokenizer.token_to_id("[UNK]") is None


@given(text=any_text)
@example(text="")
@example(text="</s>")
def test_tokenizer_appends_one_eos(any_tokenizer, text):
    encoded = any_tokenizer(text, text_target=text)
    eos = any_tokenizer.eos_token_id
    assert encoded["input_ids"] == encoded["labels"]
    assert encoded["input_ids"].count(eos) == 1
    assert encoded["input_ids"][-1] == eos
    special = {any_tokenizer.pad_token_id, any_tokenizer.bos_token_id}
    assert not special & set(encoded["input_ids"])


@pytest.mark.parametrize("name", ["pad_token", "bos_token", "eos_token"])
def test_tokenizer_finds_no_new_token_for_padding_or_ends(any_tokenizer, name):
    other = copy.deepcopy(any_tokenizer)
    other.add_special_tokens({name: "<new>"})
    assert getattr(other, name) == "<new>"
    assert other.convert_tokens_to_ids("<new>") == 300
    assert 300 not in other("x <new> y", add_special_tokens=False)["input_ids"]


def test_tokenizer_gives_a_word_the_same_ids_everywhere(any_tokenizer):
    first = any_tokenizer("green")["input_ids"]
    within = any_tokenizer("the green")["input_ids"]
    assert within[-len(first) :] == first


# --- There and back -------------------------------------------------------------------------------


@examples(200)
@given(text=any_text)
@example(text=" ")
@example(text="  a  ")
@example(text="a , b . c n't 's")
@example(text="x</s>y <s> <pad>")
@example(text="##a ## #")
@example(text="日" * 200)
@example(text="a" * 101 + " " + "!" * 300)
def test_tokenizer_round_trips_any_text(any_tokenizer, text):
    assert decoded(any_tokenizer, text) == normal_form(text)


@given(texts=st.lists(any_text, min_size=1, max_size=5))
def test_tokenizer_round_trips_a_padded_batch(any_tokenizer, texts):
    ids = any_tokenizer(texts, padding="longest", return_tensors="pt")["input_ids"]
    texts_again = any_tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert texts_again == [*map(normal_form, texts)]


@given(text=any_text)
def test_tokenizer_loads_as_saved(any_tokenizer, loaded, text):
    assert type(loaded) is VanillaTransformerTokenizer
    ids = loaded(text)["input_ids"]
    assert ids == any_tokenizer(text)["input_ids"]
    assert loaded.decode(ids, skip_special_tokens=True) == normal_form(text)


@pytest.mark.sweep
def test_tokenizers_load_without_this_package(tiny_config, tmp_path):
    """Loading trusts no code of a checkpoint and asks no question: everything is in
    `tokenizer.json`.
    """
    texts = ["Ein Mann  schläft. ", "", "x</s>y\n<pad>", " 日本🙂", "don't , do ."]
    tokenizers, folders = {}, []
    for model in BYTE_LEVEL:
        tokenizer = train_tokenizer(TINY_TEXTS, vocab_size=300, model=model)
        tokenizers[model] = tokenizer
        alone, beside = tmp_path / model / "alone", tmp_path / model / "beside_a_model"
        tokenizer.save_pretrained(alone)
        tokenizer.save_pretrained(beside)
        tiny_config.save_pretrained(beside)
        folders += [alone, beside]
    command = [sys.executable, WITHOUT_PACKAGE, "tokenizers", json.dumps(texts), *folders]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=tmp_path, **pipes) as process:
        # An open standard input: a question would wait.
        output = process.stdout.read()
    for folder, line in zip(folders, output.splitlines(), strict=True):
        ids, decoded, special, inputs = json.loads(line)
        assert ids == tokenizers[folder.parent.name](texts)["input_ids"]
        assert decoded == [*map(normal_form, texts)]
        assert special == [0, 1, 2, None]
        assert inputs == ["input_ids", "attention_mask"]


# --- Training -------------------------------------------------------------------------------------


TRAINED = """
import json, sys
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.tokenizer_training import train_tokenizer
for model in sys.argv[2:]:
    tokenizer = train_tokenizer(json.loads(sys.argv[1]), 290, model=model)
    print(json.dumps(tokenizer.backend_tokenizer.to_str()))
"""


def test_class_trains_each_model_that_recipes_name():
    names = []
    for model in BYTE_LEVEL:
        tokenizer = VanillaTransformerTokenizer.train_from_iterator(TEXTS, 290, model=model)
        names.append(type(tokenizer.backend_tokenizer.model).__name__)
    assert names == ["BPE", "Unigram", "WordPiece"]
    subclass = type("Own", (VanillaTransformerTokenizer,), {})
    assert type(subclass.train_from_iterator(TEXTS, vocab_size=290)) is subclass


ONE_OF = "must be one of"
NO_MODEL = f"`model` {ONE_OF} bpe, unigram, wordpiece, sentencepiece, .*, got 'letters'"
NO_FORM = f"`normalization` {ONE_OF} nfc, nfkc, none, got 'nmt_nfkc'"
TOO_MANY = "`vocab_size` must be at most 10,000,000, got 10000001"
REFUSED = [
    (TEXTS, {"vocab_size": 10**7 + 1}, TOO_MANY),
    (TEXTS, {"vocab_size": 258}, "`vocab_size` must be at least 259 .*got 258"),
    (TEXTS, {"model": "letters"}, NO_MODEL),
    (TEXTS, {"min_frequency": -1}, "`min_frequency` must not be negative, got -1"),
    (TEXTS, {"normalization": "nmt_nfkc"}, NO_FORM),
    ("A man", {}, "got the one string 'A man'"),
    *(([""] * 2, {"model": model}, "got 2 texts without a character") for model in BYTE_LEVEL),
    ([], {}, "got 0 texts without a character"),
]


@pytest.mark.parametrize(("texts", "options", "message"), REFUSED)
def test_train_tokenizer_refuses_what_cannot_be(texts, options, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(texts, **{"vocab_size": 300} | options)


def test_train_tokenizer_is_deterministic_across_processes():
    # Hashes of strings differ from here.
    ran = run_python("-c", TRAINED, json.dumps(TEXTS), *ALL)
    there = [json.loads(line) for line in ran.stdout.splitlines()]
    here = [train_tokenizer(TEXTS, 290, model=model) for model in ALL]
    assert [tokenizer.backend_tokenizer.to_str() for tokenizer in here] == there


@pytest.mark.parametrize("model", BYTE_LEVEL)
def test_train_tokenizer_reads_texts_once_and_follows_options(model):
    read = []
    texts = (read.append(text) or text for text in TEXTS)
    tokenizer = train_tokenizer(texts, 290, model=model)
    assert read == TEXTS and len(tokenizer) == 290
    assert len(train_tokenizer(TEXTS, vocab_size=259, model=model)) == 259
    assert len(train_tokenizer(TEXTS, 300, min_frequency=1000, model=model)) == 259


@pytest.mark.parametrize("model", BYTE_LEVEL)
@pytest.mark.parametrize(("text", "size"), [("a", 37000), ("schläft" * 3000, 270)])
def test_train_tokenizer_accepts_small_or_unspaced_texts(text, size, model):
    tokenizer = train_tokenizer([text], vocab_size=size, model=model)
    assert 259 <= len(tokenizer) <= (260 if text == "a" else size)
    ids = tokenizer(text)["input_ids"]
    assert len(ids) <= max(3, len(text) / 2), "pieces, and not bytes alone"
    assert decoded(tokenizer, text) == text
    assert decoded(tokenizer, "a日 b") == "a日 b"


def test_wordpiece_takes_the_longest_piece_and_bpe_the_first_merge():
    texts = ["dbc ebc fbc gbc ab ab ab"] * 2
    tokens = {}
    for model in ("bpe", "wordpiece"):
        tokenizer = train_tokenizer(texts, vocab_size=262, model=model)
        tokens[model] = tokenizer.tokenize("abc")
    assert tokens["bpe"][-1] == "bc"
    assert tokens["wordpiece"] == ["Ġab", "c"]


def test_unigram_tokenizer_gives_the_most_probable_segmentation():
    tokenizer = train_tokenizer(TINY_TEXTS, vocab_size=300, model="unigram")
    scores = dict(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"])
    word = "Ġlaufen"
    possible = [split for split in splits_of(word) if scores.keys() >= {*split}]
    best = max(possible, key=lambda split: sum(map(scores.get, split)))
    assert tokenizer.tokenize("laufen") == best
    assert len(possible) > 1 and len(best) < len(word)


def splits_of(word):
    """Yield all ways to cut a word into pieces."""
    yield [word]
    for end in range(1, len(word)):
        for rest in splits_of(word[end:]):
            yield [word[:end], *rest]


def test_unigram_probabilities_fit_the_corpus_better_than_equal_ones():
    words = {"Ġab": 6, "Ġa": 2, "Ġb": 1}
    candidates = Counter(dict.fromkeys(["Ġa", "ab", *"Ġab"], 1))
    fitted = {}
    for piece, score in _fit_unigram(words, candidates, 258):
        fitted[piece] = math.exp(score)
    assert fitted.keys() >= {*"Ġab", "Ġa", "ab"} and len(fitted) == 258
    equal = dict.fromkeys(fitted, 1 / len(fitted))
    assert log_likelihood(words, fitted) > log_likelihood(words, equal)


def log_likelihood(words, pieces):
    """Return the log-probability of words, which have counts."""
    total = 0.0
    for word, count in words.items():
        total += count * math.log(sum_over_segmentations(word, pieces))
    return total


def test_unigram_candidates_are_counted_with_overlaps():
    counts = _count_pieces({"aa", "aaa", "b", "none"}, {"aaaa": 2, "b": 3})
    assert counts == {"aa": 7, "aaa": 5, "b": 4, "none": 1}
    longest = "a" * _MAX_PIECE_LENGTH
    counts = _count_pieces({longest, longest + "a"}, {longest + "a": 1})
    assert counts == {longest: 3, longest + "a": 1}


def test_unigram_tokenizer_segments_as_sentencepiece_does(monkeypatch):
    processors, load = [], sentencepiece.SentencePieceProcessor

    def record(**options):
        processors.append(load(**options))
        return processors[0]

    monkeypatch.setattr(sentencepiece, "SentencePieceProcessor", record)
    texts = [f"{pair.source} {pair.target}" for pair in read_demo_corpus("train", 500)]
    tokenizer = train_tokenizer(texts, vocab_size=600, model="unigram")
    assert len(tokenizer) == 600
    backend = tokenizer.backend_tokenizer
    for text in texts:
        text_in_form = backend.normalizer.normalize_str(text)
        expected = []
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(text_in_form):
            expected += processors[0].encode(word, out_type=str)
        assert tokenizer.tokenize(text) == expected


def sum_over_segmentations(word, pieces):
    """Return the probability of `word`, by recursion."""
    if not word:
        return 1.0
    total = 0.0
    for piece, probability in pieces.items():
        if word.startswith(piece):
            rest = word[len(piece) :]
            total += probability * sum_over_segmentations(rest, pieces)
    return total


# --- As in transformers ---------------------------------------------------------------------------


def test_tokenizer_pads_and_truncates_as_the_library(any_tokenizer):
    texts = ["Ein Mann schläft.", "Ein"]
    batch = any_tokenizer(texts, padding="longest", return_tensors="pt")
    rows = any_tokenizer(texts)["input_ids"]
    lengths = [len(row) for row in rows]
    assert batch["input_ids"].shape == (2, max(lengths))
    assert batch["attention_mask"].sum(dim=1).tolist() == lengths
    assert (batch["input_ids"][1, lengths[1] :] == any_tokenizer.pad_token_id).all()
    cut = any_tokenizer(texts[0], truncation=True, max_length=3)["input_ids"]
    assert cut == [*rows[0][:2], any_tokenizer.eos_token_id]


def test_tokenizer_added_tokens_fit_a_resized_model(saved, tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(saved)
    assert tokenizer.add_tokens(["<2de>"]) == 1
    ids = tokenizer("<2de> Ein Mann", return_tensors="pt")["input_ids"]
    assert 300 in ids
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        tiny_model(input_ids=ids, labels=ids)
    tiny_model.resize_token_embeddings(len(tokenizer))
    assert tiny_model(input_ids=ids, labels=ids).logits.shape == (*ids.shape, 301)
    assert tokenizer.decode(ids[0], skip_special_tokens=True) == "<2de> Ein Mann"


# --- Other tokenizers -----------------------------------------------------------------------------


def byte_level_tokenizer(**special):
    """Like GPT-2's: bytes, one `<|endoftext|>` for everything, no padding, and no EOS after a
    sentence.
    """
    trained = ByteLevelBPETokenizer()
    options = {"special_tokens": ["<|endoftext|>"], "show_progress": False}
    trained.train_from_iterator(TEXTS, vocab_size=300, **options)
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", **special}
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, **special)


def with_template(tokenizer, template):
    eos = (tokenizer.eos_token, tokenizer.eos_token_id)
    processor = processors.TemplateProcessing(single=template, special_tokens=[eos])
    tokenizer.backend_tokenizer.post_processor = processor
    return tokenizer


END = "<|endoftext|>"


@pytest.mark.parametrize("template", ["$A", f"$A {END}", f"{END} $A", f"{END} $A {END}"])
def test_encode_sentences_appends_one_eos_for_any_tokenizer(template):
    tokenizer = byte_level_tokenizer()
    words = [tokenizer(text)["input_ids"] for text in ("Ein Mann", "")]
    tokenizer = with_template(tokenizer, template)
    sentences = encode_sentences(tokenizer, ["Ein Mann", "", "Ein<|endoftext|> Mann"])
    eos = tokenizer.eos_token_id
    assert sentences == [[*words[0], eos], [*words[1], eos], [*words[0], eos]]
    assert encode_sentences(tokenizer, []) == []


def test_encode_sentences_refuses_a_tokenizer_without_eos():
    with pytest.raises(ValueError, match="must have an `eos_token`, got none from"):
        encode_sentences(byte_level_tokenizer(eos_token=None), ["Ein"])


# --- The same in one call of the backend ----------------------------------------------------------


@given(texts=st.lists(any_text, min_size=1, max_size=5))
def test_backend_encodes_and_decodes_as_the_tokenizer_does(any_tokenizer, loaded, texts):
    for tokenizer in (any_tokenizer, loaded):
        expected = tokenizer(text=texts, add_special_tokens=True)["input_ids"]
        assert _encode_by_backend(tokenizer, texts) == expected
        rows = encode_sentences(tokenizer, texts)
        assert rows == expected
        padded = [[*row, tokenizer.pad_token_id] for row in rows]
        for skips in (True, False):
            alone = [tokenizer.decode(row, skip_special_tokens=skips) for row in padded]
            assert tokenizer.batch_decode(padded, skip_special_tokens=skips) == alone


def test_encode_sentences_names_the_text_at_which_the_backend_panics(monkeypatch):
    tokenizer = copy.deepcopy(tiny_tokenizer())
    expected = encode_sentences(tokenizer, ["A man", "Two dogs"])

    class PanicException(BaseException):
        pass

    def encode(texts):
        if "bad" in texts or len(texts) > 1:
            raise PanicException("index out of bounds")
        return tokenizer.backend_tokenizer.encode_batch(texts)

    state = {"padding": None, "truncation": None, "encode_special_tokens": True}
    backend = SimpleNamespace(encode_batch_fast=encode, **state)
    backend.encode_batch = tokenizer._tokenizer.encode_batch
    monkeypatch.setattr(PreTrainedTokenizerFast, "backend_tokenizer", backend)
    assert encode_sentences(tokenizer, ["A man", "Two dogs"]) == expected
    message = "The tokenizer failed to encode 'bad': index out of bounds"
    with pytest.raises(ValueError, match=message):
        encode_sentences(tokenizer, ["A man", "bad"])


WORDS = {
    "Latin": "Straße ñandú",
    "Vietnamese, decomposed": unicodedata.normalize("NFD", "đường Việt"),
    "Greek": "πράσινο γρασίδι",
    "Cyrillic": "собаки зелёной",
    "Arabic, pointed": "كَلْبَانِ عُشْبٌ",
    "Persian, with a joiner": "می\u200cخواهم کتاب\u200cها",
    "Hebrew, pointed": "שָׁלוֹם יְרוּשָׁלַיִם",
    "Devanagari": "हिन्दी क्\u200dष",
    "Tamil": "நாய்கள் புல்வெளியில்",
    "Thai": "สุนัข หญ้าสีเขียว",
    "Khmer": "ឆ្កែពីរ ស្មៅបៃតង",
    "Burmese": "မြက်ခင်းပေါ်တွင် ခွေးနှစ်ကောင်",
    "Han": "绿色 草地",
    "Hangul": "강아지가 잔디",
}


@pytest.mark.parametrize("model", BYTE_LEVEL)
@pytest.mark.parametrize("script", WORDS)
def test_words_of_each_script_become_one_token(script, model):
    """GPT-2's words, which end before a combining mark, can never be one token in half of these
    scripts.
    """
    words = WORDS[script].split()
    texts = [" ".join(words), " ".join(words[::-1])] * 20
    tokenizer = train_tokenizer(texts, vocab_size=600, model=model)
    for word in words:
        (token,) = tokenizer(word, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode([token]) == normal_form(word)


def test_backend_is_not_used_for_another_state_or_call():
    class Marked(VanillaTransformerTokenizer):
        def _encode_plus(self, text, **options):
            return super()._encode_plus([f"a {word}" for word in text], **options)

    tokenizer = train_tokenizer(TINY_TEXTS, vocab_size=300)
    names = {"eos_token": "</s>", "pad_token": "<pad>"}
    marked = Marked(tokenizer_object=tokenizer.backend_tokenizer, **names)
    assert _encode_by_backend(marked, ["man"]) is None
    assert encode_sentences(marked, ["man"]) == encode_sentences(tokenizer, ["a man"])
    tokenizer.backend_tokenizer.enable_padding(length=30)
    assert _encode_by_backend(tokenizer, ["man"]) is None
    padded = encode_sentences(tokenizer, ["man"])
    assert padded == encode_sentences(tokenizer, ["man"]) and len(padded[0]) < 30
