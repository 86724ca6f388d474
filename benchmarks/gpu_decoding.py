"""
The parts `decoding` and `pipeline` of `bench_gpu`: this package beside MarianMTModel and
CTranslate2.

    python -m benchmarks.gpu_decoding decoding ROWS
    python -m benchmarks.gpu_decoding pipeline ROWS

All systems have the same random weights, and generate the same number of tokens: in bf16 on a GPU,
CTranslate2 in float16. Decoding counts tokens a second for sources of one length. MarianMTModel
runs with its dynamic cache, and with a static cache, for which transformers compiles it. The
pipeline counts captions of about 13 random words a second from text to text, and the time of one;
its weights have the shape of the Multi30k recipe. Each cell is written as soon as it is measured,
and cells that time does not suffice for are skipped. The exit status is 1 if this package failed.
"""

import copy
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

import torch

from benchmarks.gpu_report import DEVICE, ON_GPU, Rows, first_line, median_seconds, release_memory
from benchmarks.revision_worker import build_model
from vanilla_transformer import Engine, TranslationPipeline, VanillaTransformerTokenizer
from vanilla_transformer.extensions.conversion.marian import model_to_marian

ENGINE, GENERATE, PIPELINE = "engine", "generate()", "pipeline"
MARIAN, STATIC = "MarianMTModel", "MarianMTModel, static cache, compiled"
PRECISION, KIND = ("bfloat16", "float16") if ON_GPU else ("float32", "float32")
CTRANSLATE2 = f"CTranslate2 {KIND}"
OURS = {ENGINE, GENERATE, PIPELINE}
IN_LARGE_BATCHES = {ENGINE, CTRANSLATE2}
_LARGE = 2048  # sentences
_WORDS = 3000  # of captions
_SINGLE = 30  # captions that are translated one by one
_SECONDS = {"decoding": 340, "pipeline": 150}  # in which cells are begun
Cell = tuple[str, int, int]  # system, sentences and beams


class Setting(NamedTuple):
    """Size of the model and its vocabulary, numbers of sentences, and tokens of each source, if
    fixed, and target.
    """

    size: str
    vocab_size: int
    batches: tuple[int, ...]
    source_tokens: int | None
    target_tokens: int


DECODING = (
    Setting("base", 32_000, (1, 8, 128, 512, 1024, 4096), 32, 64)
    if ON_GPU
    else Setting("tiny", 100, (1, 3), 6, 8)
)
CAPTIONS = (
    Setting("small", 8000, (1, 1_000, 10_000), None, 14)
    if ON_GPU
    else Setting("tiny", 600, (1, 20), None, 14)
)


class Systems(Protocol):
    """The same weights in each system."""

    def cells(self) -> Iterator[Cell]:
        """Yield the cells to measure, in order."""

    def describe(self, cell: Cell) -> dict[str, Any]:
        """Return the row of a cell without a measurement."""

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Return the measurement of a cell."""


def marian_like_model(setting: Setting) -> Any:
    """Build a random model that MarianMTModel can represent, which has another ε."""
    return build_model(setting.size, setting.vocab_size, layer_norm_eps=1e-5)


def load_ctranslate2(model: Any, folder: str) -> Any:
    """Return the translator with the weights of a model; None if the package is not installed."""
    if find_spec("ctranslate2") is None:
        return None
    import ctranslate2

    from vanilla_transformer.extensions.conversion.ctranslate2 import VanillaTransformerLoader

    # The loader rounds weights in place.
    spec = VanillaTransformerLoader().get_model_spec(copy.deepcopy(model))
    names = [str(index) for index in range(model.config.vocab_size)]  # ids as the names of tokens
    for token, index in (("bos", 1), ("eos", 2), ("decoder_start", 1), ("unk", 0)):
        setattr(spec.config, f"{token}_token", str(index))
    spec.config.layer_norm_epsilon = model.config.layer_norm_eps
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.validate()
    spec.optimize(quantization=None if KIND == "float32" else KIND)
    Path(folder, "ctranslate2").mkdir()
    spec.save(f"{folder}/ctranslate2")
    return ctranslate2.Translator(f"{folder}/ctranslate2", device=DEVICE.type, compute_type=KIND)


class TokenSystems:
    """Systems that get token ids."""

    def __init__(self, setting: Setting, folder: str):
        self._setting = setting
        model = marian_like_model(setting)
        self._ctranslate2 = load_ctranslate2(model, folder)
        dtype = getattr(torch, PRECISION)
        self._marian = model_to_marian(model).to(DEVICE, dtype)
        self._model = model.to(DEVICE, dtype)

    def cells(self) -> Iterator[Cell]:
        """Yield all systems in turn for each batch.

        The ones that compile each shape, which takes long, come last.
        """
        batches = self._setting.batches
        systems = [ENGINE, GENERATE, MARIAN, *([] if self._ctranslate2 is None else [CTRANSLATE2])]
        for beams in (1, 4):
            for batch in batches:
                names = (name for name in systems if batch < _LARGE or name in IN_LARGE_BATCHES)
                yield from ((name, batch, beams) for name in names)
        if ON_GPU:
            typical_first = sorted(
                (batch for batch in batches if batch < _LARGE), key=lambda batch: batch != 128
            )
            yield from ((STATIC, batch, beams) for beams in (1, 4) for batch in typical_first)

    def describe(self, cell: Cell) -> dict[str, Any]:
        name, batch, beams = cell
        return {"size": self._setting.size, "system": name, "batch": batch, "beams": beams}

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Return tokens a second.

        Raises:
            ValueError: a translation is too short.
        """
        translate, target = self._translator(*cell), self._setting.target_tokens
        lengths = {len(tokens) for tokens in translate()}
        if lengths != {target}:
            raise ValueError(
                f"each translation must have {target} tokens, got {min(lengths)} to {max(lengths)}"
            )
        seconds = median_seconds(translate, warm_ups=1)
        return {
            "tokens_per_second": round(cell[1] * target / seconds),
            "seconds": round(seconds, 4),
        }

    def _translator(self, name: str, batch: int, beams: int) -> Callable[[], list[list[int]]]:
        generator, length = torch.Generator().manual_seed(0), self._setting.source_tokens
        vocabulary, eos = self._model.config.vocab_size, self._model.config.eos_token_id
        source = torch.randint(3, vocabulary, (batch, length), generator=generator)  # type: ignore[arg-type]
        source[:, -1] = eos
        options: dict[str, Any] = {
            "num_beams": beams,
            "max_new_tokens": self._setting.target_tokens,
        }
        options |= {"do_sample": False} | (
            {"length_penalty": 1.0, "early_stopping": True} if beams > 1 else {}
        )
        if name == ENGINE:
            compiling = "auto" if ON_GPU else False
            engine = Engine(
                self._model, slots=batch, precision=PRECISION, compile=compiling, **options
            )
            sources = source.tolist()
            return lambda: [hypotheses[0].tokens for hypotheses in engine.decode(sources)]
        if name == CTRANSLATE2:
            named = [[str(token) for token in row] for row in source.tolist()]
            limit = {"max_decoding_length": self._setting.target_tokens, "beam_size": beams}
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


class TextSystems:
    """Systems that get text, with one tokenizer."""

    def __init__(self, setting: Setting, folder: str):
        self._setting, self._captions = setting, random_captions(max(setting.batches))
        model = marian_like_model(setting)
        self._tokenizer = VanillaTransformerTokenizer.train_from_iterator(
            self._captions[:2000], setting.vocab_size
        )
        self._ctranslate2 = load_ctranslate2(model, folder)  # before the pipeline moves the model
        self._pipeline = TranslationPipeline(
            model, self._tokenizer, device=DEVICE, precision=PRECISION
        )
        self._translators = {PIPELINE: self._translate}
        if self._ctranslate2 is not None:
            self._translators[CTRANSLATE2] = self._translate_by_ctranslate2

    def cells(self) -> Iterator[Cell]:
        """Yield the systems side by side."""
        for captions, beams in product(self._setting.batches, (1, 4)):
            yield from ((name, captions, beams) for name in self._translators)

    def describe(self, cell: Cell) -> dict[str, Any]:
        name, captions, beams = cell
        return {"size": self._setting.size, "system": name, "captions": captions, "beams": beams}

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Return captions a second, or the milliseconds of a single one."""
        name, captions, beams = cell
        translate = self._translators[name]
        if captions == 1:
            singles = self._captions[:_SINGLE]
            for text in singles:
                translate([text], beams)
            seconds = median(
                median_seconds(partial(translate, [text], beams), 0, 1, 1) for text in singles
            )
            return {"milliseconds": round(seconds * 1000, 2)}
        seconds = median_seconds(partial(translate, self._captions[:captions], beams), warm_ups=1)
        return {"captions_per_second": round(captions / seconds), "seconds": round(seconds, 3)}

    def _translate(self, texts: list[str], beams: int) -> list[str]:
        answers = self._pipeline(texts, num_beams=beams, max_new_tokens=self._setting.target_tokens)
        return [answer["translation_text"] for answer in answers]

    def _translate_by_ctranslate2(self, texts: list[str], beams: int) -> list[str]:
        sources = [[str(token) for token in row] for row in self._tokenizer(texts)["input_ids"]]
        limits = {
            "max_decoding_length": self._setting.target_tokens,
            "max_batch_size": 1024 if ON_GPU else 32,
        }
        results = self._ctranslate2.translate_batch(sources, beam_size=beams, **limits)
        rows = [[int(token) for token in result.hypotheses[0]] for result in results]
        return self._tokenizer.batch_decode(rows, skip_special_tokens=True)


def random_captions(count: int) -> list[str]:
    """Return texts of 5 to 30 random words, some of which are much more frequent than others."""
    generator = random.Random(0)
    words = [
        "".join(generator.choices("abdeghiklmnoprstu", k=generator.randint(2, 9)))
        for _ in range(_WORDS)
    ]
    weights = [1 / rank for rank in range(1, _WORDS + 1)]
    lengths = [max(5, min(30, round(generator.gauss(13, 4)))) for _ in range(count)]
    return [
        " ".join(generator.choices(words, weights, k=length)).capitalize() + "."
        for length in lengths
    ]


def main(part: str, rows_file: str, seconds: float | None = None) -> int:
    """Measure the cells of a part, and return 1 if this package failed in one."""
    rows, failed, end = (
        Rows(rows_file, part),
        False,
        time.monotonic() + (_SECONDS[part] if seconds is None else seconds),
    )
    with tempfile.TemporaryDirectory() as folder:
        systems: Systems = (
            TokenSystems(DECODING, folder) if part == "decoding" else TextSystems(CAPTIONS, folder)
        )
        for cell in systems.cells():
            row = systems.describe(cell)
            if time.monotonic() > end:
                rows.add(**row, error="skipped: no time was left")
                continue
            try:
                row |= systems.measure(cell)
            except (
                Exception
            ) as error:  # of a library, the driver or the allocator: the other cells are measured
                row["error"] = first_line(error)
                failed |= cell[0] in OURS
            rows.add(**row)
            release_memory()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
