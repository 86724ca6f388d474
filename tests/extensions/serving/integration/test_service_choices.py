"""Requests for minimum Bayes risk, reranking, sentences and terms of documents; wrong ones have status 422."""

import re

import pytest

from tests.comet_files import UNIFIED, write_comet
from tests.service_answers import TEXTS, post
from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.documents import DocumentTranslator
from vanilla_transformer.extensions.serving.commands import serve_command
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.utils.file_utils import save_model_folder


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=8)


@pytest.fixture(scope="module")
def reverse(tiny_tokenizer, tmp_path_factory):
    return save_model_folder(tiny_model(3), tiny_tokenizer, tmp_path_factory.mktemp("reverse") / "model")


@pytest.fixture(scope="module")
def reranking(tiny_tokenizer, reverse):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=8, rerank_reverse=reverse)


def pipeline_with_beams(num_beams, tokenizer):
    model = tiny_model()
    model.generation_config.num_beams = num_beams
    return TranslationPipeline(model, tokenizer, device="cpu", max_new_tokens=8)


def texts_of(answers):
    return {"translations": [[each["translation_text"]] for each in answers]}


def test_service_chooses_by_risk_like_the_pipeline(translate):
    options = {"mbr": "chrf", "mbr_samples": 4, "seed": 3}
    assert post(translate, **options).json() == texts_of(translate(TEXTS, **options))
    assert post(translate, mbr="bleu", mbr_samples=3, temperature=0.8).status_code == 200


def test_service_limits_the_default_number_of_samples(translate):
    answers = texts_of(translate(TEXTS, mbr="chrf", mbr_samples=3, seed=3))
    assert post(translate, mbr="chrf", seed=3, limits=Limits(max_mbr_samples=3)).json() == answers


def test_service_of_a_greedy_model_searches_with_beams_where_options_need_them(tiny_tokenizer):
    greedy = pipeline_with_beams(1, tiny_tokenizer)
    for options in ({"constraints": ["a"]}, {"glossary": {"a": "b"}}):
        assert post(greedy, **options).json() == texts_of(greedy(TEXTS, num_beams=4, **options))


def test_service_keeps_the_beams_of_the_model_for_several_translations(tiny_tokenizer):
    pipeline = pipeline_with_beams(16, tiny_tokenizer)
    answers = pipeline(TEXTS, num_return_sequences=4)
    assert answers != pipeline(TEXTS, num_return_sequences=4, num_beams=4)
    assert post(pipeline, num_return_sequences=4).json() == {
        "translations": [[each["translation_text"] for each in row] for row in answers]
    }


def test_service_reranks_like_the_pipeline(reranking):
    known = known_options(reranking)
    assert "mbr" not in known and post(reranking, known).json() == texts_of(reranking(TEXTS, num_beams=4))
    options = {"rerank_reverse_weight": 2.0, "rerank_length_weight": 0.1}
    assert post(reranking, known, **options).json() == texts_of(reranking(TEXTS, num_beams=4, **options))


def test_service_reranks_by_quality(tiny_tokenizer, tmp_path):
    quality = write_comet(tmp_path / "quality", UNIFIED)
    pipeline = TranslationPipeline(
        tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=8, rerank_quality=quality
    )
    known = known_options(pipeline)
    assert not {"mbr", "rerank_reverse_weight", "rerank_length_weight", "alternatives"} & {*known}
    assert post(pipeline, known).json() == texts_of(pipeline(TEXTS, num_beams=4))
    answer = post(pipeline, known, rerank_length_weight=1.0)
    assert answer.status_code == 422 and "no model or search for `rerank_length_weight`" in answer.text


def test_service_of_an_ensemble_answers_like_the_pipeline(tiny_tokenizer, reverse):
    ensemble = TranslationPipeline(tiny_model(), tiny_tokenizer, device="cpu", max_new_tokens=8, ensemble=[reverse])
    assert post(ensemble, known_options(ensemble)).json() == texts_of(ensemble(TEXTS))


def test_serve_loads_further_models(monkeypatch):
    def load(name, backend, precision, **further):
        raise ValueError(f"{name} with {further}")

    monkeypatch.setattr("vanilla_transformer.decoding.loading.load_pipeline", load)
    flags = ["--port", "0", "--ensemble", "b", "--ensemble_weights", "2", "1", "--rerank_reverse", "c"]
    further = {"ensemble": ["b"], "ensemble_weights": [2.0, 1.0], "rerank_reverse": "c"}
    with pytest.raises(ValueError, match=re.escape(f"a with {further}")):
        serve_command(["a", *flags])


def test_service_takes_null_as_not_given(translate):
    nothing = dict.fromkeys(ENTRIES) | {"text": TEXTS}
    assert post(translate, **nothing).json() == post(translate).json() == texts_of(translate(TEXTS))


def test_service_protects_documents_for_null(translate):
    body = {"text": "<p>A man runs at 12:30.</p>", "format": "html"}
    answers = [
        post(translate, documents=DocumentTranslator(translate), **body, protect=each) for each in (None, False)
    ]
    assert ["12:30" in answer.json()["translations"][0][0] for answer in answers] == [True, False]


def test_service_splits_sentences_like_the_pipeline(translate):
    text = "Dr. Smith sleeps. A man runs."
    answer = post(translate, text=text, split_sentences=True)
    assert answer.json() == texts_of(translate([text], split_sentences=True))
    assert answer.json() != post(translate, text=text).json()


def test_service_translates_documents_with_terms(translate):
    body = {"text": "<p>A man is sleeping.</p>", "format": "html", "glossary": {"man": "Mann"}}
    answer = post(translate, documents=DocumentTranslator(translate), term_mode="exact", **body)
    assert answer.status_code == 200 and "Mann" in answer.json()["translations"][0][0]


@pytest.mark.parametrize(
    ("body", "known", "message"),
    [
        ({"mbr": "chrf", "mbr_samples": 1000}, ENTRIES, "`mbr_samples` may be at most 64, got 1000."),
        ({"mbr": "chrf", "constraints": ["a"]}, ENTRIES, "Constraints need beam search"),
        ({"mbr": "chrf"}, ["do_sample"], "This service has no model or search for `mbr`. Leave it out."),
        ({"rerank_reverse_weight": 1}, ENTRIES, "`rerank_reverse_weight` needs `rerank_reverse`"),
        ({"split_sentences": True}, ["mbr"], "has no sentence splitter. Leave `split_sentences` out."),
        ({"glossary": {"man": "Hunde " * 5}}, ENTRIES, "A translation may have 8 tokens, but its constraints"),
    ],
)
def test_service_refuses_wrong_choices(translate, body, known, message):
    answer = post(translate, known, **body)
    assert answer.status_code == 422 and message in answer.json()["detail"] and "\n" not in answer.json()["detail"]
