"""The reverse model reads the candidates in their language."""

from types import SimpleNamespace

import pytest

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.extensions.reranking import reranking
from vanilla_transformer.extensions.reranking.reranking import Reranker
from vanilla_transformer.extensions.reranking.tuning import tune_reranking
from vanilla_transformer.text.languages import Direction, add_language_tags

FORTH, BACK = Direction("en", "de"), Direction("de", "en")


@pytest.fixture
def reverse(monkeypatch):
    """Return a reranker of several languages that records the texts and the direction that it
    reads.
    """
    tokenizer = tiny_tokenizer()
    add_language_tags(tokenizer, [FORTH, BACK], with_sources=True)
    reranker = Reranker(tiny_model(), tokenizer)
    reranker.read = []

    def encode(model, tokenizer, texts, translations, direction):
        reranker.read.append((texts, translations, direction))
        return texts, translations

    monkeypatch.setattr(reranking, "encode_as_trained", encode)
    monkeypatch.setattr(reranking, "score_tokens", lambda model, texts, *_: [[-1.0]] * len(texts))
    return reranker


def test_reranker_reads_candidates_in_the_reverse_direction(reverse):
    options = TranslationOptions(src_lang="en", tgt_lang="de")
    reverse.score(["a dog"], [[Translation("ein Hund")]], options)
    assert reverse.read == [(["ein Hund"], ["a dog"], BACK)]


def test_tune_reranking_reads_candidates_in_the_reverse_direction(reverse):
    asked = []

    def translate(sources, **options):
        asked.append((options["src_lang"], options["tgt_lang"]))
        answer = {"translation_text": "ein Hund", "log_probability": -1.0, "tokens": ["a", "b"]}
        return [[answer, answer] for _ in sources]

    translate.model = SimpleNamespace()
    tune_reranking(translate, reverse, ["a dog"], ["ein Hund"], 2, FORTH)
    assert asked == [("en", "de")]
    assert reverse.read == [(["ein Hund"], ["a dog"], BACK)]
