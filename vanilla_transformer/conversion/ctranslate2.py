"""
CTranslate2, a fast runtime for CPUs and GPUs (`pip install 'vanilla-transformer[ctranslate2]'`).

Importing this module tells CTranslate2's own converter about this package's models, so that
`ct2-transformers-converter --trust_remote_code` and `TransformersConverter` take them as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from ctranslate2.converters.transformers import (
    _SUPPORTED_ACTIVATIONS,
    BartLoader,
    TransformersConverter,
    register_loader,
)
from ctranslate2.specs import TransformerSpec
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.file_utils import atomic_folder
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    sinusoidal_positions,
)
from vanilla_transformer.pipeline_vanilla_transformer import CONVERTED_CONFIG

from .comparison import BATCH_SIZE, MAX_NEW_TOKENS, Comparison, Translator, compare_translators, greedy
from .destination import SOURCES_WITHOUT_EOS, check_destination, refuse
from .loading import load_model

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int16")
# CTranslate2 has a table of positions, which ends; a sinusoid does not.
_POSITIONS = 4096
# What the pipeline needs beside CTranslate2's own files. Its `config.json` is of another kind than the library's.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


@register_loader("VanillaTransformerConfig")
class VanillaTransformerLoader(BartLoader):
    """Maps a model of this package to CTranslate2's; names of parameters are BART's, which it has a loader of."""

    architecture_name = "AutoModelForSeq2SeqLM"

    def get_model_spec(self, model: PreTrainedModel) -> TransformerSpec:
        """
        Raises:
            ValueError: CTranslate2 has not what the model needs; the text lists it.
        """
        config = model.config
        refuse(
            "CTranslate2",
            {
                f"it activates with {config.activation_function!r}": config.activation_function
                not in _SUPPORTED_ACTIVATIONS,
                "encoder and decoder have different numbers of heads": config.encoder_attention_heads
                != config.decoder_attention_heads,
                SOURCES_WITHOUT_EOS: not config.source_eos,
            },
        )
        spec = TransformerSpec.from_config(
            (config.encoder_layers, config.decoder_layers),
            config.encoder_attention_heads,
            pre_norm=config.normalize_before,
            activation=_SUPPORTED_ACTIVATIONS[config.activation_function],
        )
        self.set_encoder(spec.encoder, model.model.encoder)
        self.set_decoder(spec.decoder, model.model.decoder)
        self.set_linear(spec.decoder.projection, model.lm_head)
        return spec

    def set_common_layers(self, spec: Any, module: PreTrainedModel) -> None:
        """Embeddings, positions and the last normalisation of pre-norm."""
        spec.scale_embeddings = module.embed_tokens.embed_scale
        spec.position_encodings.encodings = _positions(module)
        shared = isinstance(spec.embeddings, list)
        self.set_embeddings(spec.embeddings[0] if shared else spec.embeddings, module.embed_tokens)
        if module.layer_norm is not None:
            self.set_layer_norm(spec.layer_norm, module.layer_norm)

    def set_config(self, config: Any, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Special tokens, and ε."""
        config.bos_token = tokenizer.bos_token
        config.eos_token = tokenizer.eos_token
        config.unk_token = tokenizer.unk_token or tokenizer.pad_token  # bytes leave nothing unknown
        config.decoder_start_token = tokenizer.convert_ids_to_tokens(model.config.decoder_start_token_id)
        config.layer_norm_epsilon = model.config.layer_norm_eps

    def get_vocabulary(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
        """A name for each row of the embedding; rows that no token has get one of their own."""
        names = {index: token for token, index in tokenizer.get_vocab().items()}
        return [names.get(index, f"<unused{index}>") for index in range(model.config.vocab_size)]


def _positions(module: PreTrainedModel) -> torch.Tensor:
    config = module.config
    if config.position_embedding_type == "learned":
        return module.embed_positions.weight
    return sinusoidal_positions(torch.arange(_POSITIONS), config.d_model, config.sinusoid_layout)


def to_ctranslate2(
    folder: str | Path, output_dir: str | Path, sentences: Sequence[str], quantization: str = "float32"
) -> Comparison:
    """
    Writes a model folder of this package for CTranslate2, with the tokenizer and the decoding that
    `TranslationPipeline` needs beside it.

    Args:
        quantization: How weights are stored, one of `QUANTIZATIONS`.

    Raises:
        ValueError: CTranslate2 has not what the model needs, or there is no such quantization.
        OSError: there is no such model, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    if quantization not in QUANTIZATIONS:
        raise ValueError(f"`quantization` must be one of {', '.join(QUANTIZATIONS)}, got {quantization!r}.")
    model = load_model(VanillaTransformerForConditionalGeneration, folder)
    if not model.config.share_encoder_decoder_embeddings:
        raise ValueError(
            f"{folder} has two vocabularies, but one tokenizer to name their entries for CTranslate2 by. Models of "
            "one vocabulary can be converted."
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with atomic_folder(Path(output_dir)) as aside:
        converter = TransformersConverter(str(folder), copy_files=list(_TOKENIZER_FILES))
        converter.convert(str(aside), quantization=None if quantization == "float32" else quantization, force=True)
        model.config.to_json_file(aside / CONVERTED_CONFIG)
        translator = ctranslate2.Translator(str(aside))
        return compare_translators(greedy(model, tokenizer), greedy_ctranslate2(translator, tokenizer), sentences)


def greedy_ctranslate2(translator: ctranslate2.Translator, tokenizer: PreTrainedTokenizerBase) -> Translator:
    """A function from sentences to the tokens that CTranslate2 generates by greedy search."""

    def translate(sentences: Sequence[str]) -> list[list[int]]:
        sources = [tokenizer.convert_ids_to_tokens(ids) for ids in tokenizer(list(sentences))["input_ids"]]
        results = translator.translate_batch(
            sources, beam_size=1, max_decoding_length=MAX_NEW_TOKENS, max_batch_size=BATCH_SIZE, disable_unk=True
        )
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return translate
