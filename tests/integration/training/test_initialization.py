"""Runs that start from another model: its weights, its tokenizer, and parts that are not
trained.
"""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel

from tests.m2m_100_models import build_nllb_tokenizer, m2m_100
from tests.marian_files import MARIAN_SENTENCES, build_marian_tokenizer, marian_model
from tests.sweeps import rare
from tests.tiny import TINY_SIZES, tiny_causal_lm
from tests.tiny_runs import (
    assert_equal_tensors,
    assert_same_run,
    entries,
    flags,
    kill_at_step,
    no_scores,
)
from vanilla_transformer.data.tokenizer_training import hash_tokenizer
from vanilla_transformer.decoding.pretrained import load_config
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.from_transformers import load_converted
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.checkpoint import list_checkpoints
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

NO_SIZES = dict.fromkeys([*TINY_SIZES, "vocab_size", "max_tokens"])
FINE_TUNING = NO_SIZES | {"lr_scheduler": "constant", "learning_rate": 0.01}
FINE_TUNING["max_tokens"] = 64
ADAPTED = ("_proj.weight", "fc1.weight", "fc2.weight")


@pytest.fixture
def ours(tiny_model, tiny_tokenizer, tmp_path):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    return tmp_path / "ours"


@pytest.fixture
def opus(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    tokenizer = build_marian_tokenizer(tmp_path / "tokenizer")
    save_model_folder(marian_model(len(tokenizer)), tokenizer, tmp_path / "opus")
    return tmp_path / "opus"


def recipe_of(corpus, start, folder, **changes):
    options = FINE_TUNING | {"init_from": start} | changes
    return parse_recipe(flags(corpus, folder, **options))


def fine_tune(corpus, start, folder, **changes):
    recipe = recipe_of(corpus, start, folder, **changes)
    return train(recipe, evaluate=no_scores)


def check_resume(corpus, start, folder, monkeypatch, straight, gone=False, **options):
    """Kill a run and resume it, maybe without the model that it started from; it must be like the
    `straight` one.
    """
    recipe = recipe_of(corpus, start, folder, **options)
    kill_at_step(recipe, monkeypatch, 4)
    if gone:
        start.rename(start.with_name("gone"))
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def weights(folder):
    return AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()


def differing(tensors, others, is_same=torch.equal):
    """Return the names of tensors that differ from others."""
    return {name for name in tensors if not is_same(tensors[name], others[name])}


def validation_losses(folder):
    validations = [entry for entry in entries(folder) if "validation_loss" in entry]
    return [entry["validation_loss"] for entry in validations]


def test_train_starts_from_the_weights_of_a_model(corpus, ours, tmp_path, tiny_tokenizer):
    still = fine_tune(corpus, ours, tmp_path / "still", learning_rate=0.0, max_steps=1)
    assert not differing(weights(still), weights(ours))
    tokenizer = AutoTokenizer.from_pretrained(still)
    assert hash_tokenizer(tokenizer) == hash_tokenizer(tiny_tokenizer)
    tuned = fine_tune(corpus, ours, tmp_path / "tuned")
    losses = validation_losses(tuned)
    assert losses[-1] < losses[0] == entries(still)[0]["validation_loss"]


def test_train_reports_what_the_model_forgets(corpus, ours, tmp_path):
    source, target = str(corpus / "validation.b"), str(corpus / "validation.a")
    validation = json.dumps([{"source": source, "target": target, "forgetting": True}])
    tuned = fine_tune(corpus, ours, tmp_path / "tuned", validation=validation)
    validations = [entry for entry in entries(tuned) if "validation_loss" in entry]
    assert [entry["step"] for entry in validations] == [0, 4, 6, 6]
    for entry in validations:
        assert {"forgetting_loss", "forgetting_bleu"} <= entry.keys()
    first, last = validations[0], validations[-1]
    assert last["validation_loss"] < first["validation_loss"]
    assert first["forgetting_loss"] != first["validation_loss"]


@pytest.mark.parametrize("parts", [["encoder"], ["decoder", "embeddings"]])
def test_train_leaves_frozen_parts_as_they_are(corpus, ours, tmp_path, parts):
    folder = fine_tune(corpus, ours, tmp_path / "tuned", freeze=",".join(parts))
    tuned, before = weights(folder), weights(ours)
    for name, tensor in tuned.items():
        part = name.split(".")[1]
        if "embed" in name or "lm_head" in name:
            part = "embeddings"
        assert torch.equal(tensor, before[name]) == (part in parts), name


def test_train_resumes_from_another_model(corpus, ours, tmp_path, monkeypatch):
    options = {"freeze": "encoder", "dropout": 0.3, "ema_decay": 0.9}
    straight = fine_tune(corpus, ours, tmp_path / "straight", **options)
    options["gone"] = True
    check_resume(corpus, ours, tmp_path / "again", monkeypatch, straight, **options)


@pytest.mark.parametrize("vocabulary", ["extend", rare("replace")])
def test_train_changes_the_vocabulary_and_resumes(corpus, ours, tmp_path, monkeypatch, vocabulary):
    changes = {"init_vocabulary": vocabulary, "vocab_size": 310, "ema_decay": 0.9}
    straight = fine_tune(corpus, ours, tmp_path / "straight", **changes)
    assert (
        len(AutoTokenizer.from_pretrained(straight))
        == len(weights(straight)["lm_head.weight"])
        != len(weights(ours)["lm_head.weight"])
    )
    check_resume(corpus, ours, tmp_path / "again", monkeypatch, straight, **changes)


def test_train_merges_adapters_and_resumes(corpus, ours, tmp_path, monkeypatch):
    options = {"lora_rank": 2, "dropout": 0.3, "ema_decay": 0.9}
    straight = fine_tune(corpus, ours, tmp_path / "straight", **options)
    before, tuned = weights(ours), weights(straight)
    changed = differing(tuned, before)
    assert changed == {name for name in before if name.endswith(ADAPTED)}
    assert before.keys() == tuned.keys()
    losses = validation_losses(straight)
    assert losses[-1] < losses[0]
    again = tmp_path / "again"
    check_resume(corpus, ours, again, monkeypatch, straight, **options)
    last = [list_checkpoints(folder)[-1] for folder in (straight, again)]
    adapters = [load_file(folder / "adapters.safetensors") for folder in last]
    assert_equal_tensors(*adapters)


def test_train_averages_adapters(corpus, ours, tmp_path):
    options, tuned = {"lora_rank": 2}, {}
    for decay in (1e-9, 0.9):
        folder = tmp_path / f"{decay}"
        tuned[decay] = fine_tune(corpus, ours, folder, ema_decay=decay, **options)
    last = weights(list_checkpoints(tuned[1e-9])[-1])
    torch.testing.assert_close(weights(tuned[1e-9] / "ema"), last)
    changed = differing(weights(tuned[0.9] / "ema"), last, torch.allclose)
    assert changed and all(name.endswith(ADAPTED) for name in changed)


def test_train_fine_tunes_a_model_that_marian_translates_with(opus, tmp_path):
    for name in ("train", "validation"):
        for end in ("a", "b"):
            (tmp_path / f"{name}.{end}").write_text("\n".join(MARIAN_SENTENCES * 4))
    tuned = fine_tune(tmp_path, opus, tmp_path / "tuned", dropout=0.1, max_steps=12)
    losses = validation_losses(tuned)
    assert losses[-1] < losses[0]
    comparison = WRITERS["marian"](tuned, tmp_path / "back", MARIAN_SENTENCES)
    assert comparison.num_identical == len(MARIAN_SENTENCES)
    assert comparison.max_logit_difference < 1e-3
    back = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back")
    assert type(back) is MarianMTModel


def test_train_fine_tunes_nllb_between_two_languages(corpus, tmp_path):
    tokenizer = build_nllb_tokenizer()
    save_model_folder(m2m_100(len(tokenizer)), tokenizer, tmp_path / "nllb")
    message = "`source_language` and `target_language` must be given for"
    with pytest.raises(ValueError, match=message):
        fine_tune(corpus, tmp_path / "nllb", tmp_path / "tuned")
    languages = {"source_language": "eng_Latn", "target_language": "deu_Latn"}
    tuned = fine_tune(corpus, tmp_path / "nllb", tmp_path / "tuned", **languages)
    model = AutoModelForSeq2SeqLM.from_pretrained(tuned)
    loaded = AutoTokenizer.from_pretrained(tuned)
    assert (loaded.src_lang, loaded.tgt_lang) == tuple(languages.values())
    german = tokenizer.convert_tokens_to_ids("deu_Latn")
    inputs = loaded("Grass", return_tensors="pt")
    assert model.generate(**inputs, max_new_tokens=4)[0, 1] == german
    message = r"one of ace_Arab, .* \(202 languages\); got 'de'. Did you mean 'deu_Latn'"
    languages["target_language"] = "de"
    with pytest.raises(ValueError, match=message):
        fine_tune(corpus, tmp_path / "nllb", tmp_path / "other", **languages)


def test_load_converted_refuses_other_models(tmp_path, tiny_tokenizer):
    save_model_folder(tiny_causal_lm(), tiny_tokenizer, tmp_path)
    message = "must be a translation model of type vanilla_transformer, marian, fsmt"
    with pytest.raises(ValueError, match=message):
        load_converted(tmp_path, load_config(tmp_path))
