"""Random models of fixed sizes that never generate EOS, so that every system decodes the same number of tokens."""

import copy
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "vocab_size": 100,
        "d_model": 16,
        "of each side": {"layers": 1, "attention_heads": 2, "ffn_dim": 32},
    },
    "small": {
        "vocab_size": 8000,
        "d_model": 256,
        "of each side": {"layers": 3, "attention_heads": 4, "ffn_dim": 1024},
    },
    "base": {
        "vocab_size": 32000,
        "d_model": 512,
        "of each side": {"layers": 6, "attention_heads": 8, "ffn_dim": 2048},
    },
}


def random_model(size: str, **changes: Any) -> VanillaTransformerForConditionalGeneration:
    """Build a random model that never generates EOS and that MarianMTModel can represent (its ε and bias)."""
    torch.manual_seed(0)
    sides = ("encoder", "decoder")
    fields = {f"{side}_{name}": value for side in sides for name, value in SIZES[size]["of each side"].items()}
    fields |= {name: SIZES[size][name] for name in ("vocab_size", "d_model")} | changes
    config = VanillaTransformerConfig(**fields, lm_head_bias=True, layer_norm_eps=1e-5)
    model = VanillaTransformerForConditionalGeneration(config).eval()
    ends = torch.tensor([config.eos_token_id, config.pad_token_id])
    with torch.no_grad():
        model.lm_head.bias.index_fill_(0, ends, -1e4)
    return model


def save_for_ctranslate2(model: VanillaTransformerForConditionalGeneration, path: str, kind: str) -> None:
    """Save the weights for CTranslate2 as `float32`, `float16` or `int8`, with ids as the names of tokens."""
    from vanilla_transformer.conversion.ctranslate2 import VanillaTransformerLoader

    spec = VanillaTransformerLoader().get_model_spec(copy.deepcopy(model))  # it rounds weights in place
    names = [str(index) for index in range(model.config.vocab_size)]
    for token, index in (("bos", 1), ("eos", 2), ("decoder_start", 1), ("unk", 0)):
        setattr(spec.config, f"{token}_token", str(index))
    spec.config.layer_norm_epsilon = model.config.layer_norm_eps
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    Path(path).mkdir()
    spec.save(path)
