"""A run with augmented text resumes bit for bit, and its tokens are part of the model."""

import json
from pathlib import Path

import pytest

from tests.sweeps import rare
from tests.tiny import TINY_SIZES, tiny_model, tiny_tokenizer
from tests.tiny_runs import assert_same_run, flags, kill_at_step, no_scores
from vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.inline_terms import knows_inline_terms
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

TOKENS = {"inline_terms": 0.5, "placeholders": 0.5}
CHANGES = ["title_case", "upper_case", "typos"]
CHANGES += ["no_final_period", "doubled_words", "noise_pairs"]
RUN = {"augment": json.dumps(TOKENS | dict.fromkeys(CHANGES, 0.3)), "bpe_dropout": 0.1}
RUN |= {"vocab_size": 300, "max_tokens": 400, "max_steps": 12, "save_steps": 1}
RUN |= {"ema_decay": 0.9}


def write_text(folder: Path) -> Path:
    for split, count in (("train", 60), ("validation", 5)):
        pairs = read_demo_corpus(split, count)
        for end, lines in zip("ab", zip(*pairs, strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{end}").write_text(text)
    return folder


GUIDED = {"bpe_dropout": None, "train_alignments": "agreement"}
SHORT = GUIDED | {"augment": json.dumps(TOKENS | {"phrases": 0.5, "typos": 0.3})}


@pytest.mark.parametrize(
    "changes", [rare({}), rare(GUIDED), SHORT], ids=["dropout", "guided", "phrases"]
)
def test_train_resumes_augmented_run_bit_for_bit(tmp_path, monkeypatch, changes):
    text = write_text(tmp_path)
    recipe = parse_recipe(flags(text, tmp_path / "straight", **RUN | changes))
    straight = train(recipe, evaluate=no_scores)
    recipe = parse_recipe(flags(text, tmp_path / "killed", **RUN | changes))
    kill_at_step(recipe, monkeypatch, 10)
    changes = changes | {"dataloader_num_workers": 1}
    resumed = parse_recipe(flags(text, tmp_path / "killed", **RUN | changes))
    assert_same_run(straight, train(resumed, evaluate=no_scores))
    tokenizer = VanillaTransformerTokenizer.from_pretrained(straight)
    assert knows_inline_terms(tokenizer)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(straight)
    assert model.config.vocab_size == len(tokenizer) == 300 + 11


def test_train_resumes_bpe_dropout_bit_for_bit(tmp_path, monkeypatch):
    text, options = write_text(tmp_path), RUN | {"augment": None, "bpe_dropout": 0.3}
    recipe = parse_recipe(flags(text, tmp_path / "straight", **options))
    straight = train(recipe, evaluate=no_scores)
    recipe = parse_recipe(flags(text, tmp_path / "killed", **options))
    kill_at_step(recipe, monkeypatch, 9)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


@pytest.mark.sweep
def test_train_adds_tokens_to_another_model(tmp_path, monkeypatch):
    text = write_text(tmp_path)
    start = save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path / "ours")
    tuning = dict.fromkeys([*TINY_SIZES, "vocab_size"])
    tuning |= {"init_from": start, "max_steps": 5, "bpe_dropout": None}
    recipe = parse_recipe(flags(text, tmp_path / "straight", **RUN | tuning))
    straight = train(recipe, evaluate=no_scores)
    again = flags(text, tmp_path / "again", **RUN | tuning)
    kill_at_step(parse_recipe(again), monkeypatch, 3)
    assert_same_run(straight, train(parse_recipe(again), evaluate=no_scores))
    tokenizer = VanillaTransformerTokenizer.from_pretrained(straight)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(straight)
    assert knows_inline_terms(tokenizer)
    assert model.config.vocab_size == len(tokenizer) == 300 + 11


FROZEN = [("lora_rank", 2), ("freeze", "embeddings")]


@pytest.mark.parametrize(("other", "value"), FROZEN)
def test_parse_recipe_refuses_new_tokens_that_are_not_trained(tmp_path, other, value):
    tuning = dict.fromkeys([*TINY_SIZES, "vocab_size"])
    tuning |= {"init_from": "ours", other: value}

    def parse(augment):
        parse_recipe(flags(tmp_path, tmp_path / "out", **tuning, augment=augment))

    with pytest.raises(ValueError, match=f"`{other}`.* got both"):
        parse("{typos: 0.1, inline_terms: 0.1}")
    parse("{typos: 0.1}")  # adds no tokens
