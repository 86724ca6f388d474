"""Configuration: the paper's base model by default; invalid values and types are rejected."""

import json

import pytest
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import AutoConfig, PreTrainedConfig

from vanilla_transformer import VanillaTransformerConfig

# The base model of table 3, with the section of the paper for each value.
PAPER_BASE = {
    "vocab_size": 37000,  # section 5.1
    "d_model": 512,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "activation_function": "relu",  # section 3.3
    "dropout": 0.1,  # section 5.4
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "attention_bias": False,  # section 3.2.2
    "lm_head_bias": False,
    "normalize_before": False,  # section 3.1
    "scale_embedding": True,  # section 3.4
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "position_embedding_type": "sinusoidal",  # section 3.5
    "sinusoid_layout": "interleaved",
}

THREE_HEADS = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 200}
# Field, an invalid value, a pattern of the error message, and other fields that the case sets.
INVALID_VALUES = [
    *[
        (field, value, "at least 1", {})
        for field in (
            "vocab_size",
            "d_model",
            "encoder_layers",
            "decoder_layers",
            "encoder_attention_heads",
            "decoder_attention_heads",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "max_position_embeddings",
            "max_source_length",
            "decoder_vocab_size",
            "attention_key_dim",
            "attention_value_dim",
        )
        for value in (0, -3)
    ],
    ("encoder_attention_heads", 7, "`d_model` must be a multiple of", {}),
    ("decoder_attention_heads", 7, "`d_model` must be a multiple of", {}),
    ("decoder_attention_heads", 7, "`d_model` must be a multiple of", {"attention_key_dim": 64}),
    ("d_model", 9, "must be even for sinusoidal positions", THREE_HEADS),
    *[
        (field, value, r"probability in \[0, 1\)", {})
        for field in ("dropout", "attention_dropout", "activation_dropout")
        for value in (-0.1, 1.0, 7, float("nan"))
    ],
    *[
        (field, value, "greater than 0", {})
        for field in ("layer_norm_eps", "init_std")
        for value in (0.0, -0.5, float("nan"))
    ],
    ("activation_function", "rellu", "must be one of .*relu", {}),
    (
        "decoder_vocab_size",
        36000,
        "must equal `vocab_size`=37000 while `share_encoder_decoder_embeddings`",
        {},
    ),
    *[
        (field, value, "must be in the vocabulary of 37000 entries", {})
        for field in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
        for value in (37000, -1)
    ],
    ("eos_token_id", [2, 40000], "must be in the vocabulary of 37000 entries", {}),
    (
        "decoder_start_token_id",
        37000,
        "must be in the vocabulary of 100 entries",
        SEPARATE | {"decoder_vocab_size": 100},
    ),
    (
        "pad_token_id",
        150,
        "must be in the vocabulary of 100 entries",
        SEPARATE | {"vocab_size": 100},
    ),
]

WRONG_TYPES = [
    ("d_model", "512"),
    ("encoder_layers", None),
    ("dropout", "a little"),
    ("sinusoid_layout", "shuffled"),
]


def test_config_defaults_to_base_model():
    config = VanillaTransformerConfig()
    assert {field: getattr(config, field) for field in PAPER_BASE} == PAPER_BASE
    assert config.decoder_vocab_size == config.vocab_size
    assert config.is_encoder_decoder and config.use_cache


@pytest.mark.parametrize(("field", "value", "message", "beside"), INVALID_VALUES)
def test_config_rejects_invalid_values(field, value, message, beside):
    with pytest.raises(ValueError, match=message) as failure:
        VanillaTransformerConfig(**{field: value}, **beside)
    assert f"`{field}`" in str(failure.value)
    shown = value[-1] if isinstance(value, list) else value
    assert str(shown) in str(failure.value)


@pytest.mark.parametrize(("field", "value"), WRONG_TYPES)
def test_config_rejects_wrong_type_with_field_and_value(field, value):
    with pytest.raises(StrictDataclassFieldValidationError) as failure:
        VanillaTransformerConfig(**{field: value})
    assert field in str(failure.value) and str(value) in str(failure.value)


def test_config_rejects_invalid_value_when_saved(tmp_path):
    config = VanillaTransformerConfig()
    config.encoder_attention_heads = 7
    with pytest.raises(Exception, match="encoder_attention_heads.*7"):
        config.save_pretrained(tmp_path)


def test_config_round_trips_every_field(tmp_path):
    changes = {
        "vocab_size": 50,
        "decoder_vocab_size": 60,
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "d_model": 24,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 40,
        "decoder_ffn_dim": 48,
        "activation_function": "gelu",
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "activation_dropout": 0.15,
        "attention_bias": True,
        "attention_key_dim": 5,
        "attention_value_dim": 6,
        "lm_head_bias": True,
        "normalize_before": True,
        "layer_norm_eps": 1e-5,
        "scale_embedding": False,
        "position_embedding_type": "learned",
        "sinusoid_layout": "halves",
        "max_position_embeddings": 77,
        "max_source_length": 66,
        "source_eos": False,
        "init_std": 0.02,
        "chunk_size_feed_forward": 8,
        "use_cache": False,
        "pad_token_id": 4,
        "bos_token_id": 5,
        "eos_token_id": [6, 7],
        "decoder_start_token_id": 4,
    }
    classes = VanillaTransformerConfig.__mro__
    fields = set()
    for config_class in classes[: classes.index(PreTrainedConfig)]:
        fields |= config_class.__annotations__.keys()
    fields -= {"is_encoder_decoder"}
    assert set(changes) == fields, "every field of the configuration is part of this round trip"
    VanillaTransformerConfig(**changes).save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is VanillaTransformerConfig
    assert {field: getattr(loaded, field) for field in changes} == changes
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["model_type"] == "vanilla_transformer"


def test_config_maps_common_field_names():
    config = VanillaTransformerConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=3)
    assert (config.d_model, config.encoder_attention_heads, config.encoder_layers) == (64, 4, 3)
