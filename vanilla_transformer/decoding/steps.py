"""
The protocol of decoding, and the step that belongs to no capability.

Whatever decodes is a [`Decode`]: an engine, or `generate()` of any model. A step takes a decode and
returns one, so reranking, terms and the text that must survive are steps around a search, and a new
one needs no change of the others:

    def add_full_stop(decode: Decode) -> Decode:
        def decode_with_full_stop(sentences, options, report):
            rows = decode(sentences, options, report)
            return [[each._replace(text=each.text + ".") for each in row] for row in rows]

        return decode_with_full_stop
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .forced_decoding import decoder_logits, pad, plan_scoring_batches
from .options import OptionError, TranslationOptions
from .segments import Sentence
from .translations import Translation

Report = Callable[[int], object]  # of the sentences that were translated since the last report


class Decode(Protocol):
    """Return the translations of each sentence, best first, as the options of their request say."""

    def __call__(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]: ...


Step = Callable[[Decode], Decode]
_MOST_TOKENS = 4096  # in a batch of prefixes


def complete_alternatives(decode: Decode, model: Any, tokenizer: Any) -> Decode:
    """Return the best translation after each of the most likely tokens after the prefix of each
    sentence.
    """

    def decode_alternatives(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        eos = (
            options.eos_token_id
            if isinstance(options.eos_token_id, list)
            else [options.eos_token_id]
        )
        special = [
            token for token in tokenizer.all_special_ids if token not in eos
        ]  # only EOS is an alternative
        prefixes = [sentence.prefix or () for sentence in sentences]
        count = options.count
        tokens = next_tokens(
            model, [sentence.tokens for sentence in sentences], prefixes, count, special
        )
        longer = [
            sentence._replace(prefix=[*prefix, token])
            for sentence, prefix, alternatives in zip(sentences, prefixes, tokens, strict=True)
            for token in alternatives
        ]
        completion_options = options.override(
            alternatives=None, target_prefix=options.target_prefix or "", num_return_sequences=1
        )
        best = [translation for (translation,) in decode(longer, completion_options, report)]
        return [best[start : start + count] for start in range(0, len(best), count)]

    return decode_alternatives


@torch.inference_mode()
def next_tokens(
    model: Any,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]],
    count: int,
    special: Sequence[int],
) -> list[list[int]]:
    """Return the most likely tokens after the prefix of each source, most likely first.

    Args:
        special: Tokens that no translation has. EOS is not among them.
    """
    start, device = model.generation_config.decoder_start_token_id, model.device
    entries = model.get_output_embeddings().weight.shape[0] - len({*special})
    if count > entries:
        raise OptionError(
            f"`alternatives` must be at most {entries}, as many as there are tokens, got {count}."
        )
    best: dict[int, list[int]] = {}
    sizes = [
        (len(source), len(prefix) + 1) for source, prefix in zip(sources, prefixes, strict=True)
    ]
    for batch in plan_scoring_batches(sizes, _MOST_TOKENS):
        ids, seen = pad([sources[index] for index in batch])
        previous, written = pad([[start, *prefixes[index]] for index in batch])
        ids, seen = ids.to(device), seen.to(device)
        previous, written = previous.to(device), written.to(device)
        logits = decoder_logits(model, ids, seen, previous).float()
        last = logits[torch.arange(len(batch), device=device), written.sum(dim=1) - 1]  # (B, V)
        last[:, list(special)] = -torch.inf
        best |= zip(batch, last.topk(count)[1].tolist(), strict=True)
    return [best[index] for index in range(len(sizes))]


def split_on_error(
    search: Callable[[Sequence[Any]], Sequence[Any]], items: Sequence[Any]
) -> list[Any]:
    """Return the results of a search, one for each item: None for an item that it refuses, alone or
    among others.
    """
    try:
        return [*search(items)]
    except OptionError:  # one of them has too many phrases, or the engine does not follow an option
        if len(items) < 2:
            return [None] * len(items)
        middle = len(items) // 2
        return [*split_on_error(search, items[:middle]), *split_on_error(search, items[middle:])]
