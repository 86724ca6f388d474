"""
The original Transformer ("Attention Is All You Need", 2017) as a model of transformers.

Importing this package registers its models with the Auto classes, restores `pipeline("translation")`, and gives
`generate()` its engine. Long models, the engine and the translation pipeline are imported at first use.
"""

from typing import TYPE_CHECKING, Any

from .import_utils import LazyClass, collection_paused, lazy_names

with collection_paused():
    from . import decoding  # imports torch and transformers

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
from .decoding import VanillaTransformerInt8Config
from .generation_vanilla_transformer import PaperGenerationMixin, paper_generation_config
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
from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

if TYPE_CHECKING:
    from .decoding import Engine, TranslationPipeline
    from .modeling_vanilla_transformer_long import (
        VanillaTransformerLongDecoderModel,
        VanillaTransformerLongForCausalLM,
        VanillaTransformerLongForConditionalGeneration,
        VanillaTransformerLongModel,
        create_cache,
    )
else:
    _LAZY = {
        "Engine": ".decoding",
        "TranslationPipeline": ".decoding",
        "VanillaTransformerLongDecoderModel": ".modeling_vanilla_transformer_long",
        "VanillaTransformerLongForCausalLM": ".modeling_vanilla_transformer_long",
        "VanillaTransformerLongForConditionalGeneration": ".modeling_vanilla_transformer_long",
        "VanillaTransformerLongModel": ".modeling_vanilla_transformer_long",
        "create_cache": ".modeling_vanilla_transformer_long",
    }
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)

__version__ = "0.2.0"


def _long_model(name: str, config: type) -> LazyClass:
    """Return the stand-in for a long model, since the Auto classes register classes."""
    module = f"{__name__}.modeling_vanilla_transformer_long"
    return LazyClass(name, (), {"__module__": module, "config_class": config})


_MODELS: dict[Any, dict[Any, Any]] = {
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
        AutoModel: _long_model("VanillaTransformerLongModel", VanillaTransformerLongConfig),
        AutoModelForSeq2SeqLM: _long_model(
            "VanillaTransformerLongForConditionalGeneration", VanillaTransformerLongConfig
        ),
    },
    VanillaTransformerLongDecoderConfig: {
        AutoModel: _long_model("VanillaTransformerLongDecoderModel", VanillaTransformerLongDecoderConfig),
        AutoModelForCausalLM: _long_model("VanillaTransformerLongForCausalLM", VanillaTransformerLongDecoderConfig),
    },
}
for _config, _models in _MODELS.items():
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoTokenizer.register(_config, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)
    for _auto_class, _model in _models.items():
        _auto_class.register(_config, _model, exist_ok=True)
decoding.register()

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
