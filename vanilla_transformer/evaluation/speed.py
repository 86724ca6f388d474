"""Measure on this machine which precision translates fastest."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import encode_pairs
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.engine.precision import INT8, cast, measurable_precisions, round_to_int8

from .scores import score

MOST_BLEU_LOSS = 0.1
_ROUNDS = 3
_BATCH_SIZE = 32


@dataclass(frozen=True)
class PrecisionResult:
    """
    The speed and the accuracy of a precision.

    Attributes:
        precision: Its name.
        sentences_per_second: The highest speed of several rounds.
        bleu: BLEU of the translations.
        divergence: Mean Kullback-Leibler divergence from float32 of the predictions on the references, in
            nats per token.
    """

    precision: str
    sentences_per_second: float
    bleu: float
    divergence: float


def compare_precisions(
    model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], compile: bool | str = True, **options: Any
) -> list[PrecisionResult]:
    """Translate the sources of (source, target) pairs in each precision, in turns, and return the results.

    Args:
        options: Options of the search.

    Returns:
        One result for each precision; the first one is of float32.
    """
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    names = measurable_precisions()
    pipelines = {name: TranslationPipeline(model, tokenizer, precision=name, compile=compile) for name in names}
    outputs, seconds = dict[str, list[str]](), {precision: list[float]() for precision in pipelines}
    for turn in range(1 + _ROUNDS):
        for precision, translate in pipelines.items():
            start = time.perf_counter()
            answers = translate(sources, progress_bar=False, **options)
            if turn:  # the first one compiles the steps, or loads them
                seconds[precision].append(time.perf_counter() - start)
            outputs[precision] = [answer["translation_text"] for answer in answers]
    return [
        PrecisionResult(
            precision,
            len(sources) / min(seconds[precision]),
            score(outputs[precision], references).bleu,
            _divergence(model, precision, tokenizer, pairs),
        )
        for precision in pipelines
    ]


def choose_precision(results: Sequence[PrecisionResult]) -> PrecisionResult:
    """Return the fastest result whose BLEU is at most `MOST_BLEU_LOSS` below the first one's."""
    enough = [result for result in results if result.bleu >= results[0].bleu - MOST_BLEU_LOSS]
    return max(enough, key=lambda result: result.sentences_per_second)


@torch.inference_mode()
def _divergence(model: Any, precision: str, tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> float:
    exact, rounded = (cast(model, name).eval() for name in ("float32", precision))
    if precision == INT8:
        rounded = round_to_int8(rounded)
        rounded.model.encoder = exact.model.encoder  # as in the engine
    encoded = encode_pairs(tokenizer, [SentencePair(*pair) for pair in pairs])
    rows = [{"input_ids": source, "labels": target} for source, target in encoded]
    total, count = 0.0, 0
    collate = DataCollatorForSeq2Seq(tokenizer)
    for start in range(0, len(rows), _BATCH_SIZE):
        batch = collate(rows[start : start + _BATCH_SIZE])
        expected, found = (each(**batch).logits.float().log_softmax(dim=-1) for each in (exact, rounded))
        divergences = nn.functional.kl_div(found, expected, reduction="none", log_target=True).sum(dim=-1)
        kept = batch["labels"] != -100
        total, count = total + float(divergences[kept].sum()), count + int(kept.sum())
    return total / count
