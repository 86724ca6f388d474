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
# Changes of a recipe, and words of the refusal.
REFUSALS = [
    (
        {"lr_scheduler": "linear"},
        "`learning_rate` must be given with every `lr_scheduler` except noam",
    ),
    (
        {"learning_rate": 1e-3},
        "`learning_rate` must be given with every `lr_scheduler` except noam",
    ),
    (
        {"lr_scheduler": "liner", "learning_rate": 1e-3},
        "`lr_scheduler` must be one of 'noam', 'inverse_sqrt', 'linear'",
    ),
    (
        {"lr_scheduler": "greedy", "learning_rate": 1e-3},
        "`lr_scheduler` must be one of .*, got 'greedy'",
    ),
    ({"ema_decay": 1.0}, r"`ema_decay` must be a number in \(0, 1\), got 1.0"),
    ({"keep_last": 1}, "`keep_last` must be at least `average_checkpoints`=2, got 1"),
    (
        {"early_stopping_patience": 0},
        "`early_stopping_patience` must be an integer from 1 to .*, got 0",
    ),
    ({"threads": 100_000}, "`threads` must be from 1 to .*, got 100000"),
    ({"max_tokens": 2}, "`max_tokens` must be at least the length of the longest sentence"),
    ({"train_target": "short"}, "same number of lines"),
    ({"tokenizer": "tokenizer", "vocab_size": None}, "must have a `pad_token`"),
    ({"compile": True, "layer_types": "lsh_attention"}, f"{COMPILE}`layer_types: lsh_attention`"),
    (
        {"compile": True, "reversible": True, "normalize_before": True},
        f"{COMPILE}`reversible: true`",
    ),
    ({"compile": True, "chunk_size_feed_forward": 4}, f"{COMPILE}`chunk_size_feed_forward: 4`"),
    ({"packing": True, "layer_types": "linear_attention"}, f"{PACKING}got another kind of model"),
    (
        {"packing": True, "attn_implementation": "flex_attention"},
        f"{PACKING}got attn_implementation: flex_attention",
    ),
    ({"attn_implementation": "fast"}, "`attn_implementation` fast cannot be used: .* Use sdpa"),
    (
        {"attn_implementation": "flash_attention_2"},
        "flash_attention_2 cannot train an encoder-decoder: .* Use sdpa",
    ),
    (
        {"attn_implementation": "kernels-community/flash-attn2"},
        "kernels-community/flash-attn2 cannot train an encoder-decoder",
    ),
]
if not torch.accelerator.is_available():
    REFUSALS.append(({"mixed_precision": "fp16"}, "fp16 needs a GPU, got a CPU"))
# The same for runs that start from a model.
REFUSALS_OF_MODEL = [
    (
        {"d_model": 32},
        "`d_model` must be the value of the model that `init_from` names, 16, got 32",
    ),
    (
        {"d_model": 512},
        "`d_model` must be the value of the model that `init_from` names, 16, got 512",
    ),
    ({"encoder_layers": 6}, "`encoder_layers` must be the value of the model .*, 1, got 6"),
    (
        {"layer_types": "linear_attention"},
        "`layer_types` must be the value .*, 'full_attention', got 'linear_att",
    ),
    ({"vocab_size": 8000}, "`vocab_size` must be the value of the model .*, 300, got 8000"),
    (
        {"init_from": None, "init_vocabulary": "keep"},
        "`init_vocabulary` must be given with `init_from`",
    ),
    (
        {"tokenizer": "other"},
        "Give either `init_from`, which brings its tokenizer, or `tokenizer`, got both",
    ),
    ({"freeze": "head"}, "`freeze` must name parts of encoder, decoder, embeddings, got 'head'"),
    (
        {"freeze": '["encoder", "decoder", "embeddings"]'},
        "`freeze` must leave a part that is trained",
    ),
    ({"init_from": None, "freeze": "encoder"}, "`freeze` must be given with `init_from`"),
    (
        {"init_decoder_layers": "0,first"},
        "`init_decoder_layers` must be a list of integers, got 'first'",
    ),
    (
        {"init_encoder_layers": "[1]"},
        "`init_encoder_layers` must name layers from 0 to 0 of the model that",
    ),
    (
        {"init_from": None, "init_decoder_layers": "0"},
        "`init_decoder_layers` must be given with `init_from`",
    ),
    ({"lora_rank": 0}, "`lora_rank` must be an integer from 1 to .*, got 0"),
    ({"lora_rank": 2, "fsdp": True}, "`lora_rank` must be given without fsdp, got both"),
    (
        {"init_from": None, "init_vocabulary": "extend"},
        "`init_vocabulary` must be given with `init_from`",
    ),
    (
        {"init_vocabulary": "extend", "vocab_size": 280},
        "`vocab_size` must be above the 300 entries to extend",
    ),
    (
        {"init_from": None, "validation": FORMER},
        "`forgetting` of `validation` must be given with `init_from`",
    ),
    (
        {"validation": FORMER, "validation_source": None, "validation_target": None},
        "`forgetting` of `validation` must be beside validation text of one direction, got it "
        "beside none",
    ),
    ({"validation": FORMER.replace("true", "1")}, "`forgetting` of a corpus must be true or false"),
]
FINE_TUNING = dict.fromkeys([*TINY_SIZES, "vocab_size"]) | {
    "lr_scheduler": "constant",
    "learning_rate": 0.01,
}


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
    path.write_text(
        json.dumps(
            {
                name: value
                for name, value in json.loads(path.read_text()).items()
                if name != "pad_token"
            }
        )
    )


@pytest.mark.parametrize(("changes", "words"), REFUSALS)
def test_train_refuses_a_recipe_that_cannot_work(in_folder, corpus, tmp_path, changes, words):
    check_refusal(corpus, tmp_path / "out", changes, words)


@pytest.mark.parametrize(("changes", "words"), REFUSALS_OF_MODEL)
def test_train_refuses_what_the_model_cannot_do(
    corpus, tiny_model, tiny_tokenizer, tmp_path, changes, words
):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    check_refusal(
        corpus, tmp_path / "out", FINE_TUNING | {"init_from": tmp_path / "ours"} | changes, words
    )
