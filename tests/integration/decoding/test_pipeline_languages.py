"""The pipeline of models with several languages: tags of ours and of OPUS-MT, and forced tokens of
NLLB.
"""

import copy

import pytest

from tests.m2m_100_models import build_nllb_tokenizer, m2m_100
from tests.tiny import tiny_model
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.extensions.conversion.from_transformers import convert_model
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, add_language_tags, find_languages

PAIRS = [Direction("en", "de"), Direction("de", "en"), Direction("en", "fr")]
TEXTS = ["A man is sleeping.", "Two dogs run."]


@pytest.fixture(scope="module")
def tagged(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, PAIRS)
    return tokenizer


@pytest.fixture
def translate(tagged):
    return TranslationPipeline(tiny_model(vocab_size=len(tagged)), tagged)


def texts(answers):
    return [answer["translation_text"] for answer in answers]


def test_pipeline_begins_sources_with_the_tag_of_the_target(translate, tagged):
    german = find_languages(tagged).targets["de"]
    for options in ({}, {"precision": "float32"}):  # the library's search, and the engine
        pipeline = TranslationPipeline(translate.model, tagged, tgt_lang="de", **options)
        assert all(
            ids[0] == german for ids in pipeline.encode(TEXTS, TranslationOptions(tgt_lang="de"))
        )
        expected = texts(translate([f">>de<< {text}" for text in TEXTS]))
        assert texts(pipeline(TEXTS)) == expected == texts(translate(TEXTS, tgt_lang="de"))
        assert texts(pipeline(TEXTS, tgt_lang="fr")) == texts(
            translate([f">>fr<< {text}" for text in TEXTS])
        )
        assert (
            texts(pipeline([">>fr<< A man is sleeping."]))
            == texts(translate(TEXTS, tgt_lang="fr"))[:1]
        )


def test_pipeline_aligns_the_text_without_its_tag(tagged):
    model = tiny_model(vocab_size=len(tagged))
    model.config.alignment_heads = [[0, 0]]
    (answer,) = TranslationPipeline(model, tagged)("A man", tgt_lang="de", return_alignments=True)
    (written,) = TranslationPipeline(model, tagged)(">>de<< A man", return_alignments=True)
    assert answer["translation_text"] == written["translation_text"]
    assert {"A man"[link.source_start : link.source_end] for link in answer["alignment"]} <= {
        "A",
        "man",
    }
    weights = {link.weight for link in written["alignment"]}
    assert answer["alignment"] and {link.weight for link in answer["alignment"]} <= weights


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "The target language must be one of de, en, fr; got none."),
        ({"tgt_lang": "it"}, "The target language must be one of de, en, fr; got 'it'."),
        (
            {"tgt_lang": "de", "src_lang": "fr"},
            "The source language must be one of en, de; got 'fr'.",
        ),
    ],
)
def test_pipeline_lists_the_languages_of_the_model(translate, options, message):
    with pytest.raises(ValueError) as error:
        translate(TEXTS, **options)
    assert str(error.value) == message


def test_pipeline_reranks_by_a_model_of_several_languages(tagged, tmp_path):
    model = tiny_model(vocab_size=len(tagged))
    save_model_folder(model, tagged, tmp_path / "both")
    translate = TranslationPipeline(model, tagged, rerank_reverse=tmp_path / "both")
    assert len(translate(TEXTS, src_lang="en", tgt_lang="de", num_beams=2)) == 2
    with pytest.raises(ValueError, match="The target language must be one of de, en, fr; got none"):
        translate(TEXTS, tgt_lang="de", num_beams=2)


def test_pipeline_of_nllb_forces_the_target_language():
    tokenizer = build_nllb_tokenizer()
    model = convert_model(m2m_100(len(tokenizer)))
    german, french = tokenizer.convert_tokens_to_ids(["deu_Latn", "fra_Latn"])
    for options in ({}, {"precision": "float32"}):
        translate = TranslationPipeline(model, tokenizer, max_new_tokens=4, num_beams=1, **options)
        tokenizer.src_lang = "eng_Latn"
        assert (
            translate.encode(
                ["Grass"], TranslationOptions(src_lang="fra_Latn", tgt_lang="deu_Latn")
            )[0][0]
            == french
        )
        answers = texts(translate(["Grass", "A man"], src_lang="fra_Latn", tgt_lang="deu_Latn"))
        tokenizer.src_lang = "fra_Latn"
        assert answers == texts(translate(["Grass", "A man"], forced_bos_token_id=german))
