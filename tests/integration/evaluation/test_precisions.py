"""The comparison of precisions by speed, BLEU and logits, and the choice among them."""

import time

import pytest
import torch

from tests.tiny import tiny_model
from vanilla_transformer.evaluation.speed import PrecisionResult, choose_precision, compare_precisions
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

PAIRS = [("A man is sleeping.", "Ein Mann schläft."), ("Two dogs run.", "Zwei Hunde laufen über das grüne Gras.")]


def result(precision, speed, bleu):
    return PrecisionResult(precision, speed, bleu, 0.0)


@pytest.mark.parametrize(
    ("rounded", "chosen"),
    [
        (result("bfloat16", 2.0, 29.9), "bfloat16"),
        (result("bfloat16", 2.0, 31.0), "bfloat16"),
        (result("bfloat16", 2.0, 29.89), "float32"),
        (result("bfloat16", 0.9, 30.0), "float32"),
    ],
)
def test_choice_is_the_fastest_that_loses_at_most_a_tenth_of_bleu(rounded, chosen):
    assert choose_precision([result("float32", 1.0, 30.0), rounded]).precision == chosen


def test_comparison_measures_each_precision(tiny_tokenizer):
    model = tiny_model(init_std=0.4)
    started = time.perf_counter()
    exact, rounded = compare_precisions(model, tiny_tokenizer, PAIRS, compile=False, num_beams=2)
    elapsed = time.perf_counter() - started
    assert [exact.precision, rounded.precision] == ["float32", "bfloat16"]
    assert min(exact.sentences_per_second, rounded.sentences_per_second) > len(PAIRS) / elapsed
    assert exact.divergence == 0.0
    assert rounded.divergence == pytest.approx(divergence_one_by_one(model, tiny_tokenizer), rel=0.01)
    assert model.dtype == torch.float32


def divergence_one_by_one(model, tokenizer):
    """Return the mean over target tokens, sentence by sentence and without padding."""
    rounded, values = tiny_model(init_std=0.4).bfloat16(), []
    for pair in PAIRS:
        source, target = (torch.tensor([ids]) for ids in encode_sentences(tokenizer, pair))
        with torch.inference_mode():
            p, q = (each(source, labels=target).logits.float().softmax(-1)[0] for each in (model, rounded))
        values += (p * (p / q).log()).sum(-1).tolist()
    assert len(values) == sum(map(len, encode_sentences(tokenizer, [target for _, target in PAIRS])))
    return sum(values) / len(values)
