"""Variants of the tiny model: one of each class that is saved with the package, one with a calibrated
confidence, and one with the tokens of inline terms.
"""

from dataclasses import asdict

import torch
import transformers

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.data.tokenizer_training import add_augmentation_tokens
from vanilla_transformer.decoding.confidence import Calibration
from vanilla_transformer.text.translation_warnings import WarningLimits

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


CALIBRATION = Calibration(
    {"mean_log_probability": 0.2, "log_length_ratio": 0.01, "aligned_share": 0.1},
    0.9,
    [-1.0, 0.5, 1.0],
    [0.1, 0.3, 1.0],
)
LIMITS = WarningLimits(0.9, 1.1, ["LATIN"])


def calibrated_model():
    model = tiny_model()
    model.config.alignment_heads = [[0, 1]]
    model.config.confidence, model.config.warning_limits = asdict(CALIBRATION), asdict(LIMITS)
    return model


def model_with_inline_terms(**fields):
    """Return a random model and its tokenizer."""
    tokenizer = tiny_tokenizer()
    add_augmentation_tokens(tokenizer, ["inline_terms"])
    return tiny_model(vocab_size=len(tokenizer), **fields), tokenizer
