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
    from .families_configuration_vanilla_transformer import (
        VanillaTransformerDecoderConfig,
        VanillaTransformerEncoderConfig,
    )
    from .families_vanilla_transformer import (
        VanillaTransformerDecoderModel,
        VanillaTransformerEncoderModel,
        VanillaTransformerForCausalLM,
        VanillaTransformerForMaskedLM,
        VanillaTransformerForSequenceClassification,
    )
    from .generation_vanilla_transformer import PaperGenerationMixin, WuLengthPenalty, paper_generation_config
    from .long_configuration_vanilla_transformer import (
        VanillaTransformerLongConfig,
        VanillaTransformerLongDecoderConfig,
    )
    from .long_vanilla_transformer import (
        VanillaTransformerLongDecoderModel,
        VanillaTransformerLongForCausalLM,
        VanillaTransformerLongForConditionalGeneration,
        VanillaTransformerLongModel,
        new_memory,
    )
    from .modeling_vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerModel,
        VanillaTransformerPreTrainedModel,
    )
    from .pipeline_vanilla_transformer import TranslationPipeline
    from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

__version__ = "0.1.0"

_NAMES = {
    "configuration": ["VanillaTransformerConfig"],
    "families_configuration": ["VanillaTransformerDecoderConfig", "VanillaTransformerEncoderConfig"],
    "families": [
        "VanillaTransformerDecoderModel",
        "VanillaTransformerEncoderModel",
        "VanillaTransformerForCausalLM",
        "VanillaTransformerForMaskedLM",
        "VanillaTransformerForSequenceClassification",
    ],
    "long_configuration": ["VanillaTransformerLongConfig", "VanillaTransformerLongDecoderConfig"],
    "long": [
        "VanillaTransformerLongDecoderModel",
        "VanillaTransformerLongForCausalLM",
        "VanillaTransformerLongForConditionalGeneration",
        "VanillaTransformerLongModel",
        "new_memory",
    ],
    "generation": ["PaperGenerationMixin", "WuLengthPenalty", "paper_generation_config"],
    "modeling": [
        "VanillaTransformerForConditionalGeneration",
        "VanillaTransformerModel",
        "VanillaTransformerPreTrainedModel",
    ],
    "pipeline": ["TranslationPipeline"],
    "tokenization": ["VanillaTransformerTokenizer"],
}
_MODULE_OF = {name: f".{kind}_vanilla_transformer" for kind, names in _NAMES.items() for name in names}

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
    "new_memory",
    "paper_generation_config",
]
