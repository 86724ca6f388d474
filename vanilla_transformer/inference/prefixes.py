"""Target prefixes of a request: the tokens with which translations begin, and the alternatives after them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import torch

from .engine.prefill import reads_padding
from .forced_decoding import decoder_logits, plan_batches
from .search.lexical_constraints import ConstraintError
from .search.option_error import OptionError

_RULE = "`target_prefix` must be a string, or one for each text"
_MOST_TOKENS = 4096  # in a batch of forced decoding


@dataclass(frozen=True)
class AlternativeOptions:
    """
    Options of a request for alternatives.

    Args:
        alternatives: The number of most likely tokens after a prefix, each of which one translation completes.

    Raises:
        ValueError: The number is out of range.
    """

    alternatives: int | None = None

    def __post_init__(self) -> None:
        count = self.alternatives
        if count is not None and (type(count) is not int or count < 1):
            raise OptionError(f"`alternatives` must be an integer of 1 or more, got {count!r}.")

    def check_alone(self, options: Mapping[str, Any]) -> None:
        """Check that the other options of the request fit alternatives.

        Raises:
            ValueError: One does not.
        """
        others = [name for name in ("num_return_sequences", "do_sample", "mbr", "seed") if options.get(name)]
        if others:
            raise OptionError(f"`alternatives` are completed by one search each. Leave `{others[0]}` out.")


class TextPrefixes:
    """
    Tokenize the prefix of each text of a request, in the order of the texts.

    Args:
        given: A string for all texts, or an iterable with the string of each one.
        tokenizer: Of the translations.
        count: The number of texts, if it is known.

    Raises:
        ConstraintError: A prefix is not a string, or has unknown tokens.
    """

    def __init__(self, given: Any, tokenizer: Any, count: int | None = None):
        self._tokenizer, self._is_shared = tokenizer, isinstance(given, str)
        if isinstance(given, Mapping) or not isinstance(given, Iterable):
            raise ConstraintError(f"{_RULE}, got {given!r}.")
        if not self._is_shared and isinstance(given, Sized) and count not in (None, len(given)):
            raise ConstraintError(f"{_RULE}, but there are {len(given)} for {count} texts.")
        self._each: Iterator[list[int]] = (
            repeat(self._tokenize(given)) if self._is_shared else map(self._tokenize, given)
        )

    def of_segments(self, counts: Sequence[int]) -> list[list[int]]:
        """Return the prefix of each segment of the next texts, which have so many segments: of the first one only.

        Raises:
            ConstraintError: A text has no string, or is blank and has its own prefix.
        """
        prefixes = list(islice(self._each, len(counts)))
        if len(prefixes) < len(counts):
            raise ConstraintError(f"{_RULE}, but there are {len(prefixes)} for {len(counts)} texts.")
        if not self._is_shared and any(own and not count for own, count in zip(prefixes, counts, strict=True)):
            raise ConstraintError("A blank text must not have a target prefix, got one.")
        none: list[int] = []
        return [
            own if place == 0 else none for own, count in zip(prefixes, counts, strict=True) for place in range(count)
        ]

    def _tokenize(self, prefix: Any) -> list[int]:
        if not isinstance(prefix, str):
            raise ConstraintError(f"{_RULE}, got {prefix!r}.")
        words = " ".join(prefix.split())
        if not words:
            return []
        tokens = self._tokenizer(text_target=[words], add_special_tokens=False)["input_ids"][0]
        wrong = [token for token in tokens if token in self._tokenizer.all_special_ids]
        if wrong or not tokens:
            found = self._tokenizer.convert_ids_to_tokens(wrong[0]) if wrong else "no token"
            raise ConstraintError(f"A target prefix must be in the model's vocabulary, but {prefix!r} gives {found}.")
        return list(tokens)


@torch.inference_mode()
def next_tokens(
    model: Any, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], count: int, special: Sequence[int]
) -> list[list[int]]:
    """Return the most likely tokens after the prefix of each source, most likely first.

    Args:
        special: Tokens that no translation has. EOS is not among them.

    Raises:
        ValueError: The vocabulary has fewer tokens.
    """
    start, device = model.generation_config.decoder_start_token_id, model.device
    entries = model.get_output_embeddings().weight.shape[0] - len({*special})
    if count > entries:
        raise OptionError(f"`alternatives` must be at most {entries}, as many as there are tokens, got {count}.")
    found = dict[int, list[int]]()
    sizes = [(len(source), len(prefix) + 1) for source, prefix in zip(sources, prefixes, strict=True)]
    for batch in plan_batches(sizes, _MOST_TOKENS, reads_padding(model)):
        ids, seen = _padded([sources[index] for index in batch], device)
        previous, written = _padded([[start, *prefixes[index]] for index in batch], device)
        logits = decoder_logits(model, ids, seen, previous).float()
        last = logits[torch.arange(len(batch), device=device), written.sum(dim=1) - 1]  # (B, V)
        last[:, list(special)] = -torch.inf
        found |= zip(batch, last.topk(count)[1].tolist(), strict=True)
    return [found[index] for index in range(len(sizes))]


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids, padded on the right, and a mask with 1 for tokens, `(B, length)` each."""
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([torch.tensor(row) for row in rows], batch_first=True)
    return ids.to(device), pad([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True).to(device)


__all__ = ["AlternativeOptions", "TextPrefixes", "next_tokens"]
