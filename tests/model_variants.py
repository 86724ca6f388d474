"""One tiny model of each class that is saved with the package: decoders, encoders and long
attention.
"""

import torch
import transformers

SIZES = {"vocab_size": 300, "d_model": 16, "init_std": 0.3, "normalize_before": True}
SIZES |= {f"{side}_layers": 1 for side in ("encoder", "decoder")}
SIZES |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
SIZES |= {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}
LAYER_TYPES = ("full_attention", "linear_attention", "lsh_attention", "transfo_xl_attention")
# Folder name, which starts with the Auto class: type of configuration, and fields.
MODEL_VARIANTS = {
    "AutoModelForCausalLM-alone": ("vanilla_transformer_decoder", {}),
    "AutoModelForMaskedLM-alone": ("vanilla_transformer_encoder", {}),
    "AutoModelForSequenceClassification-alone": ("vanilla_transformer_encoder", {}),
}
for layer_type in LAYER_TYPES:
    fields = {
        "layer_types": layer_type,
        "reversible": layer_type in ("full_attention", "lsh_attention"),
    }
    MODEL_VARIANTS[f"AutoModelForCausalLM-{layer_type}"] = (
        "vanilla_transformer_long_decoder",
        fields,
    )
    MODEL_VARIANTS[f"AutoModelForSeq2SeqLM-{layer_type}"] = ("vanilla_transformer_long", fields)


def build_variant(name):
    """Build a random model of `MODEL_VARIANTS` in evaluation mode."""
    kind, fields = MODEL_VARIANTS[name]
    config = transformers.AutoConfig.for_model(kind, **SIZES | fields)
    torch.manual_seed(0)
    return getattr(transformers, name.split("-")[0]).from_config(config).eval()
