"""Whether two forms of one model do the same: their logits, what they translate, and how fast."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Of every comparison, whatever runs the sides.
BATCH_SIZE = 16
MAX_NEW_TOKENS = 128
Translator = Callable[[Sequence[str]], list[list[int]]]


class Comparison(NamedTuple):
    """
    What a conversion changed. `largest_difference` is that of logits, absolute, and None where a side shows none;
    `speed` is how many times as fast the converted model decodes.
    """

    sentences: int
    identical: int
    largest_difference: float | None
    speed: float

    def __str__(self) -> str:
        logits = "" if self.largest_difference is None else f", largest logit difference {self.largest_difference:.1e}"
        return f"{self.identical} of {self.sentences} outputs identical{logits}, {self.speed:.2f} times as fast"


def compare_models(
    original: PreTrainedModel,
    converted: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> Comparison:
    """
    Compares two models of transformers: tokens of `generate()` by greedy search, and the logits of both along the
    original's tokens.

    Raises:
        ValueError: there are no sentences.
    """
    one, other = (greedy(model, tokenizer) for model in (original, converted))
    return compare_translators(one, other, sentences)._replace(
        largest_difference=largest_logit_difference(original, converted, tokenizer, sentences)
    )


def compare_translators(original: Translator, converted: Translator, sentences: Sequence[str]) -> Comparison:
    """
    Compares token ids, special ones aside.

    Raises:
        ValueError: there are no sentences.
    """
    if not sentences:
        raise ValueError("A comparison needs sentences, got none.")
    outputs, seconds = [], []
    for translate in (original, converted):
        translate(sentences[:1])  # the first call allocates
        started = time.perf_counter()
        outputs.append(translate(sentences))
        seconds.append(time.perf_counter() - started)
    identical = sum(one == other for one, other in zip(*outputs, strict=True))
    return Comparison(len(sentences), identical, None, seconds[0] / seconds[1])


def batches(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield `input_ids` and `attention_mask` of `BATCH_SIZE` sentences at a time."""
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = tokenizer(list(sentences[start : start + BATCH_SIZE]), padding=True, return_tensors="pt")
        yield {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def greedy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Translator:
    """A function from sentences to the tokens that `model` generates by greedy search."""
    options = _greedy_options(model)
    special = {model.config.pad_token_id, model.config.eos_token_id, model.config.decoder_start_token_id}

    @torch.no_grad()
    def translate(sentences: Sequence[str]) -> list[list[int]]:
        model.eval()
        rows: list[list[int]] = []
        for inputs in batches(tokenizer, sentences):
            rows += model.generate(**inputs, **options).tolist()
        return [[token for token in row if token not in special] for row in rows]

    return translate


def _greedy_options(model: PreTrainedModel) -> dict[str, Any]:
    """No translation holds padding, and toolkits differ in whether their models could write it."""
    pad = model.config.pad_token_id
    return {"num_beams": 1, "do_sample": False, "max_new_tokens": MAX_NEW_TOKENS, "suppress_tokens": [pad]}


@torch.no_grad()
def largest_logit_difference(
    original: PreTrainedModel,
    converted: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> float:
    """Over all tokens that the original generates for `sentences`, and all entries of the vocabulary."""
    worst = 0.0
    for inputs in batches(tokenizer, sentences):
        tokens = original.eval().generate(**inputs, **_greedy_options(original))
        kept = tokens.ne(original.config.pad_token_id)
        kept[:, 0] = True  # Marian starts with padding
        one, other = (
            model.eval()(**inputs, decoder_input_ids=tokens, use_cache=False).logits[kept]
            for model in (original, converted)
        )
        finite = torch.isfinite(one) & torch.isfinite(other)  # a bias of minus infinity bans a token
        if not torch.equal(torch.isfinite(one), torch.isfinite(other)):
            return float("inf")
        worst = max(worst, float((one - other)[finite].abs().max()))
    return worst
