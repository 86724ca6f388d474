"""The translations of a teacher, and the choice and the scores of those that a student learns from."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.corpus_shards import CorpusShards, Shard
from vanilla_transformer.decoding.loading import open_pipeline
from vanilla_transformer.decoding.pretrained import (
    ensemble_arguments,
    hash_model,
    load_ensemble,
    load_seq2seq,
    load_tokenizer,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.pair_scores import score_pairs
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .distillation_arguments import BEAM, INTERPOLATED, DistillationArguments

DIRECTION_SAMPLE = 64  # pairs by whose translation a teacher of another direction is noticed


def open_teacher(options: DistillationArguments) -> AbstractContextManager[TranslationPipeline]:
    """Return a context with the pipeline of the teacher."""
    first, *others = options.teacher
    workers = int(options.teacher_workers) if options.teacher_workers.isdecimal() else options.teacher_workers
    further = ensemble_arguments(others, options.teacher_weights)
    return open_pipeline(first, workers, options.teacher_precision, options.teacher_num_beams, **further)


def load_teacher(options: DistillationArguments) -> tuple[Any, Any]:
    """Return the model of the teacher, or its ensemble, and its tokenizer."""
    first, *others = options.teacher
    model, tokenizer = load_seq2seq(first, "translates"), load_tokenizer(first)
    return load_ensemble(model, tokenizer, others or None, options.teacher_weights if others else None), tokenizer


def translation_origin(options: DistillationArguments, text_key: str) -> dict[str, Any]:
    """Return all that the hypotheses of a teacher depend on, see [`CorpusShards`].

    Args:
        text_key: A hash of the text.
    """
    names = ("teacher_weights", "teacher_num_beams", "teacher_precision", "hypotheses")
    chosen = {name: getattr(options, name) for name in names}
    return {"text": text_key, "teacher": [*map(hash_model, options.teacher)], "options": chosen}


def check_direction(translate: TranslationPipeline, pairs: Sequence[SentencePair]) -> None:
    """Check that a teacher translates in the direction of the text: better than its sources are as translations."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    texts = [answer["translation_text"] for answer in translate(sources, num_beams=1)]
    ours, copies = score(texts, references).chrf, score(sources, references).chrf
    if ours < copies:
        rule = "The teacher must translate the source of the training text to its target"
        found = f"its translations of {len(texts)} sentences have chrF {ours:.1f}, their sources {copies:.1f}"
        example = f"It translates {sources[0]!r} as {texts[0]!r}"
        raise UserError(f"{rule}, but {found}. {example}. Name a teacher of this direction.")


def write_hypotheses(
    shards: CorpusShards,
    sources: Iterable[str],
    total: int,
    options: DistillationArguments,
    translate: TranslationPipeline,
) -> None:
    """Translate the shards that have no result yet. The result of a line is a JSON list of translations, best first.

    Args:
        sources: The sentences of the text.
    """
    search = {"num_beams": options.teacher_num_beams} if options.teacher_num_beams is not None else {}
    search |= {"num_return_sequences": options.hypotheses} if options.hypotheses > 1 else {}

    def work(shard: Shard) -> list[str]:
        answers = translate(shard.lines, options.teacher_batch_size, False, **search)
        return [_as_json(answer if isinstance(answer, list) else [answer]) for answer in answers]

    shards.complete(sources, work, total, "Translating")


def _as_json(answers: Sequence[dict[str, Any]]) -> str:
    texts = dict.fromkeys(answer["translation_text"] for answer in answers)
    return json.dumps([*texts], ensure_ascii=False)


class CandidatePair(NamedTuple):
    """
    A translation for the student.

    Attributes:
        target: The translation.
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


def read_candidates(shards: CorpusShards, total: int) -> Iterator[list[CandidatePair]]:
    """Yield the candidates of each sentence."""
    for line in shards.result_lines(total):
        yield [CandidatePair(*candidate) for candidate in json.loads(line)]


def as_line(pair: SentencePair, hypotheses: Sequence[str]) -> str:
    """Return the line of a sentence for [`write_candidates`]."""
    return json.dumps([*pair, hypotheses])


def _sentence_bleu(hypothesis: str, reference: str) -> float:
    return float(_BLEU.sentence_score(hypothesis, [reference]).score)


_BLEU = BLEU(effective_order=True)
