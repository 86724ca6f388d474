"""Score given translations by a model."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from transformers.utils import logging

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.corpus_shards import Shard
from vanilla_transformer.decoding.forced_decoding import encode_as_trained, score_tokens
from vanilla_transformer.decoding.pretrained import load_ensemble, load_seq2seq, load_tokenizer
from vanilla_transformer.decoding.token_texts import token_texts
from vanilla_transformer.machine.cores import process_state
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    pairs: Iterable[SentencePair],
    max_tokens: int = 2048,
    total: int | None = None,
    direction: Direction = NO_DIRECTION,
) -> Iterator[ScoredPair]:
    """
    Yield the score of each pair in order, with a window of the pairs in memory. The model stays on
    its device.

    Args:
        total: The number of pairs, for the progress bar on a terminal.
        direction: The languages of the pairs, for a model that has several.
    """
    pairs = iter(pairs)
    with logging.tqdm(total=total, unit="pair", desc="Scoring", disable=None) as bar:
        while window := list(islice(pairs, WINDOW)):
            texts = [pair.source for pair in window]
            translations = [pair.target for pair in window]
            sources, targets = encode_as_trained(model, tokenizer, texts, translations, direction)
            scores = score_tokens(model, sources, targets, max_tokens)
            bar.update(len(window))
            yield from map(ScoredPair, targets, scores)


def measure_loss(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    pairs: Iterable[tuple[str, str]],
    direction: Direction = NO_DIRECTION,
) -> float:
    """Return the cross-entropy of (source, target) pairs, in nats per target token, EOS
    included.
    """
    total, tokens = 0.0, 0
    sentence_pairs = map(SentencePair._make, pairs)
    for pair in score_pairs(model, tokenizer, sentence_pairs, direction=direction):
        total -= pair.log_probability
        tokens += len(pair.tokens)
    return total / tokens


class PairScorer:
    """Score pairs of sentences by a model, or shards of lines that have a sentence and its
    translation in two lines.

    A worker of a cluster makes its own, since it loads the model.

    Args:
        name: Folder or Hub name of the model.
        languages: Returns `src_lang` and `tgt_lang` of the text for the model's tokenizer, if it
            has several.
        with_tokens: Describe a pair as a JSON object with its tokens, not by the log-probability
            alone.
    """

    def __init__(
        self,
        name: str,
        ensemble: Sequence[str] | None,
        weights: Sequence[float] | None,
        languages: Callable[["PreTrainedTokenizerBase"], Mapping[str, str]],
        max_tokens: int = 2048,
        with_tokens: bool = False,
    ):
        model = load_seq2seq(name, "scores translations").to(process_state().device)
        self._tokenizer = load_tokenizer(name)
        self._max_tokens = max_tokens
        self._with_tokens = with_tokens
        self._model = load_ensemble(model, self._tokenizer, ensemble, weights)
        codes = languages(self._tokenizer)
        self._direction = Direction(codes.get("src_lang"), codes.get("tgt_lang"))

    def __call__(self, shard: Shard) -> list[str]:
        pairs = [SentencePair(*line.split("\n")) for line in shard.lines]
        return [*self.describe(pairs, pairs, len(pairs))]

    def describe(
        self, texts: Iterable[SentencePair], pairs: Iterable[SentencePair], total: int | None = None
    ) -> Iterator[str]:
        """Yield the score of each pair as a line; `texts` are the same pairs, read once more."""
        scored = score_pairs(
            self._model, self._tokenizer, pairs, self._max_tokens, total, self._direction
        )
        for text, pair in zip(texts, scored, strict=True):
            if not self._with_tokens:
                yield f"{pair.log_probability:.6f}"
                continue
            shown = token_texts(self._tokenizer, pair.tokens)
            rows = zip(shown, pair.token_log_probabilities, strict=True)
            entry: dict[str, Any] = text._asdict()
            entry["log_probability"] = pair.log_probability
            entry["tokens"] = [{"text": token, "log_probability": value} for token, value in rows]
            yield json.dumps(entry, ensure_ascii=False)
