"""
The original Transformer ("Attention Is All You Need", 2017) as a model of transformers.

Importing this package registers its models with the Auto classes, restores `pipeline("translation")`, and gives
`generate()` its fast search.
"""

from .import_utils import collection_paused

with collection_paused():
    from . import inference  # imports torch and transformers

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
from .configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
from .configuration_vanilla_transformer_long import VanillaTransformerLongConfig, VanillaTransformerLongDecoderConfig
from .generation_vanilla_transformer import PaperGenerationMixin, paper_generation_config
from .inference import Engine, TranslationPipeline, VanillaTransformerInt8Config
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
from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

__version__ = "0.2.0"

for _config, _models in {
    VanillaTransformerConfig: {
        AutoModel: VanillaTransformerModel,
        AutoModelForSeq2SeqLM: VanillaTransformerForConditionalGeneration,
    },
    VanillaTransformerDecoderConfig: {
        AutoModel: VanillaTransformerDecoderModel,
        AutoModelForCausalLM: VanillaTransformerForCausalLM,
    },
    VanillaTransformerEncoderConfig: {
        AutoModel: VanillaTransformerEncoderModel,
        AutoModelForMaskedLM: VanillaTransformerForMaskedLM,
        AutoModelForSequenceClassification: VanillaTransformerForSequenceClassification,
    },
    VanillaTransformerLongConfig: {
        AutoModel: VanillaTransformerLongModel,
        AutoModelForSeq2SeqLM: VanillaTransformerLongForConditionalGeneration,
    },
    VanillaTransformerLongDecoderConfig: {
        AutoModel: VanillaTransformerLongDecoderModel,
        AutoModelForCausalLM: VanillaTransformerLongForCausalLM,
    },
}.items():
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoTokenizer.register(_config, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)
    for _auto_class, _model in _models.items():
        _auto_class.register(_config, _model, exist_ok=True)
inference.register()

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
    "VanillaTransformerInt8Config",
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
