"""
The original Transformer ("Attention Is All You Need", 2017) as a model of transformers.

Importing this package registers its models with the Auto classes and restores
`pipeline("translation")`. The engine and the translation pipeline are imported at first use. The
program `vanilla-transformer` registers the models once its flags are right, so that `--help` and
mistakes do not wait for torch.
"""

from typing import TYPE_CHECKING

from vanilla_transformer.machine.imports import is_command_line, lazy_names

if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
    from .configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
    from .configuration_vanilla_transformer_long import (
        VanillaTransformerLongConfig,
        VanillaTransformerLongDecoderConfig,
    )
    from .decoding import Engine, TranslationPipeline
    from .generation_vanilla_transformer import PaperGenerationMixin, paper_generation_config
    from .modeling_vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerModel,
        VanillaTransformerPreTrainedModel,
    )
    from .modeling_vanilla_transformer_decoder import (
        VanillaTransformerDecoderModel,
        VanillaTransformerForCausalLM,
    )
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
    from .tokenization_vanilla_transformer import VanillaTransformerTokenizer
else:
    _NAMES = {
        ".configuration_vanilla_transformer": ["VanillaTransformerConfig"],
        ".configuration_vanilla_transformer_decoder": ["VanillaTransformerDecoderConfig"],
        ".configuration_vanilla_transformer_encoder": ["VanillaTransformerEncoderConfig"],
        ".configuration_vanilla_transformer_long": [
            "VanillaTransformerLongConfig",
            "VanillaTransformerLongDecoderConfig",
        ],
        ".decoding": ["Engine", "TranslationPipeline"],
        ".generation_vanilla_transformer": ["PaperGenerationMixin", "paper_generation_config"],
        ".modeling_vanilla_transformer": [
            "VanillaTransformerForConditionalGeneration",
            "VanillaTransformerModel",
            "VanillaTransformerPreTrainedModel",
        ],
        ".modeling_vanilla_transformer_decoder": [
            "VanillaTransformerDecoderModel",
            "VanillaTransformerForCausalLM",
        ],
        ".modeling_vanilla_transformer_encoder": [
            "VanillaTransformerEncoderModel",
            "VanillaTransformerForMaskedLM",
            "VanillaTransformerForSequenceClassification",
        ],
        ".modeling_vanilla_transformer_long": [
            "VanillaTransformerLongDecoderModel",
            "VanillaTransformerLongForCausalLM",
            "VanillaTransformerLongForConditionalGeneration",
            "VanillaTransformerLongModel",
            "create_cache",
        ],
        ".tokenization_vanilla_transformer": ["VanillaTransformerTokenizer"],
    }
    _MODULES = {name: module for module in _NAMES for name in _NAMES[module]}
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)

__version__ = "0.2.0"

if not is_command_line():
    from . import registration  # noqa: F401  # imports torch and transformers

__all__ = [
    "Engine",
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
    "create_cache",
    "paper_generation_config",
]
