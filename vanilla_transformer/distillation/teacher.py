"""Translate a corpus by a teacher, shard by shard."""

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.corpus_shards import CorpusShards, Shard
from vanilla_transformer.decoding.engine_workers import open_pipeline
from vanilla_transformer.decoding.pretrained import (
    ensemble_arguments,
    hash_model,
    load_ensemble,
    load_seq2seq,
    load_tokenizer,
)
from vanilla_transformer.evaluation.scores import score

from .arguments import DistillationArguments

DIRECTION_SAMPLE = 64  # pairs by whose translation a teacher of another direction is noticed


def open_teacher(options: DistillationArguments) -> AbstractContextManager[TranslationPipeline]:
    """
    Return a context with the pipeline of the teacher.

    Raises:
        ValueError, OSError: On entry, if there is no such model, it does not translate, or the models of an ensemble
            have different vocabularies.
    """
    first, *others = options.teachers
    workers = int(options.teacher_workers) if options.teacher_workers.isdecimal() else options.teacher_workers
    further = ensemble_arguments(others, options.weights)
    return open_pipeline(first, workers, options.teacher_precision, options.teacher_num_beams, **further)


def load_teacher(options: DistillationArguments) -> tuple[Any, Any]:
    """
    Return the model of the teacher, or its ensemble, and its tokenizer.

    Raises:
        ValueError, OSError: See [`open_teacher`].
    """
    first, *others = options.teachers
    model, tokenizer = load_seq2seq(first, "translates"), load_tokenizer(first)
    return load_ensemble(model, tokenizer, others or None, options.weights if others else None), tokenizer


def translation_origin(options: DistillationArguments, text_key: str) -> dict[str, Any]:
    """Return all that the hypotheses of a teacher depend on, see [`CorpusShards`].

    Args:
        text_key: A hash of the text.
    """
    names = ("weights", "teacher_num_beams", "teacher_precision", "hypotheses")
    chosen = {name: getattr(options, name) for name in names}
    return {"text": text_key, "teacher": [*map(hash_model, options.teachers)], "options": chosen}


def check_direction(translate: TranslationPipeline, pairs: Sequence[SentencePair]) -> None:
    """Check that a teacher translates in the direction of the text: better than its sources are as translations.

    Raises:
        ValueError: It does not.
    """
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    texts = [answer["translation_text"] for answer in translate(sources, num_beams=1)]
    ours, copies = score(texts, references).chrf, score(sources, references).chrf
    if ours < copies:
        rule = "The teacher must translate the source of the training text to its target"
        found = f"its translations of {len(texts)} sentences have chrF {ours:.1f}, their sources {copies:.1f}"
        example = f"It translates {sources[0]!r} as {texts[0]!r}"
        raise ValueError(f"{rule}, but {found}. {example}. Name a teacher of this direction.")


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


__all__ = [
    "DIRECTION_SAMPLE",
    "check_direction",
    "load_teacher",
    "open_teacher",
    "translation_origin",
    "write_hypotheses",
]
