"""
The original Transformer ("Attention Is All You Need", 2017) as a model of transformers.

Importing this package makes its models known to the Auto classes and brings back `pipeline("translation")`.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .generation_vanilla_transformer import PaperGenerationMixin, WuLengthPenalty, paper_generation_config
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)
from .pipeline_vanilla_transformer import TranslationPipeline, register_translation_pipeline
from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

__version__ = "0.1.0"

AutoConfig.register(VanillaTransformerConfig.model_type, VanillaTransformerConfig, exist_ok=True)
AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, VanillaTransformerForConditionalGeneration, exist_ok=True)
AutoTokenizer.register(VanillaTransformerConfig, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)
# Saved models bring their code along, so that they load where this package is not installed.
VanillaTransformerConfig.register_for_auto_class()
VanillaTransformerModel.register_for_auto_class("AutoModel")
VanillaTransformerForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
register_translation_pipeline()

__all__ = [
    "PaperGenerationMixin",
    "TranslationPipeline",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "VanillaTransformerTokenizer",
    "WuLengthPenalty",
    "paper_generation_config",
]
