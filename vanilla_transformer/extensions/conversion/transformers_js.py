"""Convert to the ONNX files of transformers.js and Optimum
(`pip install 'vanilla-transformer[onnx]'`).

transformers.js runs in browsers and in Node. It selects the class of a model by `model_type` and
does not know ours, so `config.json` says Marian: the library reads only sizes and special tokens
from it. The graphs hold the computation.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import InferenceSession
from transformers import GenerationConfig, PreTrainedTokenizerBase

from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .common import NO_TOKENIZER_JSON, check_supported, target_reasons
from .comparison import MAX_NEW_TOKENS, Translator, tokenized_batches
from .marian import SHARED_FIELDS, library_generation_config, library_tokenizer
from .onnx import DECODER, DECODER_WITH_PAST, ENCODER, export_graphs, silence_exporters
from .optimum_graphs import (
    USE_CACHE_BRANCH,
    merge_decoders,
    repeat_eos,
    to_float16,
    to_int8,
    to_optimum_decoder,
    to_proto,
)

MERGED_DECODER = "decoder_model_merged"
# The data types of transformers.js: the suffix of the files, and how to make a graph from one in
# float32.
DTYPES: dict[str, tuple[str, Callable[[onnx.ModelProto], onnx.ModelProto]]] = {
    "fp32": ("", lambda model: model),
    "fp16": ("_fp16", to_float16),
    "q8": ("_quantized", to_int8),
}
_MAX_BYTES = 2**31  # of an ONNX file
_MAX_BYTES_OF_GRAPH = 2**24  # without weights
_CARD = """---
library_name: transformers.js
pipeline_tag: translation
---

- WebAssembly and Node: `pipeline("translation", MODEL, { dtype: "q8" })`
- GPU: `pipeline("translation", MODEL, { dtype: "fp32", device: "webgpu" })`, or `fp16` with
  `shader-f16`; not `q8`
"""


def write_transformers_js(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> Iterator[tuple[str, Translator]]:
    """Write a folder for transformers.js: fp32, fp16 and q8.

    transformers.js has no beam search, so the folder asks for greedy search.
    """
    config = model.config
    size = 4 * model.num_parameters() + _MAX_BYTES_OF_GRAPH
    check_supported(
        "transformers.js",
        {
            **target_reasons(config),
            "it has several EOS tokens": not isinstance(config.eos_token_id, int),
            NO_TOKENIZER_JSON: not hasattr(tokenizer, "backend_tokenizer"),
            "its weights take more than 2 GB": size > _MAX_BYTES,
        },
    )
    assert isinstance(config.eos_token_id, int)
    write_settings(model, tokenizer, folder)
    components = export_graphs(model).components
    programs = {name: component.program for name, component in components.items()}
    encoder = to_proto(programs[ENCODER])
    first = to_optimum_decoder(programs[DECODER], config)
    further = to_optimum_decoder(programs[DECODER_WITH_PAST], config)
    further = repeat_eos(further, config.eos_token_id)
    (folder / "onnx").mkdir()
    with silence_exporters():
        for suffix, convert in DTYPES.values():
            onnx.save(convert(encoder), folder / "onnx" / f"{ENCODER}{suffix}.onnx")
            decoder = merge_decoders(convert(first), convert(further))
            onnx.save(decoder, folder / "onnx" / f"{MERGED_DECODER}{suffix}.onnx")
    return ((dtype, merged_greedy_translator(folder, tokenizer, dtype)) for dtype in DTYPES)


def write_settings(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> None:
    """Write `config.json`, `generation_config.json` and the tokenizer."""
    fields = {name: getattr(model.config, name) for name in SHARED_FIELDS}
    # Sinusoids have no last position.
    if model.config.position_embedding_type == "sinusoidal":
        del fields["max_position_embeddings"]
    kind = {"model_type": "marian", "architectures": ["MarianMTModel"], "is_encoder_decoder": True}
    _write_json(folder / "config.json", kind | fields)
    generation_config = library_generation_config(model.generation_config)
    # No translation has padding.
    suppressed = {*(generation_config.suppress_tokens or []), model.config.pad_token_id}
    greedy = {"num_beams": 1, "early_stopping": False, "length_penalty": 1.0}
    generation_config.update(**greedy, suppress_tokens=sorted(suppressed))
    generation_config.save_pretrained(folder)
    library_tokenizer(tokenizer).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    # The class of transformers.js for every `tokenizer.json`.
    entries = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizer"}
    _write_json(path, entries)
    (folder / "README.md").write_text(_CARD)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def merged_greedy_translator(
    folder: str | Path, tokenizer: PreTrainedTokenizerBase, dtype: str
) -> Translator:
    """Return a function from sentences to the token ids that the graphs of `dtype` generate by
    greedy search.
    """
    suffix, _ = DTYPES[dtype]
    graphs = Path(folder) / "onnx"
    encoder = InferenceSession(graphs / f"{ENCODER}{suffix}.onnx")
    decoder = InferenceSession(graphs / f"{MERGED_DECODER}{suffix}.onnx")
    caches = []
    for tensor in decoder.get_inputs():
        if tensor.name.startswith("past_key_values"):
            caches.append(tensor)
    names = []
    for output in decoder.get_outputs():
        names.append(output.name.replace("present", "past_key_values"))
    config = GenerationConfig.from_pretrained(folder)

    def decode(hidden: np.ndarray, mask: np.ndarray) -> list[list[int]]:
        """Decode one batch until every sentence has its EOS."""
        inputs = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        for tensor in caches:  # as in transformers.js, the first cache has no positions
            shape = (len(mask), tensor.shape[1], 0, tensor.shape[3])
            inputs[tensor.name] = np.zeros(shape, dtype=np.float32)
        tokens = np.full((len(mask), 1), config.decoder_start_token_id)
        generated = list[np.ndarray]()
        finished = np.zeros(len(mask), dtype=bool)
        while len(generated) < MAX_NEW_TOKENS and not finished.all():
            inputs["input_ids"] = tokens
            inputs[USE_CACHE_BRANCH] = np.array([bool(generated)])
            outputs = dict(zip(names, decoder.run(None, inputs), strict=True))
            scores = outputs.pop("logits")[:, -1]  # (batch_size, vocab_size)
            scores[:, config.pad_token_id] = -np.inf  # no translation contains padding
            tokens = scores.argmax(axis=-1, keepdims=True)
            # The token is the language of the translation.
            if not generated and config.forced_bos_token_id is not None:
                tokens[:] = config.forced_bos_token_id
            generated.append(tokens)
            finished |= tokens[:, 0] == config.eos_token_id
            inputs |= outputs
        eos, rows = config.eos_token_id, np.concatenate(generated, axis=1).tolist()
        return [row[: row.index(eos)] if eos in row else row for row in rows]

    def translate(sentences: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = []
        for batch in tokenized_batches(tokenizer, sentences):
            source = {name: tensor.numpy() for name, tensor in batch.items()}
            rows += decode(encoder.run(None, source)[0], source["attention_mask"])
        return rows

    return translate
