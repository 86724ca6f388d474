"""Convert to ONNX, for ONNX Runtime and other engines (`pip install 'vanilla-transformer[onnx]'`).

The exporter of transformers writes three graphs: the encoder; the decoder for the start of a translation, which also
returns the keys and values of the source; and the decoder for each further token, which takes the cache.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.exporters import ExportedModel, OnnxConfig, OnnxExporter

from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.utils.file_utils import atomic_folder, check_output_dir_is_empty

from .common import (
    SOURCES_WITHOUT_EOS,
    Comparison,
    Translator,
    check_supported,
    compare_translators,
    greedy_translator,
    load_model,
    require_same,
)
from .onnx_runtime import DECODER, DECODER_WITH_PAST, ENCODER, OnnxModel


def to_onnx(folder: str | Path, output_dir: str | Path, sentences: Sequence[str]) -> Comparison:
    """Write a model folder of this package as three ONNX graphs in float32, with its configurations and tokenizer.

    `TranslationPipeline(output_dir, backend="onnx")` translates by ONNX Runtime, and so does the command `translate`.
    """
    check_output_dir_is_empty(output_dir)
    model = load_model(VanillaTransformerForConditionalGeneration, folder, attn_implementation="eager")
    check_supported("ONNX", {SOURCES_WITHOUT_EOS: not model.config.source_eos})
    tokenizer = load_tokenizer(folder)
    with atomic_folder(output_dir) as temporary:
        export_graphs(model).save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        theirs = onnx_greedy_translator(temporary, tokenizer)
        return require_same(
            compare_translators(greedy_translator(model, tokenizer), theirs, sentences, tokenizer),
            model,
            tokenizer,
            sentences,
        )


def export_graphs(model: VanillaTransformerForConditionalGeneration) -> ExportedModel:
    """Trace the three graphs. Batch size, source length and target length are dynamic.

    `OnnxExporter.export_for_generation` is not used: it exports no encoder, and its decoder takes a cache of exactly
    one token.
    """
    with torch.no_grad(), silence_exporters():
        exporter = OnnxExporter()
        components = {
            name: exporter.export(module, inputs, OnnxConfig(dynamic=True)).components["model"]
            for name, (module, inputs) in _example_inputs(model).items()
        }
    return ExportedModel(components, exporter.export_format, model.config, model.generation_config)


def _example_inputs(model: VanillaTransformerForConditionalGeneration) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the module and example inputs of each graph. All sizes differ, so that no two axes are unified."""
    batch_size, source_length, past_length = 2, 5, 3
    input_ids = torch.ones(batch_size, source_length, dtype=torch.long)
    source = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    encoder_outputs = model.get_encoder()(**source)
    decoder_input_ids = torch.ones(batch_size, past_length, dtype=torch.long)
    step = {"encoder_outputs": encoder_outputs, "attention_mask": source["attention_mask"], "use_cache": True}
    cache = model(**step, decoder_input_ids=decoder_input_ids)[CACHE]
    further = step | {"decoder_input_ids": decoder_input_ids[:, :1], "cache": cache}
    return {
        ENCODER: (model.get_encoder(), source),
        DECODER: (model, step | {"decoder_input_ids": decoder_input_ids}),
        DECODER_WITH_PAST: (model, further),
    }


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Silence the exporters, which print their progress and warn about operators that these graphs do not use."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def onnx_greedy_translator(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> Translator:
    """Return a function from sentences to the token ids that the graphs in `folder` generate by greedy search."""
    return greedy_translator(OnnxModel(folder), tokenizer)
