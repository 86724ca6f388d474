"""Register the models with transformers: with its Auto classes and its tasks of pipelines."""

from multiprocessing import parent_process
from typing import Any

from vanilla_transformer.machine.imports import collection_paused, hide_import_messages
from vanilla_transformer.user_input.user_modules import import_user_module

if parent_process() is not None:  # a worker, whose parent has shown them unless it hides them
    hide_import_messages()

with collection_paused():
    from . import modeling_vanilla_transformer_long  # noqa: F401  # imports torch and transformers

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
from .configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
from .configuration_vanilla_transformer_long import (
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
)
from .decoding.transformers_internals import restore_tasks
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
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
)
from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

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
        AutoModel: VanillaTransformerLongModel,
        AutoModelForSeq2SeqLM: VanillaTransformerLongForConditionalGeneration,
    },
    VanillaTransformerLongDecoderConfig: {
        AutoModel: VanillaTransformerLongDecoderModel,
        AutoModelForCausalLM: VanillaTransformerLongForCausalLM,
    },
}
# Names of classes, by which Trainer, its model cards and the library's own tests decide. `register`
# does not add them.
_NAMES = {
    AutoModel: MODEL_MAPPING_NAMES,
    AutoModelForCausalLM: MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    AutoModelForMaskedLM: MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    AutoModelForSeq2SeqLM: MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    AutoModelForSequenceClassification: MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
}
for _config, _models in _MODELS.items():
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoTokenizer.register(_config, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)
    for _auto_class, _model in _models.items():
        _auto_class.register(_config, _model, exist_ok=True)
        _NAMES[_auto_class][_config.model_type] = _model.__name__
restore_tasks()
import_user_module()
