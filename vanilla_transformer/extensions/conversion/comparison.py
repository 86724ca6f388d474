"""Convert by a reader or a writer, and compare a model before and after its conversion."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import MarianMTModel, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.pretrained import load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.outputs import check_output_dir_is_empty
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .common import load_model, reading
from .formats import Format, Translator, convert

# The same for every comparison.
BATCH_SIZE = 16
MAX_NEW_TOKENS = 128
# In float32 both models differ by rounding, at most by Marian's other layer-norm epsilon.
_MAX_LOGIT_DIFFERENCE = 0.05
_MIN_IDENTICAL = 0.9  # rounding decides between tokens that are about equally likely
_ADDED_TOKENS = 8  # in a sentence
# Names of data types in which a converted model must be the same.
_FLOAT32 = ("float32", "fp32")


class Comparison(NamedTuple):
    """Differences between the original and the converted model.

    Attributes:
        num_sentences: Sentences translated by both.
        num_identical: Sentences with the same token ids.
        max_logit_difference: The largest absolute difference, or None if a runtime does not return
            logits.
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


class Comparisons(dict[str, Comparison]):
    """The comparison of each data type with the original."""

    def __str__(self) -> str:
        return "; ".join(f"{dtype}: {comparison}" for dtype, comparison in self.items())


def convert_from(
    form: Format,
    source: str | Path,
    output_dir: str | Path,
    sentences: Sequence[str],
    **languages: Sequence[str],
) -> Comparison | None:
    """Convert a model of a toolkit to a model folder of this package.

    Args:
        sentences: Sentences to translate with both models.

    Returns:
        None if the original cannot run here.
    """
    check_output_dir_is_empty(output_dir)
    with reading(source, form.toolkit):
        model, tokenizer, original = convert(form, source, **languages)
        comparison = None if original is None else compare(original, model, tokenizer, sentences)
        if comparison is not None:
            require_same(comparison, model, tokenizer, sentences)
    save_model_folder(model, tokenizer, output_dir)
    return comparison


def convert_to(
    write: Callable[..., Iterable[tuple[Any, ...]]],
    folder: str | Path,
    output_dir: str | Path,
    sentences: Sequence[str],
    **options: Any,
) -> Comparison | Comparisons | None:
    """Convert a model folder of this package to the format of another toolkit.

    Args:
        write: Takes the model, its tokenizer, the folder to write into and `options`. It returns
            data types, each with the converted model or a translator that runs it, which in float32
            must be the same as the original, and perhaps with a translator that runs the original
            within the limits of the other.

    Returns:
        None if no converted model can run here.
    """
    check_output_dir_is_empty(output_dir)
    original = load_model(VanillaTransformerForConditionalGeneration, folder)
    tokenizer = load_tokenizer(folder)
    comparisons = Comparisons()
    with atomic_folder(output_dir) as temporary:
        for dtype, converted, *limited in write(original, tokenizer, temporary, **options):
            before = limited[0] if limited else original
            comparisons[dtype] = compare(before, converted, tokenizer, sentences)
            if dtype in _FLOAT32:
                require_same(comparisons[dtype], original, tokenizer, sentences)
    return comparisons if len(comparisons) > 1 else next(iter(comparisons.values()), None)


def compare(
    original: PreTrainedModel | Translator,
    converted: PreTrainedModel | Translator,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> Comparison:
    """
    Compare a model of this package with another one, or with a translator that runs it.

    Both translate by greedy search, after a batch to warm up. Token ids are compared without
    special tokens, and of two models also the logits along the original's tokens. Each added token
    of the vocabulary is in a sentence: a runtime may not know it.
    """
    import sacrebleu  # which a machine with a GPU may lack that runs benchmarks

    if not sentences:
        raise UserError("A comparison needs at least one sentence, got none.")
    models = [model for model in (original, converted) if isinstance(model, PreTrainedModel)]
    for most in (
        model.config.max_position_embeddings for model in models if isinstance(model, MarianMTModel)
    ):
        for number, ids in enumerate(tokenizer([*sentences])["input_ids"], start=1):
            if len(ids) > most:
                raise UserError(
                    f"Sentences to compare must have at most {most} tokens, for which "
                    f"MarianMTModel has positions, got {len(ids)} in sentence {number}. Leave it "
                    "out of --sentences."
                )
    named = tokenizer.special_tokens_map.values()
    added = [token for token in tokenizer.get_added_vocab() if token not in named]
    starts = range(0, len(added), _ADDED_TOKENS)
    marked = [" ".join(added[start : start + _ADDED_TOKENS]) for start in starts]
    texts, outputs, seconds = [*sentences, *marked], [], []
    translators = [
        greedy_translator(side, tokenizer) if isinstance(side, PreTrainedModel) else side
        for side in (original, converted)
    ]
    for translate in translators:
        translate(texts[:BATCH_SIZE])
    for translate in translators:
        start = time.perf_counter()
        outputs.append(translate(texts))
        seconds.append(time.perf_counter() - start)
    num_identical = sum(first == second for first, second in zip(*outputs, strict=True))
    before, after = (
        rows if isinstance(rows[0], str) else tokenizer.batch_decode(rows, skip_special_tokens=True)
        for rows in outputs
    )
    chrf = sacrebleu.corpus_chrf(after, [before]).score
    difference: float | None = None
    if len(models) == 2:
        difference = _max_logit_difference(models, tokenizer, sentences)
    ratio = seconds[0] / seconds[1]
    return Comparison(len(texts), num_identical, difference, ratio, chrf)


def require_same(
    comparison: Comparison,
    ours: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
) -> None:
    """Raise an error if the models of a comparison differ by more than rounding in float32.

    Both may be wrong in the same way. So the engine, which computes the decoder by other code, must
    agree, too.
    """
    difference = comparison.max_logit_difference
    if difference is None:
        same = comparison.num_identical >= _MIN_IDENTICAL * comparison.num_sentences
    else:
        same = difference <= _MAX_LOGIT_DIFFERENCE
    if not same:
        raise UserError(
            f"The converted model must compute what the original does, but does not: {comparison}. "
            "Nothing was written. Report this with the options of the model."
        )
    first_sentences = sentences[: 2 * BATCH_SIZE]
    greedy = _greedy_options(ours)
    options = TranslationOptions.resolve(greedy, None, ours.generation_config)
    engine = EnginePool(ours.eval(), compile=False).find(options)
    if engine is None:  # which does not follow an option of the model
        return
    outputs = [
        greedy_translator(ours, tokenizer, **further)(first_sentences)
        for further in ({}, {"custom_generate": engine})
    ]
    identical = sum(first == second for first, second in zip(*outputs, strict=True))
    if identical < _MIN_IDENTICAL * len(first_sentences):
        raise UserError(
            "The engine of this package must translate as `generate()` of transformers does with "
            f"the model, but does not: {identical} of {len(first_sentences)} outputs identical. "
            "Nothing was written. Report this with the options of the model."
        )


def tokenized_batches(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield `input_ids` and `attention_mask` of `BATCH_SIZE` sentences at a time."""
    for start in range(0, len(sentences), BATCH_SIZE):
        texts = list(sentences[start : start + BATCH_SIZE])
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        yield {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}


def greedy_translator(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **further: Any
) -> Translator:
    """Return a translator that runs `model` by greedy search.

    Args:
        further: Arguments of `generate()`.
    """
    options = _greedy_options(model) | further
    special = {
        model.config.pad_token_id,
        model.config.eos_token_id,
        model.config.decoder_start_token_id,
    }

    @torch.no_grad()
    def translate(sentences: Sequence[str]) -> list[list[int]]:
        model.eval()
        rows: list[list[int]] = []
        for inputs in tokenized_batches(tokenizer, sentences):
            rows += model.generate(**inputs, **options).tolist()
        translations = []
        for row in rows:
            translations.append([token for token in row if token not in special])
        return translations

    return translate


def _greedy_options(model: PreTrainedModel) -> dict[str, Any]:
    """Return the arguments of `generate()`.

    Padding is suppressed because only some toolkits can generate it.
    """
    pad = model.config.pad_token_id
    return {
        "num_beams": 1,
        "do_sample": False,
        "max_new_tokens": MAX_NEW_TOKENS,
        "suppress_tokens": [pad],
    }


@torch.no_grad()
def _max_logit_difference(
    models: Sequence[PreTrainedModel], tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]
) -> float:
    """Return the largest absolute difference of two models' logits, over all tokens that the first
    one generates.
    """
    original = models[0]
    largest = 0.0
    for inputs in tokenized_batches(tokenizer, sentences):
        tokens = original.eval().generate(**inputs, **_greedy_options(original))
        kept = tokens.ne(original.config.pad_token_id)
        kept[:, 0] = True  # Marian's start token is padding
        logits_of_models = []
        for model in models:
            outputs = model.eval()(**inputs, decoder_input_ids=tokens, use_cache=False)
            logits_of_models.append(outputs.logits[kept])
        first, second = logits_of_models
        # One may have more entries, and a number that all logits of a token share changes no
        # probability.
        size = min(first.shape[-1], second.shape[-1])
        first = first[:, :size].log_softmax(dim=-1)
        second = second[:, :size].log_softmax(dim=-1)
        # A bias of minus infinity bans a token.
        finite = torch.isfinite(first) & torch.isfinite(second)
        has_same_finite = torch.equal(torch.isfinite(first), torch.isfinite(second))
        if not has_same_finite or first.isnan().any():
            return float("inf")
        largest = max(largest, float((first - second)[finite].abs().max()))
    return largest
