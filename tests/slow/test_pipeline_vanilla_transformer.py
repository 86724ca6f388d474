"""Time that splitting takes."""

import time

import pytest

from vanilla_transformer.pipeline_vanilla_transformer import split_lines, split_sentences


@pytest.mark.parametrize(
    "piece", [" ", "\n", ".", "。", '."', "。）", "α;", "។ល។", ".\u0301", ". a", '. "A', "N°. 1"]
)
@pytest.mark.parametrize("end", ["", "b"])
def test_split_lines_and_sentences_take_linear_time(piece, end):
    text = "a" + piece * 100_000 + end
    begin = time.perf_counter()
    for line in split_lines(text):
        list(split_sentences(line))
    assert time.perf_counter() - begin < 5  # more than a minute in quadratic time
