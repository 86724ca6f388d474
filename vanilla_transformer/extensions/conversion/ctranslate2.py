"""Convert to CTranslate2, a fast runtime for CPUs and GPUs
(`pip install 'vanilla-transformer[ctranslate2]'`).

Importing this module registers this package's models with CTranslate2's own converters,
`TransformersConverter` and `ct2-transformers-converter --trust_remote_code`.
"""

from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import torch
from ctranslate2.converters.transformers import (
    _SUPPORTED_ACTIVATIONS,
    BartLoader,
    TransformersConverter,
    register_loader,
)
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.model_spec import ModelConfig
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    sinusoidal_positions,
)

from .common import NO_TOKENIZER_JSON, OTHER_SIZES, check_supported, target_reasons
from .comparison import BATCH_SIZE, MAX_NEW_TOKENS, Translator
from .shortlist import count_shortlist, write_vocabulary_map

# CTranslate2 stores positional encodings in a table, so sinusoids need a last position.
_NUM_POSITIONS = 4096
# Files by which a program turns text into tokens and back, and knows how the model was searched
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


@register_loader("VanillaTransformerConfig")
class VanillaTransformerLoader(BartLoader):
    """Map a model of this package to a CTranslate2 spec. Parameter names are the same as BART's."""

    architecture_name = "AutoModelForSeq2SeqLM"

    def get_model_spec(self, model: PreTrainedModel) -> TransformerSpec:
        """Build the spec of the encoder and the decoder."""
        config = model.config
        activation = config.activation_function
        has_other_heads = config.encoder_attention_heads != config.decoder_attention_heads
        reasons = {
            f"its activation function is {activation!r}": activation not in _SUPPORTED_ACTIVATIONS,
            "encoder and decoder have different numbers of heads": has_other_heads,
            "it has no positions": config.position_embedding_type == "none",
            **target_reasons(config),
        }
        check_supported("CTranslate2", reasons)
        spec = TransformerSpec.from_config(
            (config.encoder_layers, config.decoder_layers),
            config.encoder_attention_heads,
            pre_norm=config.normalize_before,
            activation=_SUPPORTED_ACTIVATIONS[config.activation_function],
        )
        self.set_encoder(spec.encoder, model.model.encoder)
        self.set_decoder(spec.decoder, model.model.decoder)
        self.set_linear(spec.decoder.projection, model.lm_head)
        rows = _start_first(config)
        encoder, decoder = spec.encoder, spec.decoder
        for layer in (*encoder.embeddings, decoder.embeddings, decoder.projection):
            layer.weight = layer.weight[rows]
        if model.lm_head.bias is not None:
            spec.decoder.projection.bias = model.lm_head.bias[rows]
        return spec

    def set_common_layers(
        self, spec: TransformerEncoderSpec | TransformerDecoderSpec, module: PreTrainedModel
    ) -> None:
        """Set embeddings, positional encodings and the final layer norm of pre-norm models."""
        spec.scale_embeddings = module.embed_tokens.embed_scale
        config = module.config
        if config.position_embedding_type == "learned":
            spec.position_encodings.encodings = module.embed_positions.weight
        else:
            positions = torch.arange(_NUM_POSITIONS)
            sinusoids = sinusoidal_positions(positions, config.d_model, config.sinusoid_layout)
            spec.position_encodings.encodings = sinusoids
        shared = isinstance(spec.embeddings, list)
        embeddings = spec.embeddings[0] if shared else spec.embeddings
        self.set_embeddings(embeddings, module.embed_tokens)
        if module.layer_norm is not None:
            self.set_layer_norm(spec.layer_norm, module.layer_norm)

    def set_config(
        self, config: ModelConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        """Set the special tokens and the layer-norm epsilon."""
        # It must be text, and tokenizers of SentencePiece have none.
        config.bos_token = tokenizer.bos_token or tokenizer.eos_token
        config.eos_token = tokenizer.eos_token
        # Byte-level tokenizers have no unknown token.
        config.unk_token = tokenizer.unk_token or tokenizer.pad_token
        start_id = model.config.decoder_start_token_id
        config.decoder_start_token = token_names(tokenizer)[start_id]
        config.layer_norm_epsilon = model.config.layer_norm_eps

    def get_vocabulary(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> list[str]:
        """Return a unique name for each row of the embedding, also for rows without a token."""
        names = token_names(tokenizer)
        ids = _start_first(model.config)
        return [names.get(index, f"<unused{index}>") for index in ids]


def _start_first(config: PreTrainedConfig) -> list[int]:
    """Return the ids in the order of CTranslate2's vocabulary: with a shortlist it needs the start
    token in front.
    """
    start = config.decoder_start_token_id
    return [start, *(index for index in range(config.vocab_size) if index != start)]


def token_names(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Return the names of tokens in the vocabulary; `convert_ids_to_tokens` may return others for
    added ones.
    """
    return {index: token for token, index in tokenizer.get_vocab().items()}


def write_ctranslate2(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    quantization: str,
    shortlist_text: Sequence[SentencePair] = (),
) -> list[tuple[str, Translator]]:
    """Write a model for CTranslate2, with its tokenizer and generation configuration.

    Args:
        quantization: The data type of the weights.
        shortlist_text: Pairs whose shortlist is written, too. The runtime uses it; both ways are
            returned.
    """
    check_supported(
        "CTranslate2",
        {
            OTHER_SIZES: model.config.decoder_vocab_size != model.config.vocab_size,
            NO_TOKENIZER_JSON: not hasattr(tokenizer, "backend_tokenizer"),
        },
    )
    converter = TransformersConverter(model.name_or_path, copy_files=list(_TOKENIZER_FILES))
    dtype = None if quantization == "float32" else quantization
    converter.convert(str(folder), quantization=dtype, force=True)
    if shortlist_text:
        shortlist = count_shortlist(tokenizer, shortlist_text)
        write_vocabulary_map(shortlist, token_names(tokenizer), folder / "vmap.txt")
    translator = ctranslate2.Translator(str(folder))
    forced = model.generation_config.forced_bos_token_id
    ways = {quantization: False}
    if shortlist_text:
        ways[f"{quantization} with the shortlist"] = True
    return [
        (name, ctranslate2_greedy_translator(translator, tokenizer, forced, use_vmap))
        for name, use_vmap in ways.items()
    ]


def ctranslate2_greedy_translator(
    translator: ctranslate2.Translator,
    tokenizer: PreTrainedTokenizerBase,
    forced_bos_token_id: int | None = None,
    use_vmap: bool = False,
) -> Translator:
    """Return a function from sentences to the token ids that CTranslate2 generates by greedy
    search.
    """
    names = token_names(tokenizer)
    prefix = [] if forced_bos_token_id is None else [names[forced_bos_token_id]]

    def translate(sentences: Sequence[str]) -> list[list[int]]:
        sources = []
        for ids in tokenizer(list(sentences))["input_ids"]:
            sources.append([names[token] for token in ids])
        results = translator.translate_batch(
            sources,
            [prefix] * len(sources),
            beam_size=1,
            max_decoding_length=MAX_NEW_TOKENS,
            max_batch_size=BATCH_SIZE,
            disable_unk=True,
            use_vmap=use_vmap,
        )
        return [tokenizer.convert_tokens_to_ids(result.hypotheses[0]) for result in results]

    return translate
