"""
ONNX, for ONNX Runtime and whatever else reads it (`pip install 'vanilla-transformer[onnx]'`).

Three graphs, with the names of inputs and outputs that Optimum gives its own: the encoder; the decoder for the first
step, which also gives the keys and values of the source; and the decoder for each further step, which takes them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn
from torch.export import Dim
from transformers import (
    AutoTokenizer,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import DynamicLayer

from vanilla_transformer.file_utils import atomic_folder
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .comparison import MAX_NEW_TOKENS, Comparison, Translator, batches, compare_translators, greedy
from .destination import SOURCES_WITHOUT_EOS, check_destination, refuse
from .loading import load_model

ENCODER, DECODER, DECODER_WITH_PAST = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"


def to_onnx(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison:
    """
    Writes a model folder of this package as three ONNX graphs in float32, with tokenizer and configurations beside.

    Raises:
        ValueError: the graphs cannot represent the model.
        OSError: there is no such model, or `output_dir` holds something already.
    """
    check_destination(output_dir)
    model = load_model(VanillaTransformerForConditionalGeneration, folder, attn_implementation="eager")
    refuse("A graph of ONNX", {SOURCES_WITHOUT_EOS: not model.config.source_eos})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with atomic_folder(Path(output_dir)) as aside:
        _export(model, aside)
        model.config.save_pretrained(aside)
        model.generation_config.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        return compare_translators(greedy(model, tokenizer), greedy_onnx(aside, tokenizer), sentences)


class _FirstStep(nn.Module):
    """The decoder without a cache; gives logits, and each layer's keys and values of the target and of the source."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration):
        super().__init__()
        self.decoder, self.lm_head = model.model.decoder, model.lm_head

    def forward(
        self, input_ids: torch.Tensor, encoder_hidden_states: torch.Tensor, encoder_attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        outputs = self.decoder(
            input_ids=input_ids,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        return logits, *_flat(cache.self_attention_cache), *_flat(cache.cross_attention_cache)


class _NextStep(nn.Module):
    """The decoder with a cache; gives logits and the keys and values of the target, one token longer."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration):
        super().__init__()
        self.decoder, self.lm_head = model.model.decoder, model.lm_head

    def forward(
        self, input_ids: torch.Tensor, encoder_attention_mask: torch.Tensor, past: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        half = len(past) // 2
        cache = EncoderDecoderCache(_cache(past[:half]), _cache(past[half:]))
        outputs = self.decoder(
            input_ids=input_ids,
            # Keys and values of the source are in the cache; of the states themselves only the length counts.
            encoder_hidden_states=past[half].new_zeros(1, 1, 1).expand(*encoder_attention_mask.shape, 1),
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        return self.lm_head(outputs.last_hidden_state), *_flat(cache.self_attention_cache)


def _flat(cache: DynamicCache) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _cache(tensors: Sequence[torch.Tensor]) -> DynamicCache:
    """Keys and values as they are. Adding them to an empty cache would leave a concatenation in the graph."""
    cache = DynamicCache()
    for keys, values in zip(tensors[::2], tensors[1::2], strict=True):
        layer = DynamicLayer()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache


def _names(prefix: str, layers: int, side: str) -> list[str]:
    return [f"{prefix}.{index}.{side}.{kind}" for index in range(layers) for kind in ("key", "value")]


def _export(model: VanillaTransformerForConditionalGeneration, folder: Path) -> None:
    config = model.config
    layers, width = config.decoder_layers, config.d_model // config.decoder_attention_heads
    batch, source, target = Dim("batch_size", min=1), Dim("source_length", min=1), Dim("past_length", min=1)
    # Sizes unlike each other, so that none is taken for another.
    ids, mask, first = (torch.ones(2, length, dtype=torch.long) for length in (5, 5, 1))
    states = torch.zeros(2, 5, config.d_model)
    heads = config.decoder_attention_heads
    # A tensor each: one that stood in several places would become one input for all of them.
    past = [torch.zeros(2, heads, length, width) for length in (3, 5) for _ in range(2 * layers)]
    _export_graph(
        _Encoder(model),
        {"input_ids": ids, "attention_mask": mask},
        {"input_ids": {0: batch, 1: source}, "attention_mask": {0: batch, 1: source}},
        ["last_hidden_state"],
        folder / ENCODER,
    )
    _export_graph(
        _FirstStep(model),
        {"input_ids": first, "encoder_hidden_states": states, "encoder_attention_mask": mask},
        {
            "input_ids": {0: batch},
            "encoder_hidden_states": {0: batch, 1: source},
            "encoder_attention_mask": {0: batch, 1: source},
        },
        ["logits", *_names("present", layers, "decoder"), *_names("present", layers, "encoder")],
        folder / DECODER,
    )
    own, cross = {0: batch, 2: target}, {0: batch, 2: source}
    _export_graph(
        _NextStep(model),
        {"input_ids": first, "encoder_attention_mask": mask, "past": past},
        {
            "input_ids": {0: batch},
            "encoder_attention_mask": {0: batch, 1: source},
            "past": [own] * (2 * layers) + [cross] * (2 * layers),
        },
        ["logits", *_names("present", layers, "decoder")],
        folder / DECODER_WITH_PAST,
        ["input_ids", "encoder_attention_mask"]
        + [*_names("past_key_values", layers, "decoder"), *_names("past_key_values", layers, "encoder")],
    )


class _Encoder(nn.Module):
    """The encoder with one tensor as its output."""

    def __init__(self, model: VanillaTransformerForConditionalGeneration):
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def _export_graph(
    module: nn.Module,
    inputs: dict[str, Any],
    shapes: dict[str, Any],
    outputs: list[str],
    path: Path,
    names: list[str] | None = None,
) -> None:
    torch.onnx.export(
        module,
        kwargs=inputs,
        f=path,
        input_names=names or list(inputs),
        output_names=outputs,
        dynamic_shapes=shapes,
        external_data=False,
        dynamo=True,
        verbose=False,
    )


def greedy_onnx(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> Translator:
    """
    A function from sentences to the tokens that the graphs in `folder` generate by greedy search in ONNX Runtime.

    Raises:
        OSError: a graph is missing.
    """
    sessions = {}
    for name in (ENCODER, DECODER, DECODER_WITH_PAST):
        if not (Path(folder) / name).is_file():
            raise FileNotFoundError(f"There is no {name} in {folder}.")
        sessions[name] = onnxruntime.InferenceSession(Path(folder) / name, providers=["CPUExecutionProvider"])
    generation_config = GenerationConfig.from_pretrained(folder)

    def translate(sentences: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = []
        for batch in batches(tokenizer, sentences, "np"):
            rows += _generate(sessions, batch["input_ids"], batch["attention_mask"], generation_config)
        return rows

    return translate


def _generate(
    sessions: dict[str, Any], source: np.ndarray, mask: np.ndarray, generation_config: GenerationConfig
) -> list[list[int]]:
    """One batch, until every sentence has its EOS."""
    (states,) = sessions[ENCODER].run(None, {"input_ids": source, "attention_mask": mask})
    tokens = np.full((len(source), 1), generation_config.decoder_start_token_id)
    feed = {"input_ids": tokens, "encoder_hidden_states": states, "encoder_attention_mask": mask}
    logits, *cache = sessions[DECODER].run(None, feed)
    cross = cache[len(cache) // 2 :]
    own = cache[: len(cache) // 2]
    names = [one.name for one in sessions[DECODER_WITH_PAST].get_inputs()]
    rows: list[list[int]] = [[] for _ in source]
    over = [False] * len(source)
    for _ in range(MAX_NEW_TOKENS):
        logits[:, :, generation_config.pad_token_id] = -np.inf  # no translation holds padding
        tokens = logits[:, -1].argmax(axis=-1)[:, None]
        for row, token in enumerate(tokens[:, 0].tolist()):
            over[row] = over[row] or token == generation_config.eos_token_id
            if not over[row]:
                rows[row].append(token)
        if all(over):
            break
        feed = dict(zip(names, [tokens, mask, *own, *cross], strict=True))
        logits, *own = sessions[DECODER_WITH_PAST].run(None, feed)
    return rows
