"""Recipes that cannot work: training refuses them in one line, and writes nothing."""

import json

import pytest
import torch

from tests.tiny import TINY_SIZES
from tests.tiny_runs import flags, no_scores
from vanilla_transformer.errors import UserError
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

FORMER = '[{"source": "a", "target": "b", "forgetting": true}]'
PACKING = "`packing` must be given with softmax attention by sdpa or eager, "
COMPILE = "`compile` must be given without this key, .* got "
RATE = "`learning_rate` must be given with every `lr_scheduler` except noam"
SCHEDULERS = "`lr_scheduler` must be one of"
PATIENCE = "`early_stopping_patience` must be an integer from 1 to .*, got 0"
REVERSIBLE = {"compile": True, "reversible": True, "normalize_before": True}
FLEX = {"packing": True, "attn_implementation": "flex_attention"}
KERNEL = "kernels-community/flash-attn2"
NO_FLASH = "flash_attention_2 cannot train an encoder-decoder: .* Use sdpa"
# Changes of a recipe, and words of the refusal.
REFUSALS = [
    ({"lr_scheduler": "linear"}, RATE),
    ({"learning_rate": 1e-3}, RATE),
    (
        {"lr_scheduler": "liner", "learning_rate": 1e-3},
        f"{SCHEDULERS} 'noam', 'inverse_sqrt', 'linear'",
    ),
    ({"lr_scheduler": "greedy", "learning_rate": 1e-3}, f"{SCHEDULERS} .*, got 'greedy'"),
    ({"ema_decay": 1.0}, r"`ema_decay` must be a number in \(0, 1\), got 1.0"),
    ({"keep_last": 1}, "`keep_last` must be at least `average_checkpoints`=2, got 1"),
    ({"early_stopping_patience": 0}, PATIENCE),
    ({"threads": 100_000}, "`threads` must be from 1 to .*, got 100000"),
    ({"max_tokens": 2}, "`max_tokens` must be at least the length of the longest sentence"),
    ({"train_target": "short"}, "same number of lines"),
    ({"tokenizer": "tokenizer", "vocab_size": None}, "must have a `pad_token`"),
    ({"compile": True, "layer_types": "lsh_attention"}, f"{COMPILE}`layer_types: lsh_attention`"),
    (REVERSIBLE, f"{COMPILE}`reversible: true`"),
    ({"compile": True, "chunk_size_feed_forward": 4}, f"{COMPILE}`chunk_size_feed_forward: 4`"),
    ({"packing": True, "layer_types": "linear_attention"}, f"{PACKING}got another kind of model"),
    (FLEX, f"{PACKING}got attn_implementation: flex_attention"),
    ({"attn_implementation": "fast"}, "`attn_implementation` fast cannot be used: .* Use sdpa"),
    ({"attn_implementation": "flash_attention_2"}, NO_FLASH),
    ({"attn_implementation": KERNEL}, f"{KERNEL} cannot train an encoder-decoder"),
]
if not torch.accelerator.is_available():
    REFUSALS.append(({"mixed_precision": "fp16"}, "fp16 needs a GPU, got a CPU"))
WIDTH = "`d_model` must be the value of the model that `init_from` names, 16, got"
OTHER_LAYERS = "`layer_types` must be the value .*, 'full_attention', got 'linear_att"
NO_START = "must be given with `init_from`"
TWO_TOKENIZERS = "Give either `init_from`, which brings its tokenizer, or `tokenizer`, got both"
ALL_PARTS = '["encoder", "decoder", "embeddings"]'
NOT_NUMBERS = "`init_decoder_layers` must be a list of integers, got 'first'"
NO_LAYER = "`init_encoder_layers` must name layers from 0 to 0 of the model that"
TOO_SMALL = "`vocab_size` must be above the 300 entries to extend"
ALONE = {"validation": FORMER, "validation_source": None, "validation_target": None}
BESIDE = "`forgetting` of `validation` must be beside validation text of one direction, got it"
# The same for runs that start from a model.
REFUSALS_OF_MODEL = [
    ({"d_model": 32}, f"{WIDTH} 32"),
    ({"d_model": 512}, f"{WIDTH} 512"),
    ({"encoder_layers": 6}, "`encoder_layers` must be the value of the model .*, 1, got 6"),
    ({"layer_types": "linear_attention"}, OTHER_LAYERS),
    ({"vocab_size": 8000}, "`vocab_size` must be the value of the model .*, 300, got 8000"),
    ({"init_from": None, "init_vocabulary": "keep"}, f"`init_vocabulary` {NO_START}"),
    ({"tokenizer": "other"}, TWO_TOKENIZERS),
    ({"freeze": "head"}, "`freeze` must name parts of encoder, decoder, embeddings, got 'head'"),
    ({"freeze": ALL_PARTS}, "`freeze` must leave a part that is trained"),
    ({"init_from": None, "freeze": "encoder"}, f"`freeze` {NO_START}"),
    ({"init_decoder_layers": "0,first"}, NOT_NUMBERS),
    ({"init_encoder_layers": "[1]"}, NO_LAYER),
    ({"init_from": None, "init_decoder_layers": "0"}, f"`init_decoder_layers` {NO_START}"),
    ({"lora_rank": 0}, "`lora_rank` must be an integer from 1 to .*, got 0"),
    ({"lora_rank": 2, "fsdp": True}, "`lora_rank` must be given without fsdp, got both"),
    ({"init_from": None, "init_vocabulary": "extend"}, f"`init_vocabulary` {NO_START}"),
    ({"init_vocabulary": "extend", "vocab_size": 280}, TOO_SMALL),
    ({"init_from": None, "validation": FORMER}, f"`forgetting` of `validation` {NO_START}"),
    (ALONE, f"{BESIDE} beside none"),
    ({"validation": FORMER.replace("true", "1")}, "`forgetting` of a corpus must be true or false"),
]
FINE_TUNING = dict.fromkeys([*TINY_SIZES, "vocab_size"])
FINE_TUNING |= {"lr_scheduler": "constant", "learning_rate": 0.01}


def check_refusal(corpus, folder, changes, words):
    with pytest.raises(UserError, match=words):
        train(parse_recipe(flags(corpus, folder, **changes)), evaluate=no_scores)
    assert not folder.exists()


@pytest.fixture
def in_folder(corpus, tmp_path, tiny_tokenizer, monkeypatch):
    """Work in a folder with text of one line, and a tokenizer without padding."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "short").write_text("too short\n")
    # An earlier batch would save its padding token in tokenizer.json
    tiny_tokenizer.backend_tokenizer.no_padding()
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.pop("pad_token", None)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(("changes", "words"), REFUSALS)
def test_train_refuses_a_recipe_that_cannot_work(in_folder, corpus, tmp_path, changes, words):
    check_refusal(corpus, tmp_path / "out", changes, words)


@pytest.mark.parametrize(("changes", "words"), REFUSALS_OF_MODEL)
def test_train_refuses_what_the_model_cannot_do(
    corpus, tiny_model, tiny_tokenizer, tmp_path, changes, words
):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    changes = FINE_TUNING | {"init_from": tmp_path / "ours"} | changes
    check_refusal(corpus, tmp_path / "out", changes, words)
