"""Compare a model before and after conversion: translations, logits and speed."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

# The same for every comparison.
BATCH_SIZE = 16
MAX_NEW_TOKENS = 128
# In float32 both models differ by rounding, at most by Marian's other layer-norm epsilon.
_MAX_LOGIT_DIFFERENCE = 0.05
_MIN_IDENTICAL = 0.9  # rounding decides between tokens that are about equally likely
Translator = Callable[[Sequence[str]], list[list[int]]]


class Comparison(NamedTuple):
    """Differences between the original and the converted model.

    Attributes:
        num_sentences: Sentences translated by both.
        num_identical: Sentences with the same token ids.
        max_logit_difference: The largest absolute difference, or None if a runtime does not return logits.
        speedup: Decoding time of the original divided by the time of the converted model.
        chrf: chrF of the converted model's translations, with the original's as the references.
    """

    num_sentences: int
    num_identical: int
    max_logit_difference: float | None
    speedup: float
    chrf: float | None = None

    def __str__(self) -> str:
        difference = self.max_logit_difference
        logits = "" if difference is None else f", largest logit difference {difference:.1e}"
        chrf = "" if self.chrf is None else f", chrF between both {self.chrf:.1f}"
        same = f"{self.num_identical} of {self.num_sentences} outputs identical"
        return f"{same}{chrf}{logits}, speedup {self.speedup:.2f}"


def compare_models(
    original: PreTrainedModel,
    converted: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> Comparison:
    """Compare two models of transformers: the tokens of greedy search, and the logits along the original's tokens.

    Raises:
        ValueError: there are no sentences, or the outputs differ, see [`require_same`].
    """
    comparison = compare_translators(
        greedy_translator(original, tokenizer), greedy_translator(converted, tokenizer), sentences, tokenizer
    )
    difference = max_logit_difference(original, converted, tokenizer, sentences)
    return require_same(comparison._replace(max_logit_difference=difference))


def require_same(comparison: Comparison) -> Comparison:
    """Return the comparison if the models differ only by rounding in float32.

    Raises:
        ValueError: the logits differ or, where a runtime does not return them, more than a tenth of the outputs.
    """
    difference = comparison.max_logit_difference
    if difference is None:
        same = comparison.num_identical >= _MIN_IDENTICAL * comparison.num_sentences
    else:
        same = difference <= _MAX_LOGIT_DIFFERENCE
    if not same:
        raise ValueError(
            f"The converted model must compute what the original does, but does not: {comparison}. Nothing was "
            "written. Report this with the options of the model."
        )
    return comparison


def compare_translators(
    original: Translator, converted: Translator, sentences: Sequence[str], tokenizer: PreTrainedTokenizerBase
) -> Comparison:
    """Compare token ids, without special tokens, their texts, and the time after a batch that both translate first.

    Raises:
        ValueError: there are no sentences.
    """
    import sacrebleu  # which a machine with a GPU may lack that runs benchmarks

    if not sentences:
        raise ValueError("A comparison needs at least one sentence, got none.")
    outputs, seconds = [], []
    for translate in (original, converted):
        translate(sentences[:BATCH_SIZE])
    for translate in (original, converted):
        start = time.perf_counter()
        outputs.append(translate(sentences))
        seconds.append(time.perf_counter() - start)
    num_identical = sum(first == second for first, second in zip(*outputs, strict=True))
    before, after = (tokenizer.batch_decode(rows, skip_special_tokens=True) for rows in outputs)
    chrf = sacrebleu.corpus_chrf(after, [before]).score
    return Comparison(len(sentences), num_identical, None, seconds[0] / seconds[1], chrf)


def tokenized_batches(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield `input_ids` and `attention_mask` of `BATCH_SIZE` sentences at a time."""
    for start in range(0, len(sentences), BATCH_SIZE):
        batch = tokenizer(list(sentences[start : start + BATCH_SIZE]), padding=True, return_tensors="pt")
        yield {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def greedy_translator(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Translator:
    """Return a function from sentences to the token ids that `model` generates by greedy search."""
    options = _greedy_options(model)
    special = {model.config.pad_token_id, model.config.eos_token_id, model.config.decoder_start_token_id}

    @torch.no_grad()
    def translate(sentences: Sequence[str]) -> list[list[int]]:
        model.eval()
        rows: list[list[int]] = []
        for inputs in tokenized_batches(tokenizer, sentences):
            rows += model.generate(**inputs, **options).tolist()
        return [[token for token in row if token not in special] for row in rows]

    return translate


def _greedy_options(model: PreTrainedModel) -> dict[str, Any]:
    """Return the arguments of `generate()`. Padding is suppressed because only some toolkits can generate it."""
    pad = model.config.pad_token_id
    return {"num_beams": 1, "do_sample": False, "max_new_tokens": MAX_NEW_TOKENS, "suppress_tokens": [pad]}


@torch.no_grad()
def max_logit_difference(
    original: PreTrainedModel,
    converted: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> float:
    """Return the largest absolute difference of logits, over all tokens that the original generates."""
    largest = 0.0
    for inputs in tokenized_batches(tokenizer, sentences):
        tokens = original.eval().generate(**inputs, **_greedy_options(original))
        kept = tokens.ne(original.config.pad_token_id)
        kept[:, 0] = True  # Marian's start token is padding
        first, second = (
            model.eval()(**inputs, decoder_input_ids=tokens, use_cache=False).logits[kept]
            for model in (original, converted)
        )
        finite = torch.isfinite(first) & torch.isfinite(second)  # a bias of minus infinity bans a token
        if not torch.equal(torch.isfinite(first), torch.isfinite(second)):
            return float("inf")
        largest = max(largest, float((first - second)[finite].abs().max()))
    return largest
