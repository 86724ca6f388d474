"""JoeyNMT's names of parameters, as its checkpoints have them."""

import pytest

from vanilla_transformer.extensions.conversion.joeynmt import NAMES

OURS = {
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


@pytest.mark.parametrize(("ours", "theirs"), OURS.items())
def test_joeynmt_name_is_the_one_of_its_checkpoints(ours, theirs):
    assert NAMES.translate(ours) == theirs
