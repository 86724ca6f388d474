"""Exports of models with several languages keep them."""

import copy

import ctranslate2
import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel

from tests.tiny import tiny_model
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import load_seq2seq
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.comparison import greedy_translator
from vanilla_transformer.extensions.conversion.ctranslate2 import ctranslate2_greedy_translator
from vanilla_transformer.extensions.conversion.onnx import run_by_graphs
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import Direction, add_language_tags, find_languages

TEXTS = ["A man is sleeping.", "Two dogs run."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    directions = [Direction("en", "de"), Direction("en", "fr")]
    add_language_tags(tokenizer, directions, with_sources=True)
    model = tiny_model(vocab_size=len(tokenizer))
    return save_model_folder(model, tokenizer, tmp_path_factory.mktemp("tags") / "ours")


def translations(translate, *languages):
    options = {"src_lang": translate.source, "num_beams": 1, "max_new_tokens": 6}
    texts = []
    for code in languages:
        for answer in translate(TEXTS, tgt_lang=code, **options):
            texts.append(answer["translation_text"])
    return texts


def with_source(translate, source):
    translate.source = source
    return translate


def test_to_ctranslate2_keeps_language_tags(folder, tmp_path):
    WRITERS["ctranslate2"](folder, tmp_path / "ct2", TEXTS)
    model = load_seq2seq(folder, "translates")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [f">>{code}<< {text}" for code in ("de", "fr") for text in TEXTS]
    translator = ctranslate2.Translator(str(tmp_path / "ct2"))
    exported = AutoTokenizer.from_pretrained(tmp_path / "ct2")
    theirs = ctranslate2_greedy_translator(translator, exported)(texts)
    assert theirs == greedy_translator(model, tokenizer)(texts)
    assert theirs[:2] != theirs[2:]


def test_to_marian_keeps_language_tags(folder, tmp_path):
    WRITERS["marian"](folder, tmp_path / "marian", TEXTS)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "marian")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "marian")
    assert type(model) is MarianMTModel
    languages = find_languages(tokenizer)
    assert languages.directions
    assert languages == find_languages(AutoTokenizer.from_pretrained(folder))
    theirs = with_source(TranslationPipeline(model, tokenizer), "en")
    ours = with_source(load_pipeline(folder), "en")
    assert translations(theirs, "de", "fr") == translations(ours, "de", "fr")


def test_to_onnx_keeps_language_tags(tiny_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("en", "fr")])
    model = tiny_model(vocab_size=len(tokenizer))
    save_model_folder(model, tokenizer, tmp_path / "ours")
    WRITERS["onnx"](tmp_path / "ours", tmp_path / "onnx", ["A man is sleeping."])
    exported = AutoTokenizer.from_pretrained(tmp_path / "onnx")
    assert find_languages(exported) == find_languages(tokenizer)
    texts = [f">>{code}<< A man is sleeping." for code in ("de", "fr")]
    first = [ids[0] for ids in exported(texts)["input_ids"]]
    assert first == [*find_languages(tokenizer).targets.values()]
    ours = greedy_translator(model, tokenizer)
    by_graphs = run_by_graphs(model, tmp_path / "onnx")
    theirs = greedy_translator(by_graphs, exported)
    assert theirs(texts) == ours(texts)
