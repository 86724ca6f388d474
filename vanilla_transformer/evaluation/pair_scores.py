"""Score given translations by a model, on one process or on all processes that Accelerate started."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from accelerate.utils import gather_object
from transformers.utils import logging

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.forced_decoding import encode_as_trained, score_tokens
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .scores import interleave, process_state

WINDOW = 8192  # pairs that are in memory at once, sorted by length


class ScoredPair(NamedTuple):
    """The tokens of a translation, EOS included, and the log-probability of each, in nats."""

    tokens: list[int]
    token_log_probabilities: list[float]

    @property
    def log_probability(self) -> float:
        """The log-probability of the translation, given its source."""
        return sum(self.token_log_probabilities)


def score_pairs(
    model: Any,
    tokenizer: Any,
    pairs: Iterable[SentencePair],
    max_tokens: int = 2048,
    total: int | None = None,
    direction: Direction = NO_DIRECTION,
) -> Iterator[ScoredPair]:
    """
    Yield the score of each pair in order, on every process, with a window of the pairs in memory.

    Process k of n scores the pairs k, k + n, k + 2n, … of each window. All processes must call this function with the
    same pairs and read it to its end, since they wait for each other. The model stays on its device.

    Args:
        max_tokens: See [`score_tokens`].
        total: The number of pairs, for the progress bar of the main process on a terminal.
        direction: The languages of the pairs, for a model that has several.
    """
    state, pairs = process_state(), iter(pairs)
    hidden = None if state.is_main_process else True
    with logging.tqdm(total=total, unit="pair", desc="Scoring", disable=hidden) as bar:
        while window := list(islice(pairs, WINDOW)):
            share = window[state.process_index :: state.num_processes]
            scored = interleave(gather_object([_score(model, tokenizer, share, max_tokens, direction)]))
            bar.update(len(window))
            yield from scored


def _score(
    model: Any, tokenizer: Any, pairs: Sequence[SentencePair], max_tokens: int, direction: Direction
) -> list[ScoredPair]:
    texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
    sources, targets = encode_as_trained(model, tokenizer, *texts, direction)
    return [*map(ScoredPair, targets, score_tokens(model, sources, targets, max_tokens))]
