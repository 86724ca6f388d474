"""The names that other toolkits give to our parameters.

Each table has expressions and replacements, which `rename` applies to our name in order.
"""

import re
from collections.abc import Callable

Names = dict[str, str | Callable[[re.Match[str]], str]]

JOEYNMT_NAMES: Names = {
    r"^model\.": "",
    r"^encoder\.embed_tokens": "src_embed.lut",
    r"^decoder\.embed_tokens": "trg_embed.lut",
    r"^lm_head": "decoder.output_layer",
    r"^(encoder.*)\.self_attn_layer_norm": r"\1.layer_norm",
    r"^(decoder.*)\.self_attn_layer_norm": r"\1.x_layer_norm",
    r"\.encoder_attn_layer_norm": ".dec_layer_norm",
    r"^(encoder.*)\.self_attn": r"\1.src_src_att",
    r"^(decoder.*)\.self_attn": r"\1.trg_trg_att",
    r"\.encoder_attn": ".src_trg_att",
    r"\.([qkv])_proj": r".\1_layer",
    r"\.out_proj": ".output_layer",
    r"\.fc1": ".feed_forward.pwff_layer.0",
    r"\.fc2": ".feed_forward.pwff_layer.3",
    r"\.final_layer_norm": ".feed_forward.layer_norm",
}
_OPENNMT_PROJECTIONS = {
    r"\.encoder_attn\.": ".context_attn.",
    r"\.q_proj": ".linear_query",
    r"\.k_proj": ".linear_keys",
    r"\.v_proj": ".linear_values",
    r"\.out_proj": ".final_linear",
}
OPENNMT_PY_NAMES: Names = {
    r"^model\.": "",
    r"^(encoder|decoder)\.embed_tokens": r"\1.embeddings.make_embedding.emb_luts.0",
    r"^lm_head": "generator",
    r"^encoder\.layers": "encoder.transformer",
    r"^decoder\.layers": "decoder.transformer_layers",
    r"^(encoder.*)\.self_attn_layer_norm": r"\1.layer_norm",
    r"^(decoder.*)\.self_attn_layer_norm": r"\1.layer_norm_1",
    r"\.encoder_attn_layer_norm": ".layer_norm_2",
    r"\.fc([12])": r".feed_forward.w_\1",
    r"\.final_layer_norm": ".feed_forward.layer_norm",
    **_OPENNMT_PROJECTIONS,
}
EOLE_NAMES: Names = {
    r"^model\.": "",
    r"^encoder\.embed_tokens": "src_emb.embeddings",
    r"^decoder\.embed_tokens": "tgt_emb.embeddings",
    r"^lm_head": "generator",
    r"\.layers": ".transformer_layers",
    r"\.self_attn_layer_norm": ".input_layernorm",
    r"\.encoder_attn_layer_norm": ".precontext_layernorm",
    r"\.fc1": ".mlp.gate_up_proj",
    r"\.fc2": ".mlp.down_proj",
    r"\.final_layer_norm": ".post_attention_layernorm",
    **_OPENNMT_PROJECTIONS,
}
# `encoder_l1_self_Wq` is the query projection of the first layer.
MARIAN_NAMES: Names = {
    r"^model\.": "",
    r"\.layers\.(\d+)\.": lambda match: f"_l{int(match[1]) + 1}_",
    r"\.embed_tokens\.weight": "_Wemb",
    r"lm_head\.weight": "decoder_Wemb",
    r"self_attn": "self",
    r"encoder_attn": "context",
    r"(self|context)_layer_norm": r"\1_Wo_ln",
    r"final_layer_norm": "ffn_ffn_ln",
    r"coder\.layer_norm": "coder_top_ln",
    r"ln\.weight": "ln_scale",
    r"ln\.bias": "ln_bias",
    r"fc(\d)\.weight": r"ffn_W\1",
    r"fc(\d)\.bias": r"ffn_b\1",
    r"\.([qkvo])\w*\.weight": r"_W\1",
    r"\.([qkvo])\w*\.bias": r"_b\1",
}
