"""A real model that loses text that must survive translates the sentence again under
constraints.
"""

import pytest

from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.decoding.sentence_splitter import split_simply
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.extensions.documents import translate_document

TEXT = "<p>Dogs run to {place} across 2,500 fields.</p><p>A man is sleeping.</p>"


@pytest.fixture(scope="module")
def pipeline(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False, max_new_tokens=40)


def test_documents_are_decoded_again_with_all_that_a_model_loses(pipeline, monkeypatch):
    searched, search = [], pipeline.search

    def search_and_note(sentences, options, report):
        rows = search(sentences, options, report)
        searched.append(
            [(sentence, row[0].text) for sentence, row in zip(sentences, rows, strict=True)]
        )
        return rows

    monkeypatch.setattr(pipeline, "search", search_and_note)
    translated = translate_document(TEXT, "html", pipeline.translate_sentences, split_simply)
    first, again = searched
    assert [bool(sentence.phrases) for sentence, _ in first] == [False, False]
    ((sentence, translation),) = again
    assert sentence.text == "Dogs run to {place} across 2,500 fields."
    assert len(sentence.phrases) == 2 and all(kept in translation for kept in ("{place}", "2,500"))
    assert translated.startswith(f"<p>{translation}</p>")


def test_translate_sentences_keeps_text_that_no_search_can(pipeline, tiny_tokenizer):
    """Phrases of more tokens than a translation may have, or a model that no engine decodes."""
    slow = TranslationPipeline(
        tiny_long_model(layer_types=["transfo_xl_attention"]), tiny_tokenizer, max_new_tokens=12
    )
    long = "d" * 50
    sentences = [Sentence(f"A man {long} sleeps", "", (), kept=[(6, 6 + len(long))])]
    for translate in (pipeline, slow):
        (translation,) = translate.translate_sentences(sentences, max_new_tokens=12)
        assert long in translation.text


def test_translate_sentences_translates_long_sentences_in_parts(pipeline):
    text = "A man is sleeping. " * 300 + "Dogs run to {place}."
    start = text.index("{place}")
    (translation,) = pipeline.translate_sentences(
        [Sentence(text, "", (), kept=[(start, start + 7)])]
    )
    assert "{place}" in translation.text
    assert pipeline("A man is sleeping.")[0]["translation_text"] in translation.text


@pytest.mark.parametrize(
    "options",
    [
        {"target_prefix": "a"},
        {"constraints": [["a"]]},
        {"seed": 1, "do_sample": True},
        {"alternatives": 2},
    ],
)
def test_translate_sentences_refuses_options_of_texts(pipeline, options):
    with pytest.raises(OptionError, match=rf"^`{[*options][0]}` is for texts"):
        pipeline.translate_sentences([Sentence("A man.", "", ())], **options)
