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


def test_pipeline_begins_sources_with_the_target_tag(translate, tagged):
    german = find_languages(tagged).targets["de"]
    by_tag = texts(translate([f">>de<< {text}" for text in TEXTS]))
    french = texts(translate([f">>fr<< {text}" for text in TEXTS]))
    for options in ({}, {"precision": "float32"}):  # the library's search, and the engine
        options["tgt_lang"] = "de"
        pipeline = TranslationPipeline(translate.model, tagged, **options)
        for ids in pipeline.encode(TEXTS, TranslationOptions(tgt_lang="de")):
            assert ids[0] == german
        assert texts(pipeline(TEXTS)) == by_tag == texts(translate(TEXTS, tgt_lang="de"))
        assert texts(pipeline(TEXTS, tgt_lang="fr")) == french
        assert texts(translate(TEXTS, tgt_lang="fr")) == french
        assert texts(pipeline([">>fr<< A man is sleeping."])) == french[:1]


def test_pipeline_aligns_the_text_without_its_tag(tagged):
    model = tiny_model(vocab_size=len(tagged))
    model.config.alignment_heads = [[0, 0]]
    translate = TranslationPipeline(model, tagged, return_alignments=True)
    (answer,) = translate("A man", tgt_lang="de")
    (written,) = translate(">>de<< A man")
    assert answer["translation_text"] == written["translation_text"]
    weights = {link.weight for link in written["alignment"]}
    assert answer["alignment"]
    for link in answer["alignment"]:
        assert "A man"[link.source_start : link.source_end] in ("A", "man")
        assert link.weight in weights


TARGETS = "The target language must be one of de, en, fr; got"
FRENCH = "The source language must be one of en, de; got 'fr'."
REFUSED = [
    ({}, f"{TARGETS} none."),
    ({"tgt_lang": "it"}, f"{TARGETS} 'it'."),
    ({"tgt_lang": "de", "src_lang": "fr"}, FRENCH),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_pipeline_lists_the_languages_of_the_model(translate, options, message):
    with pytest.raises(ValueError) as error:
        translate(TEXTS, **options)
    assert str(error.value) == message


def test_pipeline_reranks_by_a_model_of_several_languages(tagged, tmp_path):
    model = tiny_model(vocab_size=len(tagged))
    save_model_folder(model, tagged, tmp_path / "both")
    translate = TranslationPipeline(model, tagged, rerank_reverse=tmp_path / "both")
    assert len(translate(TEXTS, src_lang="en", tgt_lang="de", num_beams=2)) == 2
    with pytest.raises(ValueError, match=f"{TARGETS} none"):
        translate(TEXTS, tgt_lang="de", num_beams=2)


def test_pipeline_of_nllb_forces_the_target_language():
    tokenizer = build_nllb_tokenizer()
    model = convert_model(m2m_100(len(tokenizer)))
    german, french = tokenizer.convert_tokens_to_ids(["deu_Latn", "fra_Latn"])
    languages = {"src_lang": "fra_Latn", "tgt_lang": "deu_Latn"}
    for options in ({}, {"precision": "float32"}):
        options |= {"max_new_tokens": 4, "num_beams": 1}
        translate = TranslationPipeline(model, tokenizer, **options)
        tokenizer.src_lang = "eng_Latn"
        (ids,) = translate.encode(["Grass"], TranslationOptions(**languages))
        assert ids[0] == french
        answers = texts(translate(["Grass", "A man"], **languages))
        tokenizer.src_lang = "fra_Latn"
        forced = translate(["Grass", "A man"], forced_bos_token_id=german)
        assert answers == texts(forced)
