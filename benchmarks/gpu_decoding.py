"""
The part `decoding` of `bench_gpu`: tokens a second of the engine, `generate()`, MarianMTModel and CTranslate2.

    python -m benchmarks.gpu_decoding ROWS

All have the same random weights, read sources of one length and generate the same number of tokens: in bf16 on a GPU,
CTranslate2 in float16. MarianMTModel runs with its dynamic cache, and with a static cache, for which transformers
compiles it. Each cell is written as soon as it is measured, and cells that time does not suffice for are skipped. The
exit status is 1 if the engine or `generate()` failed.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_rows import DEVICE, ON_GPU, Rows, first_line, median_seconds, release_memory
from benchmarks.random_models import random_model, save_for_ctranslate2
from vanilla_transformer import Engine
from vanilla_transformer.conversion.marian import model_to_marian

Translate = Callable[[], list[list[int]]]
ENGINE, GENERATE, MARIAN, STATIC = "engine", "generate()", "MarianMTModel", "MarianMTModel, static cache, compiled"
CTRANSLATE2 = "CTranslate2 float16" if ON_GPU else "CTranslate2 float32"
OURS = {ENGINE, GENERATE}
IN_LARGE_BATCHES = {ENGINE, CTRANSLATE2}
_LARGE = 2048  # sentences
_SECONDS = 460  # in which cells are begun


class Setting(NamedTuple):
    """Size of the model, numbers of sentences, and tokens of each source and target."""

    size: str
    batches: tuple[int, ...]
    source_tokens: int
    target_tokens: int


SETTING = Setting("base", (1, 8, 128, 512, 1024, 4096), 32, 64) if ON_GPU else Setting("tiny", (1, 3), 6, 8)


class Systems:
    """The same weights in each system. `translator` returns a function that translates a batch."""

    def __init__(self, setting: Setting, folder: str):
        self.setting, self._folder = setting, folder
        model = random_model(setting.size)
        self._ctranslate2: Any = self._load_ctranslate2(model) if find_spec("ctranslate2") is not None else None
        dtype = torch.bfloat16 if ON_GPU else torch.float32
        self._precision = "bfloat16" if ON_GPU else "float32"
        self._marian = model_to_marian(model).to(DEVICE, dtype)
        self._model = model.to(DEVICE, dtype)

    def names(self) -> list[str]:
        """Return the systems whose batches are measured in turn; the compiled one, which takes long, comes later."""
        return [ENGINE, GENERATE, MARIAN, *([] if self._ctranslate2 is None else [CTRANSLATE2])]

    def translator(self, name: str, batch: int, beams: int) -> Translate:
        random = torch.Generator().manual_seed(0)
        vocabulary, eos = self._model.config.vocab_size, self._model.config.eos_token_id
        source = torch.randint(3, vocabulary, (batch, self.setting.source_tokens), generator=random)
        source[:, -1] = eos
        options: dict[str, Any] = {"num_beams": beams, "max_new_tokens": self.setting.target_tokens}
        options |= {"do_sample": False} | ({"length_penalty": 1.0, "early_stopping": True} if beams > 1 else {})
        if name == ENGINE:
            compile = "auto" if ON_GPU else False
            engine = Engine(self._model, batch, precision=self._precision, compile=compile, **options)
            sources = source.tolist()
            return lambda: [hypotheses[0].tokens for hypotheses in engine.translate_tokens(sources)]
        if name == CTRANSLATE2:
            named = [[str(token) for token in row] for row in source.tolist()]
            limit = {"max_decoding_length": self.setting.target_tokens, "beam_size": beams}
            return lambda: [
                [int(token) for token in result.hypotheses[0]]
                for result in self._ctranslate2.translate_batch(named, **limit)
            ]
        if name == STATIC:
            options["cache_implementation"] = "static"
        model: Any = self._model if name == GENERATE else self._marian
        ids = source.to(DEVICE)
        mask = torch.ones_like(ids)
        return lambda: model.generate(ids, attention_mask=mask, **options)[:, 1:].tolist()

    def _load_ctranslate2(self, model: Any) -> Any:
        import ctranslate2

        save_for_ctranslate2(model, f"{self._folder}/ctranslate2", "float16" if ON_GPU else "float32")
        kind = "float16" if ON_GPU else "float32"
        return ctranslate2.Translator(f"{self._folder}/ctranslate2", device=DEVICE.type, compute_type=kind)


def cells(systems: Systems) -> Iterator[tuple[str, int, int]]:
    """Yield system, sentences and beams. Systems that compile each shape come last."""
    batches = systems.setting.batches
    for beams in (1, 4):
        for batch in batches:
            names = (name for name in systems.names() if batch < _LARGE or name in IN_LARGE_BATCHES)
            yield from ((name, batch, beams) for name in names)
    if ON_GPU:
        typical_first = sorted((batch for batch in batches if batch < _LARGE), key=lambda batch: batch != 128)
        yield from ((STATIC, batch, beams) for beams in (1, 4) for batch in typical_first)


def measure(systems: Systems, name: str, batch: int, beams: int) -> dict[str, Any]:
    """Return the row of a cell, with an error instead of a speed if it failed."""
    row = {"size": systems.setting.size, "system": name, "batch": batch, "beams": beams}
    target = systems.setting.target_tokens
    try:
        translate = systems.translator(name, batch, beams)
        lengths = {len(tokens) for tokens in translate()}
        if lengths != {target}:
            raise ValueError(f"each translation must have {target} tokens, got {min(lengths)} to {max(lengths)}")
        seconds = median_seconds(translate, warm_ups=1)
    except Exception as error:  # of a library, the driver or the allocator: the other cells are measured
        return row | {"error": first_line(error)}
    return row | {"tokens_per_second": round(batch * target / seconds), "seconds": round(seconds, 4)}


def main(rows_file: str, seconds: float = _SECONDS) -> int:
    rows, failed, end = Rows(rows_file, "decoding"), False, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        systems = Systems(SETTING, folder)
        for name, batch, beams in cells(systems):
            if time.monotonic() > end:
                size = systems.setting.size
                rows.add(size=size, system=name, batch=batch, beams=beams, error="skipped: no time was left")
                continue
            row = measure(systems, name, batch, beams)
            rows.add(**row)
            failed |= name in OURS and "error" in row
            release_memory()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
