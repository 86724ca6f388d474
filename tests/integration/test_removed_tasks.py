"""The tasks that transformers 5 removed answer as in transformers 4, for models of any family."""

import copy
import json
import logging
from functools import lru_cache

import datasets
import evaluate
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    pipeline,
)

from tests.golden.removed_tasks import ALL_TASKS, FOLDER, LANGUAGES, TEXTS
from tests.sweeps import sample
from vanilla_transformer.evaluation import metric_path
from vanilla_transformer.text.languages import store_direction

ANSWERS = json.loads((FOLDER / "answers.json").read_text(encoding="utf-8"))["answers"]
DIRECTED = "translation_en_to_de"


# Texts that the tokenizer of transformers 5 splits into other pieces, where a folder has no
# `tokenizer.json`.
OTHER_PIECES = {"nllb": {TEXTS[0], TEXTS[2]}}


def has_other_languages(name, task, constructor):
    """Return whether transformers 4 forgot the constructor's languages for the name's, and forced
    `<unk>`.
    """
    forgetful = name in ("nllb", "mbart", "mbart_50")
    return forgetful and task == DIRECTED and bool(constructor.get("tgt_lang"))


def comparable(name, inputs, answers):
    texts = inputs if isinstance(inputs, list) else [inputs]
    pairs = zip(texts, answers, strict=True)
    others = OTHER_PIECES.get(name, ())
    return [answer for text, answer in pairs if text not in others]


def load(task, name, **options):
    return pipeline(task, model=str(FOLDER / name), device="cpu", **options)


@lru_cache(maxsize=16)
def loaded(task, name, constructor):
    """Return the pipeline of all calls of a test with the same constructor."""
    return load(task, name, **json.loads(constructor))


def answer(name, call):
    task, constructor, inputs, options = call
    answers = loaded(task, name, json.dumps(constructor))(inputs, **options)
    return json.loads(json.dumps(answers, default=torch.Tensor.tolist))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sample(ANSWERS, "marian", "m2m_100", "bart"))
def test_removed_tasks_answer_as_in_transformers_4(name):
    wrong, calls = [], ANSWERS[name]
    for call, expected in calls:
        if has_other_languages(name, *call[:2]):
            continue
        answers = answer(name, call)
        if comparable(name, call[2], answers) != comparable(name, call[2], expected):
            wrong.append((*call, expected, answers))
    assert not wrong, f"{len(wrong)} of {len(calls)}:\n" + "\n".join(map(str, wrong))


def wrap_by_peft(model):
    """Add adapters that change nothing before they are trained."""
    return get_peft_model(model, LoraConfig(target_modules=["q", "q_proj"])).eval()


def wrap_by_compile(model):
    return torch.compile(model, backend="eager")


def derive(model):
    model.__class__ = type("Derived", (type(model),), {})
    return model


WRAPPERS = [wrap_by_peft, wrap_by_compile, copy.deepcopy, derive]


def answer_or_error(model, tokenizer, task, **languages):
    """Return the token ids that a pipeline answers by its defaults, or the message of its error."""
    try:
        models = {"model": model, "tokenizer": tokenizer, "device": "cpu"}
        generate = pipeline(task, **models, **languages)
        (answer,) = generate(TEXTS[0], return_tensors=True)
    except ValueError as error:
        return str(error)
    (ids,) = answer.values()
    return ids.tolist()


CALLS = [(name, task, ()) for name in ANSWERS for task in ALL_TASKS]
CALLS += [(name, "translation", languages) for name, languages in LANGUAGES.items()]
# The families that `make test` wraps, of which one needs languages
WRAPPED = [("bart", "summarization", ()), ("nllb", "translation", LANGUAGES["nllb"])]


SAMPLE = sample(CALLS, *WRAPPED)


def load_model(name, languages):
    """Load a model, which translates to the limit of its configuration if it has languages."""
    model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER / name)
    if languages:
        model.generation_config.max_length = 40
    return model


@pytest.mark.parametrize(("name", "task", "languages"), SAMPLE, ids=str)
def test_wrapped_models_answer_as_bare_ones(name, task, languages):
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / name)
    options = dict(zip(("src_lang", "tgt_lang"), languages, strict=False))
    expected = answer_or_error(load_model(name, languages), tokenizer, task, **options)
    for wrap in WRAPPERS:
        wrapped = wrap(load_model(name, languages))
        ids = answer_or_error(wrapped, tokenizer, task, **options)
        assert ids == expected, wrap.__name__


@pytest.mark.parametrize("name", ["nllb", "mbart", "mbart_50"])
def test_languages_of_the_constructor_win_over_the_task(name):
    (_, constructor, text, options), expected = ANSWERS[name][3]
    assert answer(name, (DIRECTED, constructor, text, options)) == expected


def test_translation_takes_the_first_direction(caplog, monkeypatch):
    """Say so in the log."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("vanilla_transformer"), "propagate", True)
    translate = load("translation_en_to_de", "t5")
    tasks = translate.model.config.task_specific_params
    tasks["translation_en_to_fr"] = {"prefix": "translate English to French: "}
    models = {"model": translate.model, "tokenizer": translate.tokenizer}
    chosen = pipeline("translation", device="cpu", **models)
    message = "`translation` means translation_en_to_de, the first direction of the model."
    assert message in caplog.text
    assert chosen(TEXTS[0], max_new_tokens=5) == translate(TEXTS[0], max_new_tokens=5)


def test_library_models_take_what_transformers_4_took():
    translate = load("translation", "t5", framework="pt", max_new_tokens=8)
    assert translate.task == DIRECTED
    assert translate.prefix == "translate English to German: "
    expected = translate(TEXTS[0])
    # The model knows no languages.
    assert translate(TEXTS[0], src_lang="en", tgt_lang="de") == expected
    (two,) = translate(TEXTS[:1], num_return_sequences=2)
    assert translate(TEXTS[0], num_return_sequences=2) == two
    translate.prefix = "xx: "
    assert translate(TEXTS[0]) != expected


def test_generation_config_of_the_constructor_replaces_the_task():
    ids = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    config = GenerationConfig(max_new_tokens=3, **ids)
    options = {"generation_config": config, "return_tensors": True}
    generate = load("text2text-generation", "bart", **options)
    assert len(generate(TEXTS[0])[0]["generated_token_ids"]) == 4


def test_tasks_need_a_sequence_to_sequence_model(tiny_tokenizer):
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=300))
    message = "`translation` must have a sequence-to-sequence model, got GPT2LMHeadModel"
    with pytest.raises(ValueError, match=message):
        pipeline("translation", model=model, tokenizer=tiny_tokenizer)


def test_library_models_translate_whole_texts_by_default():
    translate = load("translation", "marian", num_beams=1, max_new_tokens=5)
    one, two = (translate(text)[0]["translation_text"] for text in TEXTS[:2])
    text = "\n".join(TEXTS[:2])
    joined = [{"translation_text": f"{one}\n{two}"}]
    assert translate(text, split_sentences=True) == joined
    assert translate(text) != translate(text, split_sentences=True)


def test_options_of_calls_and_constructors_win_over_the_task():
    summarize = load("summarization", "bart_with_tasks", return_tensors=True)
    lengths = []
    for options in ({}, {"max_new_tokens": 3}):
        (summary,) = summarize(TEXTS[0], **options)
        lengths.append(len(summary["summary_token_ids"]))
    assert lengths[0] > lengths[1] == 4


def test_stop_sequence_ends_an_answer():
    generate = load("text2text-generation", "bart", max_new_tokens=9)
    (whole,) = generate(TEXTS[0])
    letter = whole["generated_text"].strip()[2]
    (stopped,) = generate(TEXTS[0], stop_sequence=letter)
    assert len(stopped["generated_text"]) < len(whole["generated_text"])


MISSING = "A model of many languages must have `src_lang` and `tgt_lang`, got none. Give both."
UNKNOWN = "The source language must be one of .*; got 'xx'"
REFUSED = [({}, MISSING), ({"src_lang": "xx", "tgt_lang": "yy"}, UNKNOWN)]


@pytest.mark.parametrize("name", ["m2m_100", "nllb", "mbart", "mbart_50"])
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_models_of_many_languages_refuse_others(name, options, message):
    translate = load("translation", name)
    with pytest.raises(ValueError, match=message):
        translate("A man", **options)


TASKS = ["translation", DIRECTED, "summarization", "text2text-generation"]


@pytest.mark.parametrize("task", TASKS)
def test_tasks_without_a_model_say_what_to_give(task):
    message = "^A task must have a model, got none. Give a folder or a name"
    with pytest.raises(ValueError, match=message):
        pipeline(task)


# --- Models of ours -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, tiny_model, tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, [("en", "de")])
    tiny_model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


SAME = [{"truncation": False}, {"truncation": True}, {"return_text": True}]
SAME += [{"num_workers": 1}, {"src_lang": "en"}, {"return_tensors": False}]
SAME += [{"src_lang": "en", "tgt_lang": "de-AT"}]


def test_options_of_transformers_4_are_taken_by_models_of_ours(folder):
    translate = pipeline("translation", model=folder, num_workers=2)
    text = "A man.\nTwo dogs"
    expected = translate(text)
    for options in SAME:
        assert translate(text, **options) == expected
    assert pipeline(DIRECTED, model=folder)(text) == expected
    (answer,) = translate("A man .", clean_up_tokenization_spaces=True)
    assert answer.keys() == {"translation_text"}
    message = "The source language must be en, as of the model, got fr"
    with pytest.raises(ValueError, match=message):
        translate(text, src_lang="fr")
    translation = expected[0]["translation_text"]
    summarize = pipeline("summarization", model=folder)
    assert summarize(text) == [{"summary_text": translation}]
    generate = pipeline("text2text-generation", model=folder)
    assert generate(text) == [{"generated_text": translation}]


def test_answers_have_the_token_ids_of_generate(folder):
    translate = pipeline("translation", model=folder)
    (answer,) = translate("A man", return_tensors=True, num_beams=1)
    ids = translate.tokenizer("A man", return_tensors="pt")["input_ids"]
    (expected,) = translate.model.generate(ids, num_beams=1)
    assert answer["translation_token_ids"].equal(expected)


def test_evaluator_scores_a_folder_without_network(folder, tmp_path):
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": TEXTS})
    metric = evaluate.load(metric_path(), cache_dir=str(tmp_path))
    translations = pipeline("translation", model=folder)(TEXTS)
    answers = [translation["translation_text"] for translation in translations]
    expected = metric.compute(predictions=answers, references=TEXTS)
    evaluator = evaluate.evaluator("translation")
    arguments = {"model_or_pipeline": folder, "data": data, "metric": metric}
    scores = evaluator.compute(**arguments, device=-1)
    assert scores.items() >= expected.items()
