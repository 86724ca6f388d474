"""The tasks that transformers 5 removed answer as in transformers 4, for models of any family."""

import copy
import json
import logging

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
    return (
        name in ("nllb", "mbart", "mbart_50")
        and task == DIRECTED
        and bool(constructor.get("tgt_lang"))
    )


def comparable(name, inputs, answers):
    texts = inputs if isinstance(inputs, list) else [inputs]
    pairs = zip(texts, answers, strict=True)
    return [each for text, each in pairs if text not in OTHER_PIECES.get(name, ())]


def answer(name, call):
    task, constructor, inputs, options = call
    answers = pipeline(task, model=str(FOLDER / name), device="cpu", **constructor)(
        inputs, **options
    )
    return json.loads(json.dumps(answers, default=lambda tensor: tensor.tolist()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ANSWERS)
def test_removed_tasks_answer_as_in_transformers_4(name):
    wrong, calls = [], ANSWERS[name]
    for call, expected in calls:
        if has_other_languages(name, *call[:2]):
            continue
        found = answer(name, call)
        if comparable(name, call[2], found) != comparable(name, call[2], expected):
            wrong.append((*call, expected, found))
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
        generate = pipeline(task, model=model, tokenizer=tokenizer, device="cpu", **languages)
        (answer,) = generate(TEXTS[0], return_tensors=True)
    except ValueError as error:
        return str(error)
    (ids,) = answer.values()
    return ids.tolist()


CALLS = [(name, task, ()) for name in ANSWERS for task in ALL_TASKS]
CALLS += [(name, "translation", languages) for name, languages in LANGUAGES.items()]
# The families that `make test` wraps, of which one needs languages
WRAPPED = [("bart", "summarization", ()), ("nllb", "translation", LANGUAGES["nllb"])]


@pytest.mark.parametrize(("name", "task", "languages"), sample(CALLS, *WRAPPED), ids=str)
def test_wrapped_models_answer_as_bare_ones(name, task, languages):
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / name)
    options = dict(zip(("src_lang", "tgt_lang"), languages, strict=False))
    bare = AutoModelForSeq2SeqLM.from_pretrained(FOLDER / name)
    expected = answer_or_error(bare, tokenizer, task, **options)
    for wrap in WRAPPERS:
        wrapped = wrap(AutoModelForSeq2SeqLM.from_pretrained(FOLDER / name))
        assert answer_or_error(wrapped, tokenizer, task, **options) == expected, wrap.__name__


@pytest.mark.parametrize("name", ["nllb", "mbart", "mbart_50"])
def test_languages_of_the_constructor_win_over_the_task(name):
    (_, constructor, text, options), expected = ANSWERS[name][3]
    assert answer(name, (DIRECTED, constructor, text, options)) == expected


def test_translation_takes_the_first_direction_of_a_checkpoint_and_says_so(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("vanilla_transformer"), "propagate", True)
    translate = pipeline("translation_en_to_de", model=str(FOLDER / "t5"), device="cpu")
    translate.model.config.task_specific_params["translation_en_to_fr"] = {
        "prefix": "translate English to French: "
    }
    chosen = pipeline(
        "translation", model=translate.model, tokenizer=translate.tokenizer, device="cpu"
    )
    assert (
        "`translation` means translation_en_to_de, the first direction of the model." in caplog.text
    )
    assert chosen(TEXTS[0], max_new_tokens=5) == translate(TEXTS[0], max_new_tokens=5)


def test_library_models_take_what_transformers_4_took():
    translate = pipeline(
        "translation", model=str(FOLDER / "t5"), device="cpu", framework="pt", max_new_tokens=8
    )
    assert (translate.task, translate.prefix) == (DIRECTED, "translate English to German: ")
    expected = translate(TEXTS[0])
    assert (
        translate(TEXTS[0], src_lang="en", tgt_lang="de") == expected
    )  # of a model that knows no languages
    assert (
        translate(TEXTS[0], num_return_sequences=2)
        == translate(TEXTS[:1], num_return_sequences=2)[0]
    )
    translate.prefix = "xx: "
    assert translate(TEXTS[0]) != expected


def test_generation_config_of_the_constructor_replaces_the_task():
    config = GenerationConfig(
        max_new_tokens=3, decoder_start_token_id=2, eos_token_id=2, pad_token_id=1
    )
    options = {"device": "cpu", "generation_config": config, "return_tensors": True}
    generate = pipeline("text2text-generation", model=str(FOLDER / "bart"), **options)
    assert len(generate(TEXTS[0])[0]["generated_token_ids"]) == 4


def test_tasks_need_a_sequence_to_sequence_model(tiny_tokenizer):
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=300))
    with pytest.raises(
        ValueError,
        match="`translation` must have a sequence-to-sequence model, got GPT2LMHeadModel",
    ):
        pipeline("translation", model=model, tokenizer=tiny_tokenizer)


def test_library_models_translate_whole_texts_by_default():
    translate = pipeline(
        "translation", model=str(FOLDER / "marian"), device="cpu", num_beams=1, max_new_tokens=5
    )
    one, two = (translate(text)[0]["translation_text"] for text in TEXTS[:2])
    text = "\n".join(TEXTS[:2])
    assert translate(text, split_sentences=True) == [{"translation_text": f"{one}\n{two}"}]
    assert translate(text) != translate(text, split_sentences=True)


def test_options_of_calls_and_constructors_win_over_the_task():
    summarize = pipeline(
        "summarization", model=str(FOLDER / "bart_with_tasks"), device="cpu", return_tensors=True
    )
    lengths = [
        len(summarize(TEXTS[0], **options)[0]["summary_token_ids"])
        for options in ({}, {"max_new_tokens": 3})
    ]
    assert lengths[0] > lengths[1] == 4


def test_stop_sequence_ends_an_answer():
    generate = pipeline(
        "text2text-generation", model=str(FOLDER / "bart"), device="cpu", max_new_tokens=9
    )
    (whole,) = generate(TEXTS[0])
    letter = whole["generated_text"].strip()[2]
    assert len(generate(TEXTS[0], stop_sequence=letter)[0]["generated_text"]) < len(
        whole["generated_text"]
    )


@pytest.mark.parametrize("name", ["m2m_100", "nllb", "mbart", "mbart_50"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "A model of many languages must have `src_lang` and `tgt_lang`, got none. Give both."),
        ({"src_lang": "xx", "tgt_lang": "yy"}, "The source language must be one of .*; got 'xx'"),
    ],
)
def test_models_of_many_languages_refuse_missing_and_unknown_ones(name, options, message):
    translate = pipeline("translation", model=str(FOLDER / name), device="cpu")
    with pytest.raises(ValueError, match=message):
        translate("A man", **options)


@pytest.mark.parametrize("task", ["translation", DIRECTED, "summarization", "text2text-generation"])
def test_tasks_without_a_model_say_what_to_give(task):
    with pytest.raises(
        ValueError, match=r"^A task must have a model, got none. Give a folder or a name"
    ):
        pipeline(task)


# --- Models of ours -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, tiny_model, tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    store_direction(tokenizer, [("en", "de")])
    tiny_model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_options_of_transformers_4_are_taken_by_models_of_ours(folder):
    translate = pipeline("translation", model=folder, num_workers=2)
    text = "A man.\nTwo dogs"
    expected = translate(text)
    for options in (
        {"truncation": False},
        {"truncation": True},
        {"return_text": True},
        {"num_workers": 1},
    ):
        assert translate(text, **options) == expected
    for options in (
        {"src_lang": "en"},
        {"src_lang": "en", "tgt_lang": "de-AT"},
        {"return_tensors": False},
    ):
        assert translate(text, **options) == expected
    assert pipeline(DIRECTED, model=folder)(text) == expected
    assert translate("A man .", clean_up_tokenization_spaces=True)[0].keys() == {"translation_text"}
    with pytest.raises(ValueError, match="The source language must be en, as of the model, got fr"):
        translate(text, src_lang="fr")
    for task, name in (("summarization", "summary"), ("text2text-generation", "generated")):
        assert pipeline(task, model=folder)(text) == [
            {f"{name}_text": expected[0]["translation_text"]}
        ]


def test_answers_have_the_token_ids_of_generate(folder):
    translate = pipeline("translation", model=folder)
    (found,) = translate("A man", return_tensors=True, num_beams=1)
    ids = translate.tokenizer("A man", return_tensors="pt")["input_ids"]
    assert found["translation_token_ids"].equal(translate.model.generate(ids, num_beams=1)[0])


def test_evaluator_scores_a_folder_without_network(folder, tmp_path):
    data = datasets.Dataset.from_dict({"text": TEXTS, "label": TEXTS})
    metric = evaluate.load(metric_path(), cache_dir=str(tmp_path))
    answers = [each["translation_text"] for each in pipeline("translation", model=folder)(TEXTS)]
    expected = metric.compute(predictions=answers, references=TEXTS)
    found = evaluate.evaluator("translation").compute(
        model_or_pipeline=folder, data=data, metric=metric, device=-1
    )
    assert {name: found[name] for name in expected} == expected
