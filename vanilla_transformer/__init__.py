"""
The original Transformer ("Attention Is All You Need", 2017) as a model of transformers.

Importing this package makes its models known to the Auto classes and brings back `pipeline("translation")`. Classes
are imported when they are asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .registration import register

if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
    from .configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
    from .configuration_vanilla_transformer_long import (
        VanillaTransformerLongConfig,
        VanillaTransformerLongDecoderConfig,
    )
    from .generation_vanilla_transformer import PaperGenerationMixin, WuLengthPenalty, paper_generation_config
    from .modeling_vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerModel,
        VanillaTransformerPreTrainedModel,
    )
    from .modeling_vanilla_transformer_decoder import VanillaTransformerDecoderModel, VanillaTransformerForCausalLM
    from .modeling_vanilla_transformer_encoder import (
        VanillaTransformerEncoderModel,
        VanillaTransformerForMaskedLM,
        VanillaTransformerForSequenceClassification,
    )
    from .modeling_vanilla_transformer_long import (
        VanillaTransformerLongDecoderModel,
        VanillaTransformerLongForCausalLM,
        VanillaTransformerLongForConditionalGeneration,
        VanillaTransformerLongModel,
        create_cache,
    )
    from .pipeline_vanilla_transformer import TranslationPipeline
    from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

__version__ = "0.1.0"

_NAMES = {
    "configuration_vanilla_transformer": ["VanillaTransformerConfig"],
    "configuration_vanilla_transformer_decoder": ["VanillaTransformerDecoderConfig"],
    "configuration_vanilla_transformer_encoder": ["VanillaTransformerEncoderConfig"],
    "modeling_vanilla_transformer_decoder": ["VanillaTransformerDecoderModel", "VanillaTransformerForCausalLM"],
    "modeling_vanilla_transformer_encoder": [
        "VanillaTransformerEncoderModel",
        "VanillaTransformerForMaskedLM",
        "VanillaTransformerForSequenceClassification",
    ],
    "configuration_vanilla_transformer_long": ["VanillaTransformerLongConfig", "VanillaTransformerLongDecoderConfig"],
    "modeling_vanilla_transformer_long": [
        "VanillaTransformerLongDecoderModel",
        "VanillaTransformerLongForCausalLM",
        "VanillaTransformerLongForConditionalGeneration",
        "VanillaTransformerLongModel",
        "create_cache",
    ],
    "generation_vanilla_transformer": ["PaperGenerationMixin", "WuLengthPenalty", "paper_generation_config"],
    "modeling_vanilla_transformer": [
        "VanillaTransformerForConditionalGeneration",
        "VanillaTransformerModel",
        "VanillaTransformerPreTrainedModel",
    ],
    "pipeline_vanilla_transformer": ["TranslationPipeline"],
    "tokenization_vanilla_transformer": ["VanillaTransformerTokenizer"],
}
_MODULE_OF = {name: f".{module}" for module, names in _NAMES.items() for name in names}

register()


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF])


__all__ = [
    "PaperGenerationMixin",
    "TranslationPipeline",
    "VanillaTransformerConfig",
    "VanillaTransformerDecoderConfig",
    "VanillaTransformerDecoderModel",
    "VanillaTransformerEncoderConfig",
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForCausalLM",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerForMaskedLM",
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerLongConfig",
    "VanillaTransformerLongDecoderConfig",
    "VanillaTransformerLongDecoderModel",
    "VanillaTransformerLongForCausalLM",
    "VanillaTransformerLongForConditionalGeneration",
    "VanillaTransformerLongModel",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "VanillaTransformerTokenizer",
    "WuLengthPenalty",
    "create_cache",
    "paper_generation_config",
]
