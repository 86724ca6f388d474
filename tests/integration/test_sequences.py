"""Sequences that are no language: their tokenizers, and pipelines that translate them whole."""

import pytest
from transformers import AutoTokenizer

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.decoding.constraints import word_continuations
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.pipeline_vanilla_transformer import (
    TranslationPipeline as CarriedPipeline,
)
from vanilla_transformer.pipeline_vanilla_transformer import reads_sequences
from vanilla_transformer.tokenization_vanilla_transformer import constructor_arguments

MOLECULES = ["CC(=O)Oc1ccccc1", "C[C@@H](N)C(=O)O.[Na+]", "BrC%12=CC=CC=C%12Cl"]
ATOMS = r"\[[^]]+]|Br|Cl|%\d\d|."
# Text that a language would have normalized, split, kept or copied
ODD = [
    "e\u0301 \u00e9",
    "a  b",
    "12 7 3",
    "{x} %s 4711",
    "http://a.b/c x@y.de",
    "A. B c! D? E",
    "....",
]
PHONEMES = ["HH AH L OW", "W ER L D"]
KINDS = {
    "characters": ([*MOLECULES, *ODD], {}),
    "words": (["HH AH L OW", "12 7 3"], {}),
    "regex": ([*MOLECULES, *ODD], {"pattern": ATOMS}),
}


@pytest.fixture(scope="module", params=KINDS)
def texts_and_tokenizer(request):
    texts, options = KINDS[request.param]
    return texts, train_tokenizer(texts, 300, model=request.param, **options)


def test_tokenizer_returns_the_text_of_sequences(texts_and_tokenizer, tmp_path):
    texts, tokenizer = texts_and_tokenizer
    tokenizer.save_pretrained(tmp_path)
    for loaded in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        rows = loaded(texts)["input_ids"]
        assert [row.count(loaded.eos_token_id) for row in rows] == [1] * len(texts)
        assert not any(loaded.unk_token_id in row for row in rows)
        assert loaded.batch_decode(rows, skip_special_tokens=True) == texts
        assert reads_sequences(loaded)


@pytest.mark.parametrize(
    ("model", "options", "text", "tokens"),
    [
        ("characters", {}, "a b", ["a", " ", "b"]),
        ("words", {}, "a  bc\td", ["a", "bc", "d"]),
        ("regex", {"pattern": ATOMS}, MOLECULES[2][:8], ["Br", "C", "%12", "=", "C"]),
        ("regex", {"pattern": "[A-Z]+"}, "a, BC d", ["a, ", "BC", " d"]),
    ],
)
def test_tokens_of_sequences(model, options, text, tokens):
    assert train_tokenizer([text], 300, model=model, **options).tokenize(text) == tokens


@pytest.mark.parametrize("model", ["words", "regex"])
def test_sequences_with_names_of_special_tokens_have_none(model):
    options = {"pattern": r"\S+|\s"} if model == "regex" else {}
    tokenizer = train_tokenizer(["a </s> <unk> b"], 300, model=model, **options)
    ids = tokenizer("<pad> <s> </s> <unk> x</s>", add_special_tokens=False)["input_ids"]
    assert not {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id} & {*ids}


def test_tokens_that_training_lacks_are_unknown():
    tokenizer = train_tokenizer(["a a a b b c"], 259, model="words")
    assert tokenizer.convert_ids_to_tokens(tokenizer("a d")["input_ids"]) == ["a", "<unk>", "</s>"]
    assert len(tokenizer) == 4 + 3
    many = [chr(first) for first in range(0x4E00, 0x4E00 + 300)]
    full = train_tokenizer(["b", "b", *many], 259, model="characters")
    assert len(full) == 259 and full("b")["input_ids"][0] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "regex"}, "`pattern` must be given for regex and no other model, got None"),
        ({"model": "bpe", "pattern": "a"}, "got 'a' for bpe"),
        ({"model": "regex", "pattern": "(a"}, "must be a regular expression .*got '\\(a': .*paren"),
        ({"model": "words", "normalization": "none"}, "must be left out for words"),
        (
            {"model": "regex", "pattern": "(a+)+b"},
            "^The tokenizer cannot be trained: .*retry-limit",
        ),
    ],
)
def test_train_tokenizer_refuses_patterns(options, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(["a" * 30], 300, **options)


@pytest.fixture
def translate(texts_and_tokenizer, monkeypatch):
    """Return a function that builds a pipeline, and the texts that its model gets."""
    _, tokenizer = texts_and_tokenizer
    model = tiny_model(vocab_size=len(tokenizer))

    def build(kind, echo):
        pipeline = kind(model, tokenizer)
        monkeypatch.setattr(
            pipeline,
            "generate_texts",
            lambda sources, *_: [[echo(tokenizer.decode(row[:-1]))] for row in sources],
        )
        return pipeline

    return build


@pytest.mark.parametrize("kind", [CarriedPipeline, TranslationPipeline])
def test_pipeline_translates_sequences_whole(kind, translate, texts_and_tokenizer):
    texts, _ = texts_and_tokenizer
    pipeline = translate(kind, "<{}>".format)
    # What only the library searches for, `generate()` decodes.
    options = {"protect": True, "split_sentences": True} if kind is TranslationPipeline else {}
    answers = pipeline([*texts, "", " "], repetition_penalty=1.1, **options)
    translated = [answer["translation_text"] for answer in answers]
    assert translated == [*map("<{}>".format, texts), "", ""]
    both = "\n".join(texts[:2])
    (answer,) = pipeline(both, repetition_penalty=1.1, **options)
    assert answer["translation_text"] == "\n".join(map("<{}>".format, texts[:2]))


@pytest.mark.parametrize("kind", [CarriedPipeline, TranslationPipeline])
def test_pipeline_refuses_sequences_that_are_too_long(kind, translate):
    with pytest.raises(ValueError, match="^A sequence must have at most 512 tokens, .*got one of"):
        translate(kind, str)("1 " * 600)


def test_documents_are_no_sequences(translate):
    pipeline = translate(TranslationPipeline, str)
    with pytest.raises(ValueError, match="^Documents must be text of a language"):
        pipeline.translate_sentences([Sentence("C", "", ())])


def test_a_prefix_may_end_within_a_sequence(texts_and_tokenizer):
    _, tokenizer = texts_and_tokenizer
    assert not word_continuations(tokenizer)


def test_constructor_arguments_keep_that_texts_are_sequences(texts_and_tokenizer):
    _, tokenizer = texts_and_tokenizer
    assert constructor_arguments(tokenizer)["sequences"] is True
