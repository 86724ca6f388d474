"""Convert to ONNX, for ONNX Runtime and other engines (`pip install 'vanilla-transformer[onnx]'`).

The exporter of transformers writes three graphs: the encoder; the decoder for the start of a
translation, which also returns the keys and values of the source; and the decoder for each further
token, which takes the cache.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from copy import copy
from pathlib import Path
from typing import Any

import torch
from onnxruntime import SessionOptions
from transformers import Cache, PreTrainedModel, PreTrainedTokenizerBase
from transformers.exporters import ExportedModel, OnnxConfig, OnnxExporter
from transformers.utils import ModelOutput

from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .common import SOURCES_WITHOUT_EOS, check_supported
from .comparison import Translator, greedy_translator

# Names of the graphs
ENCODER = "encoder_model"
DECODER, DECODER_WITH_PAST = "decoder_model", "decoder_with_past_model"


def write_onnx(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> list[tuple[str, Translator]]:
    """Write three ONNX graphs in float32, with the configurations and the tokenizer."""
    check_supported("ONNX", {SOURCES_WITHOUT_EOS: not model.config.source_eos})
    export_graphs(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return [("float32", greedy_translator(run_by_graphs(model, folder), tokenizer))]


def run_by_graphs(
    model: VanillaTransformerForConditionalGeneration, folder: Path
) -> VanillaTransformerForConditionalGeneration:
    """Return a model that generates by the graphs in `folder`, with the configurations of `model`.

    Its own layers are the ones of `model`, and are not used.
    """
    session_options = SessionOptions()
    session_options.intra_op_num_threads = torch.get_num_threads()
    graphs = ExportedModel.from_pretrained(
        folder, device="cpu", session_options=session_options
    ).runners

    def decode(
        decoder_input_ids: torch.Tensor,
        encoder_outputs: ModelOutput,
        attention_mask: torch.Tensor,
        cache: Cache | None = None,
        **_: object,
    ) -> ModelOutput:
        inputs = {
            "decoder_input_ids": decoder_input_ids,
            "encoder_outputs": encoder_outputs,
            "attention_mask": attention_mask,
        }
        if cache is None or cache.get_seq_length() == 0:
            return graphs[DECODER](**inputs)
        return graphs[DECODER_WITH_PAST](**inputs, cache=cache)

    def generate(
        input_ids: torch.Tensor, attention_mask: torch.Tensor, **options: Any
    ) -> torch.Tensor:
        source = {"input_ids": input_ids, "attention_mask": attention_mask}
        encoder_outputs = graphs[ENCODER](**source)
        return model_class.generate(exported, **source, encoder_outputs=encoder_outputs, **options)

    exported, model_class = copy(model), type(model)
    exported.generate = generate  # type: ignore[assignment, method-assign]
    exported.forward = decode  # type: ignore[method-assign]
    return exported


def export_graphs(model: VanillaTransformerForConditionalGeneration) -> ExportedModel:
    """Trace the three graphs. Batch size, source length and target length are dynamic.

    `OnnxExporter.export_for_generation` is not used: it exports no encoder, and its decoder takes a
    cache of exactly one token.
    """
    model.set_attn_implementation("eager")
    # All sizes differ, so that no two axes are unified.
    batch_size, source_length, past_length = 2, 5, 3
    input_ids = torch.ones(batch_size, source_length, dtype=torch.long)
    source = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    decoder_input_ids = torch.ones(batch_size, past_length, dtype=torch.long)
    with torch.no_grad(), silence_exporters():
        encoder_outputs = model.get_encoder()(**source)
        step = {
            "encoder_outputs": encoder_outputs,
            "attention_mask": source["attention_mask"],
            "use_cache": True,
        }
        start = step | {"decoder_input_ids": decoder_input_ids}
        cache = model(**start)[CACHE]
        further = step | {"decoder_input_ids": decoder_input_ids[:, :1], "cache": cache}
        examples: dict[str, tuple[PreTrainedModel, dict[str, Any]]] = {
            ENCODER: (model.get_encoder(), source),
            DECODER: (model, start),
            DECODER_WITH_PAST: (model, further),
        }
        exporter, components = OnnxExporter(), {}
        for name, (module, inputs) in examples.items():
            exported = exporter.export(module, inputs, OnnxConfig(dynamic=True))
            components[name] = exported.components["model"]
    return ExportedModel(components, exporter.export_format, model.config, model.generation_config)


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Silence the exporters, which print their progress and warn about operators that these graphs
    do not use.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
