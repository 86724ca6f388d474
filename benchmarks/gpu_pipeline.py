"""
The part `pipeline` of `bench_gpu`: captions a second from text to text, and the time of one, beside CTranslate2.

    python -m benchmarks.gpu_pipeline ROWS

Both have the same random weights, of the shape of the Multi30k recipe, and the same tokenizer. They read captions of
about 13 random words, and generate the same number of tokens for each: in bf16 on a GPU, CTranslate2 in float16. Each
cell is written as soon as it is measured, and cells that time does not suffice for are skipped. The exit status is 1
if the pipeline failed.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from statistics import median
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from benchmarks.gpu_rows import DEVICE, ON_GPU, Rows, first_line, median_seconds, release_memory
from benchmarks.random_models import SIZES, random_model, save_for_ctranslate2
from vanilla_transformer import TranslationPipeline, VanillaTransformerTokenizer

PIPELINE, CTRANSLATE2 = "pipeline", "CTranslate2 float16" if ON_GPU else "CTranslate2 float32"
SIZE, CAPTIONS = ("small", (1, 1_000, 10_000)) if ON_GPU else ("tiny", (1, 20))
TARGET_TOKENS = 14
_WORDS = 3000
_SINGLE = 30  # captions that are translated one by one
_SECONDS = 150  # in which cells are begun
Translate = Callable[[list[str], int], list[str]]


class Systems:
    """The same weights in each system. `translators` maps its name to a function of texts and the beam size."""

    def __init__(self, folder: str):
        self.captions = random_captions(max(CAPTIONS))
        model = random_model(SIZE, vocab_size=max(600, SIZES[SIZE]["vocab_size"]))
        self._tokenizer = build_tokenizer(self.captions[:2000], model.config.vocab_size)
        self.translators: dict[str, Translate] = {}
        if find_spec("ctranslate2") is not None:  # before the pipeline moves the model
            self.translators[CTRANSLATE2] = self._ctranslate2(model, f"{folder}/ctranslate2")
        self.translators = {PIPELINE: self._pipeline(model)} | self.translators

    def _pipeline(self, model: Any) -> Translate:
        precision = "bfloat16" if ON_GPU else "float32"
        pipeline = TranslationPipeline(model, self._tokenizer, device=DEVICE, precision=precision)

        def translate(texts: list[str], beams: int) -> list[str]:
            answers = pipeline(texts, num_beams=beams, max_new_tokens=TARGET_TOKENS)
            return [answer["translation_text"] for answer in answers]

        return translate

    def _ctranslate2(self, model: Any, path: str) -> Translate:
        import ctranslate2

        kind = "float16" if ON_GPU else "float32"
        save_for_ctranslate2(model, path, kind)
        translator = ctranslate2.Translator(path, device=DEVICE.type, compute_type=kind)
        options: dict[str, Any] = {"max_decoding_length": TARGET_TOKENS, "max_batch_size": 1024 if ON_GPU else 32}

        def translate(texts: list[str], beams: int) -> list[str]:
            sources = [[str(token) for token in row] for row in self._tokenizer(texts)["input_ids"]]
            results = translator.translate_batch(sources, beam_size=beams, **options)
            rows = [[int(token) for token in result.hypotheses[0]] for result in results]
            return self._tokenizer.batch_decode(rows, skip_special_tokens=True)

        return translate


def build_tokenizer(texts: list[str], vocab_size: int) -> VanillaTransformerTokenizer:
    """Build a tokenizer of byte-pair encoding, as recipes do, with few packages."""
    tokenizer, special = Tokenizer(models.BPE()), {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[*special.values()], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return VanillaTransformerTokenizer(tokenizer_object=tokenizer, **special)


def random_captions(count: int) -> list[str]:
    """Return texts of 5 to 30 random words, some of which are much more frequent than others."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abdeghiklmnoprstu", k=generator.randint(2, 9))) for _ in range(_WORDS)]
    weights = [1 / rank for rank in range(1, _WORDS + 1)]
    lengths = [max(5, min(30, round(generator.gauss(13, 4)))) for _ in range(count)]
    return [" ".join(generator.choices(words, weights, k=length)).capitalize() + "." for length in lengths]


def cells(systems: Systems) -> Iterator[tuple[str, int, int]]:
    """Yield system, captions and beams, the two systems side by side."""
    for captions, beams in product(CAPTIONS, (1, 4)):
        yield from ((name, captions, beams) for name in systems.translators)


def measure(systems: Systems, name: str, captions: int, beams: int) -> dict[str, Any]:
    """Return the row of a cell, with an error instead of a speed if it failed."""
    row = {"size": SIZE, "system": name, "captions": captions, "beams": beams}
    translate = systems.translators[name]
    try:
        if captions == 1:
            singles = systems.captions[:_SINGLE]
            for text in singles:
                translate([text], beams)
            seconds = median(median_seconds(partial(translate, [text], beams), 0, 1, 1) for text in singles)
            return row | {"milliseconds": round(seconds * 1000, 2)}
        texts = systems.captions[:captions]
        seconds = median_seconds(partial(translate, texts, beams), warm_ups=1)
    except Exception as error:  # of a library, the driver or the allocator: the other cells are measured
        return row | {"error": first_line(error)}
    return row | {"captions_per_second": round(captions / seconds), "seconds": round(seconds, 3)}


def main(rows_file: str, seconds: float = _SECONDS) -> int:
    rows, failed, end = Rows(rows_file, "pipeline"), False, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        systems = Systems(folder)
        for name, captions, beams in cells(systems):
            if time.monotonic() > end:
                rows.add(size=SIZE, system=name, captions=captions, beams=beams, error="skipped: no time was left")
                continue
            row = measure(systems, name, captions, beams)
            rows.add(**row)
            failed |= name == PIPELINE and "error" in row
            release_memory()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
