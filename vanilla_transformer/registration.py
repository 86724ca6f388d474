"""Register the models with transformers: with its Auto classes, its tasks of pipelines, and `generate()`."""

from multiprocessing import parent_process
from typing import Any

from .import_utils import LazyClass, collection_paused, hide_own_matters_of_packages

if parent_process() is not None:  # a worker, whose parent has shown them unless it hides them
    hide_own_matters_of_packages()

with collection_paused():
    from . import decoding, modeling_vanilla_transformer  # noqa: F401  # imports torch and transformers

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
from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from .modeling_vanilla_transformer_decoder import VanillaTransformerDecoderModel, VanillaTransformerForCausalLM
from .modeling_vanilla_transformer_encoder import (
    VanillaTransformerEncoderModel,
    VanillaTransformerForMaskedLM,
    VanillaTransformerForSequenceClassification,
)
from .tokenization_vanilla_transformer import VanillaTransformerTokenizer


def _long_model(name: str, config: type) -> LazyClass:
    """Return the stand-in for a long model, since the Auto classes register classes."""
    module = f"{__package__}.modeling_vanilla_transformer_long"
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
