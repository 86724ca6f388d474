"""Options that declare a far larger model than the weights are refused before it is built."""

import numpy as np
import pytest
import torch

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.extensions.conversion import fairseq, joeynmt, marian_npz, opennmt
from vanilla_transformer.extensions.conversion.common import build_model

HUGE = [{"ffn": 10**9}, {"layers": 10**6}, {"width": 10**6}]
SIZES = {"ffn": 16, "layers": 1, "width": 8}
TOKENS = ["<unk>", "<pad>", "<s>", "</s>"]


def build_marian(ffn, layers, width):
    options = {"type": "transformer", "transformer-ffn-activation": "relu", "transformer-postprocess": "dan"}
    options |= {"dim-emb": width, "enc-depth": layers, "dec-depth": layers, "transformer-heads": 2}
    options |= {"transformer-dim-ffn": ffn}
    weights = {"Wemb": np.zeros((4, 8), np.float32)}
    marian_npz.model_from_marian_npz(marian_npz.MarianFiles(options, weights, TOKENS, None, None))


def build_fairseq(ffn, layers, width):
    sides = ("encoder", "decoder")
    options = {f"{side}_{name}": value for side in sides for name, value in (
        ("embed_dim", width), ("layers", layers), ("attention_heads", 2), ("ffn_embed_dim", ffn)
    )}  # fmt: skip
    weights = {"encoder.embed_tokens.weight": torch.zeros(4, 8)}
    fairseq.model_from_fairseq(fairseq.FairseqCheckpoint(options, weights, ("en", "de"), TOKENS, TOKENS, []))


def build_joeynmt(ffn, layers, width):
    side = {"type": "transformer", "hidden_size": width, "ff_size": ffn, "num_heads": 2, "num_layers": layers}
    side |= {"layer_norm": "pre", "embeddings": {"scale": True}}
    config = {"model": {"encoder": side, "decoder": side}, "data": {}}
    weights = {"src_embed.lut.weight": torch.zeros(4, 8)}
    joeynmt.model_from_joeynmt(joeynmt.JoeyNMTModel(config, weights, TOKENS, TOKENS, None, None))


def build_opennmt(ffn, layers, width):
    fields = {"vocab_size": 4, "decoder_vocab_size": 4, "d_model": width}
    for side in ("encoder", "decoder"):
        fields |= {f"{side}_layers": layers, f"{side}_ffn_dim": ffn, f"{side}_attention_heads": 2}
    weights = {"model.encoder.embed_tokens.weight": torch.zeros(4, 8)}
    opennmt.model_from_opennmt(opennmt.OpenNMTModel(fields, weights, opennmt.OPENNMT_PY, TOKENS, TOKENS, {}, ()))


@pytest.mark.parametrize("huge", HUGE, ids=lambda huge: next(iter(huge)))
@pytest.mark.parametrize("build", [build_marian, build_fairseq, build_joeynmt, build_opennmt])
def test_build_model_refuses_more_than_the_weights_fill(build, huge):
    with pytest.raises(ValueError, match="The weights must fill the model that the options declare"):
        build(**SIZES | huge)


def test_build_model_refuses_a_huge_table_of_positions():
    config = VanillaTransformerConfig(
        **{"vocab_size": 4, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16},
        **{"decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
        **{"position_embedding_type": "learned", "max_position_embeddings": 10**9},
    )
    weights = {"encoder": torch.zeros(1000), "decoder": torch.zeros(1000)}
    with pytest.raises(ValueError, match="must declare at most 65,536 positions, got 1,000,000,000"):
        build_model(config, weights)


def test_model_from_opennmt_names_missing_weights():
    fields = {"vocab_size": 4, "decoder_vocab_size": 4, "d_model": 8}
    for side in ("encoder", "decoder"):
        fields |= {f"{side}_layers": 1, f"{side}_ffn_dim": 16, f"{side}_attention_heads": 2}
    weights = {"first": torch.zeros(1000), "second": torch.zeros(1000)}
    with pytest.raises(ValueError, match="there are no weights for"):
        opennmt.model_from_opennmt(opennmt.OpenNMTModel(fields, weights, opennmt.OPENNMT_PY, TOKENS, TOKENS, {}, ()))
