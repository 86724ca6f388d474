"""A real model that loses text that must survive translates the sentence again under
constraints.
"""

import pytest

from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.extensions.documents import translate_document, translator_by

TEXT = "<p>Dogs run to {place} across 2,500 fields.</p><p>A man is sleeping.</p>"


@pytest.fixture(scope="module")
def pipeline(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False, max_new_tokens=40)


def test_translate_document_decodes_again_with_all_that_a_model_loses(pipeline):
    first, again = [], []
    translator = translator_by(pipeline, split_simply)
    translate, constrain = translator.translate, translator.constrain

    def translate_once(texts):
        first.append(texts)
        return translate(texts)

    def constrain_once(texts, phrases):
        again.append((texts, phrases, constrain(texts, phrases)))
        return again[-1][2]

    translated = translate_document(
        TEXT, "html", translate_once, split_simply, constrain=constrain_once
    )
    ((texts, phrases, answers),) = again
    assert len(first) == 1 and texts == ["Dogs run to {place} across 2,500 fields."]
    assert phrases == [["{place}", "2,500"]] and all(kept in answers[0][0] for kept in phrases[0])
    assert translated.startswith(f"<p>{answers[0][0]}</p>")


def test_translator_by_returns_none_where_no_translation_can_contain_phrases(pipeline):
    constrain = translator_by(pipeline, split_simply, max_new_tokens=12).constrain
    answers = constrain(["a b", "c d", "e"], [["b"], ["d" * 50], [" "]])
    assert "b" in answers[0][0] and answers[1:] == [None, None]


def test_translator_by_constrains_by_an_engine_only(tiny_tokenizer):
    slow = TranslationPipeline(
        tiny_long_model(layer_types=["transfo_xl_attention"]), tiny_tokenizer
    )
    assert translator_by(slow, split_simply).constrain is None
