"""Common parts of the converters: names, SentencePiece models, building a model within its weights, and
the comparison.
"""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding

from tests.sweeps import rare
from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.extensions.conversion.common import (
    build_model,
    find_sentencepiece_model,
    load_options,
    option_reasons,
    reading,
    rename,
)
from vanilla_transformer.extensions.conversion.comparison import Comparison, require_same
from vanilla_transformer.extensions.conversion.fairseq import FAIRSEQ
from vanilla_transformer.extensions.conversion.formats import Checkpoint, convert_checkpoint
from vanilla_transformer.extensions.conversion.joeynmt import JOEYNMT
from vanilla_transformer.extensions.conversion.marian_npz import MARIAN_NPZ, read_vocabulary
from vanilla_transformer.extensions.conversion.opennmt import OPENNMT_PY
from vanilla_transformer.extensions.conversion.weight_names import JOEYNMT_NAMES
from vanilla_transformer.modeling_vanilla_transformer import sinusoidal_positions

IN_JOEYNMT = {
    "lm_head.weight": "decoder.output_layer.weight",
    "model.encoder.embed_tokens.weight": "src_embed.lut.weight",
    "model.decoder.embed_tokens.weight": "trg_embed.lut.weight",
    "model.encoder.layers.1.self_attn.q_proj.weight": "encoder.layers.1.src_src_att.q_layer.weight",
    "model.encoder.layers.0.self_attn_layer_norm.bias": "encoder.layers.0.layer_norm.bias",
    "model.encoder.layers.0.fc1.weight": "encoder.layers.0.feed_forward.pwff_layer.0.weight",
    "model.encoder.layers.0.fc2.bias": "encoder.layers.0.feed_forward.pwff_layer.3.bias",
    "model.encoder.layers.0.final_layer_norm.weight": "encoder.layers.0.feed_forward.layer_norm.weight",
    "model.encoder.layer_norm.weight": "encoder.layer_norm.weight",
    "model.decoder.layers.0.self_attn.out_proj.bias": "decoder.layers.0.trg_trg_att.output_layer.bias",
    "model.decoder.layers.0.self_attn_layer_norm.weight": "decoder.layers.0.x_layer_norm.weight",
    "model.decoder.layers.0.encoder_attn.k_proj.weight": "decoder.layers.0.src_trg_att.k_layer.weight",
    "model.decoder.layers.0.encoder_attn.v_proj.bias": "decoder.layers.0.src_trg_att.v_layer.bias",
    "model.decoder.layers.0.encoder_attn_layer_norm.weight": "decoder.layers.0.dec_layer_norm.weight",
    "model.decoder.layer_norm.bias": "decoder.layer_norm.bias",
}


def test_rename_gives_the_names_of_joeynmts_checkpoints():
    assert {ours: rename(ours, JOEYNMT_NAMES) for ours in IN_JOEYNMT} == IN_JOEYNMT


def test_sinusoids_of_tensor2tensor_equal_fsmt():
    expected = SinusoidalPositionalEmbedding.get_embedding(20, 16, padding_idx=None)
    positions = sinusoidal_positions(torch.arange(3, 20), 16, "tensor2tensor")
    torch.testing.assert_close(positions, expected[3:20], atol=1e-5, rtol=1e-5)


def test_find_sentencepiece_model_prefers_the_path_of_the_configuration(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "sp.model").touch()
    assert find_sentencepiece_model("elsewhere/sp.model", inside) == inside / "sp.model"
    (tmp_path / "sp.model").touch()
    outside = tmp_path / "sp.model"
    assert find_sentencepiece_model(outside, inside) == outside
    with pytest.raises(FileNotFoundError, match="other.model"):
        find_sentencepiece_model("other.model", inside)


# --- Options that declare more than the weights are refused before a model is built ---

SIDES = ("encoder", "decoder")
SIZES = {"ffn": 16, "layers": 1, "width": 8}
TOKENS = ["<unk>", "<pad>", "<s>", "</s>"]


def build_marian(ffn, layers, width):
    options = {"type": "transformer", "transformer-ffn-activation": "relu"}
    options |= {"transformer-postprocess": "dan", "transformer-heads": 2}
    options |= {"dim-emb": width, "enc-depth": layers, "dec-depth": layers}
    options |= {"transformer-dim-ffn": ffn}
    weights = {"Wemb": np.zeros((4, 8), np.float32)}
    convert_checkpoint(MARIAN_NPZ, Checkpoint(options, weights, (TOKENS, TOKENS)))


def build_fairseq(ffn, layers, width):
    sizes = {"embed_dim": width, "layers": layers}
    sizes |= {"attention_heads": 2, "ffn_embed_dim": ffn}
    options = {}
    for name, value in sizes.items():
        options |= {f"encoder_{name}": value, f"decoder_{name}": value}
    weights = {"encoder.embed_tokens.weight": torch.zeros(4, 8)}
    convert_checkpoint(FAIRSEQ, Checkpoint(options, weights, (TOKENS, TOKENS)))


def build_joeynmt(ffn, layers, width):
    side = {"type": "transformer", "hidden_size": width, "ff_size": ffn}
    side |= {"num_heads": 2, "num_layers": layers}
    side |= {"layer_norm": "pre", "embeddings": {"scale": True}}
    data = dict.fromkeys(("src", "trg"), {"level": "bpe"})
    config = {"model": {"encoder": side, "decoder": side}, "data": data}
    weights = {"src_embed.lut.weight": torch.zeros(4, 8)}
    convert_checkpoint(JOEYNMT, Checkpoint(config, weights, (TOKENS, TOKENS)))


def build_opennmt(ffn, layers, width, weights=None, **changes):
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    options = {
        "hidden_size": width,
        "enc_layers": layers,
        "dec_layers": layers,
        "heads": 2,
        "transformer_ff": ffn,
        "pos_ffn_activation_fn": "relu",
        "src_subword_model": "sp.model",
        "data": {},
        "special_tokens": special | {"decoder_start_token": "<s>"},
        **changes,
    }
    weights = weights or {"model.encoder.embed_tokens.weight": torch.zeros(4, 8)}
    convert_checkpoint(OPENNMT_PY, Checkpoint(options, weights, (TOKENS, TOKENS)))


HUGE = {"ffn": 10**9, "layers": 10**6, "width": 10**6}
BUILDERS = [build_marian, build_fairseq, build_joeynmt, build_opennmt]


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("build", BUILDERS)
def test_build_model_refuses_more_than_the_weights_fill(build, size):
    message = "The weights must fill the model that the options declare"
    with pytest.raises(ValueError, match=message):
        build(**SIZES | {size: HUGE[size]})


MANY = {"first": torch.zeros(1000), "second": torch.zeros(1000)}


def test_build_model_refuses_a_huge_table_of_positions():
    sizes = {"position_embedding_type": "learned"}
    for side in SIDES:
        sizes |= {f"{side}_layers": 1, f"{side}_ffn_dim": 16}
        sizes |= {f"{side}_attention_heads": 2}
    sizes |= {"vocab_size": 4, "d_model": 8, "max_position_embeddings": 10**9}
    config = VanillaTransformerConfig(**sizes)
    message = "must declare at most 65,536 positions, got 1,000,000,000"
    with pytest.raises(ValueError, match=message):
        build_model(config, MANY, None)
    with pytest.raises(ValueError, match=f"(?s)must fill the model .*{message}"):
        build_model(config, {}, None)


def test_convert_checkpoint_names_missing_weights():
    with pytest.raises(ValueError, match="there are no weights for"):
        build_opennmt(**SIZES, weights=MANY)


NOT_REPRESENTED = "Cannot convert m.pt: This package cannot represent this model:"
# Options, and the beginnings of the lines of the refusal.
WRONG_OPTIONS = [
    (
        {"src_subword_model": None},
        [
            f"{NOT_REPRESENTED} it does not tokenize with SentencePiece.",
            f"{NOT_REPRESENTED} there are no weights for",
        ],
    ),
    (
        {"n_src_feats": 1, "enc_layers": 10**6},
        [
            f"{NOT_REPRESENTED} `n_src_feats` is 1",
            "Cannot convert m.pt: The weights must fill the model",
        ],
    ),
    # No model is known whose weights could be missing.
    (
        {"pos_ffn_activation_fn": "tanh"},
        [f"{NOT_REPRESENTED} `pos_ffn_activation_fn` is 'tanh'"],
    ),
]


@pytest.mark.parametrize(("changes", "reasons"), WRONG_OPTIONS)
def test_convert_checkpoint_refuses_options_and_weights_at_once(changes, reasons):
    with pytest.raises(ValueError) as refused, reading("m.pt", "OpenNMT-py"):
        build_opennmt(**SIZES, weights=MANY, **changes)
    lines = str(refused.value).splitlines()
    for line, reason in zip(lines, reasons, strict=True):
        assert line.startswith(reason)


@pytest.mark.parametrize(
    ("comparison", "is_same"),
    [
        rare((Comparison(10, 9, None, 1.0), True)),
        (Comparison(3, 2, 1e-4, 1.0), True),
        (Comparison(10, 8, None, 1.0), False),
        (Comparison(3, 3, 2.6, 1.0), False),
        (Comparison(3, 3, float("nan"), 1.0), False),
    ],
)
def test_require_same_accepts_rounding_only(comparison, is_same, tiny_model, tiny_tokenizer):
    refused = pytest.raises(ValueError, match="must compute what the original does")
    with nullcontext() if is_same else refused:
        require_same(comparison, tiny_model, tiny_tokenizer, ["A dog.", "Two men."])


# Nine lines of lists that each hold the one before nine times: 9^9 values.
BILLION = "a: &a0 [1]\n"
for number in range(1, 10):
    aliases = ", ".join([f"*a{number - 1}"] * 9)
    BILLION += f"a{number}: &a{number} [{aliases}]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "config.yaml must have options and their values, got None"),
        ("- 1\n- 2", "config.yaml must have options and their values, got"),
        (BILLION, "config.yaml must have at most 100,000 values, also by its aliases"),
        ("a: &a\n  b: *a", "config.yaml must have at most 100,000 values"),
    ],
    ids=["empty", "a list", "aliases of aliases", "an alias of itself"],
)
def test_load_options_refuses_other_values(text, words):
    with pytest.raises(ValueError, match=words):
        load_options(text, "config.yaml")


def test_load_options_follows_plain_aliases():
    """Also the words for booleans of YAML 1.1, as other toolkits do."""
    options = load_options("a: &side {level: bpe}\nb: *side\ntied: no", "config.yaml")
    assert options == {"a": {"level": "bpe"}, "b": {"level": "bpe"}, "tied": False}


def test_option_reasons_bound_their_values():
    (reason,) = option_reasons({"level": [[1] * 9] * 9**6}, {"level": ["bpe"]})
    assert len(reason) < 200


DAMAGED_LINES = ["token", "token: x", f"token: {'1' * 5000}", "token: -1"]


@pytest.mark.parametrize("line", DAMAGED_LINES)
def test_marian_vocabulary_names_its_file_and_line(line, tmp_path):
    (tmp_path / "vocab.yml").write_text(f"a: 0\n{line}\n")
    form = "a token, a colon and its number in each line"
    words = f"vocab.yml must have {form}, got 'token"
    with pytest.raises(ValueError, match=words):
        read_vocabulary(tmp_path)
