"""Choose among the translations of a teacher, and measure the chosen ones: warnings and forced scores."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.corpus_shards import CorpusShards, Shard
from vanilla_transformer.evaluation.pair_scores import score_pairs
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .arguments import BEAM, INTERPOLATED


class Candidate(NamedTuple):
    """
    A translation for the student.

    Attributes:
        target: The translation.
        warnings: See [`find_warnings`].
        score: Its log-probability for each token by forced decoding, in nats; None if it was not scored.
    """

    target: str
    warnings: list[str]
    score: float | None


@dataclass(frozen=True)
class Scorer:
    """
    A model that scores pairs by forced decoding.

    Attributes:
        reverse: It scores the source, given the translation.
    """

    model: Any
    tokenizer: Any
    reverse: bool

    def __call__(self, pairs: Iterable[SentencePair]) -> list[float]:
        """Return the log-probability for each token of one side of each pair, given the other side."""
        pairs = [SentencePair(pair.target, pair.source) for pair in pairs] if self.reverse else pairs
        scored = score_pairs(self.model, self.tokenizer, pairs)
        return [each.log_probability / len(each.tokens) for each in scored]


def choose_targets(hypotheses: Sequence[str], reference: str, kind: str) -> list[str]:
    """
    Return the translations of a sentence on which the student is trained. Blank ones are never chosen.

    Args:
        hypotheses: The translations of the teacher, best first.
        kind: Value of `teacher_targets`.
    """
    found = [text for text in hypotheses if text.strip()]
    if kind == BEAM:
        return found[:1]
    if kind == INTERPOLATED:
        return [max(found, key=lambda text: _sentence_bleu(text, reference))] if found else []
    return found


def write_candidates(
    shards: CorpusShards,
    lines: Iterable[str],
    total: int,
    kind: str,
    limits: WarningLimits,
    score: Callable[[Iterable[SentencePair]], list[float]] | None,
) -> None:
    """
    Choose and measure the translations of the shards that have no result yet.

    Args:
        lines: The source, the reference and the translations of each sentence, see [`as_line`].
        kind: Value of `teacher_targets`.
        score: Returns the score of each pair.
    """

    def work(shard: Shard) -> list[str]:
        rows = [json.loads(line) for line in shard.lines]
        chosen = [choose_targets(hypotheses, reference, kind) for _, reference, hypotheses in rows]
        pairs = [SentencePair(row[0], text) for row, texts in zip(rows, chosen, strict=True) for text in texts]
        scores = iter([None] * len(pairs) if score is None else score(pairs))
        return [
            json.dumps([[text, find_warnings(row[0], text, limits), next(scores)] for text in texts])
            for row, texts in zip(rows, chosen, strict=True)
        ]

    shards.complete(lines, work, total, "Filtering")


def read_candidates(shards: CorpusShards, total: int) -> Iterator[list[Candidate]]:
    """Yield the candidates of each sentence."""
    for line in shards.result_lines(total):
        yield [Candidate(*candidate) for candidate in json.loads(line)]


def as_line(pair: SentencePair, hypotheses: Sequence[str]) -> str:
    """Return the line of a sentence for [`write_candidates`]."""
    return json.dumps([*pair, hypotheses])


def _sentence_bleu(hypothesis: str, reference: str) -> float:
    return float(_BLEU.sentence_score(hypothesis, [reference]).score)


_BLEU = BLEU(effective_order=True)

__all__ = ["Candidate", "Scorer", "as_line", "choose_targets", "read_candidates", "write_candidates"]
