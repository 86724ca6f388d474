"""The translations of a teacher that a student may learn from, with their warnings and scores."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.corpus_shards import SHARD_LINES, CorpusShards, Shard
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
from vanilla_transformer.utils.device_utils import process_state

from .distillation_arguments import BEAM, INTERPOLATED, DistillationArguments

DIRECTION_SAMPLE = 64  # pairs by whose translation a teacher of another direction is noticed
_BLEU = BLEU(effective_order=True)

Scorer = Callable[[Sequence[SentencePair]], list[float]]


class Candidate(NamedTuple):
    """
    A translation for the student.

    Attributes:
        target: The translation.
        score: Its log-probability for each token by forced decoding, in nats; None if it was not scored.
    """

    target: str
    warnings: list[str]
    score: float | None


def open_teacher(options: DistillationArguments) -> AbstractContextManager[TranslationPipeline]:
    """Return a context with the pipeline of the teacher."""
    first, *others = options.teacher
    further = ensemble_arguments(others, options.teacher_weights)
    return open_pipeline(first, options.teacher_workers, options.teacher_precision, **further)


def load_teacher(options: DistillationArguments) -> tuple[Any, Any]:
    """Return the model of the teacher, or its ensemble, and its tokenizer."""
    first, *others = options.teacher
    model, tokenizer = load_seq2seq(first, "translates"), load_tokenizer(first)
    return load_ensemble(model, tokenizer, others or None, options.teacher_weights if others else None), tokenizer


def open_shards(folder: Path, options: DistillationArguments, text_key: str, overwrite: bool) -> CorpusShards:
    """Open the folder of a teacher's translations, or overwrite the ones of another teacher, text or choice."""
    names = ["teacher_weights", "teacher_num_beams", "teacher_precision", "hypotheses", "teacher_targets"]
    origin = {
        "text": text_key,
        "teacher": [*map(hash_model, options.teacher)],
        "reverse_model": None if options.reverse_model is None else hash_model(options.reverse_model),
        "options": {name: getattr(options, name) for name in names} | {"scores": options.drop_lowest_scores > 0},
    }
    shards = CorpusShards(folder, origin, SHARD_LINES)
    try:
        shards.open(resume=True)
    except UserError:
        if not overwrite:
            raise
        shards.delete()
        shards.open(resume=True)
    return shards


def translate_pairs(
    shards: CorpusShards, pairs: Callable[[], Iterator[SentencePair]], total: int, options: DistillationArguments
) -> None:
    """Translate the shards that have no result yet. The result of a pair is a JSON list of its candidates."""
    scorer = load_scorer(options)
    with open_teacher(options) as translate:
        check_direction(translate, [*islice(pairs(), DIRECTION_SAMPLE)])
        limits = WarningLimits.from_config(translate.model.config)

        def work(shard: Shard) -> list[str]:
            batch = [SentencePair(*json.loads(line)) for line in shard.lines]
            sources, search = [pair.source for pair in batch], search_options(options)
            answers = translate(sources, options.teacher_batch_size, False, **search)
            chosen = [
                choose_targets(answer, pair.target, options.teacher_targets)
                for answer, pair in zip(answers, batch, strict=True)
            ]
            return [*map(json.dumps, measure_candidates(sources, chosen, limits, scorer))]

        shards.complete(map(json.dumps, pairs()), work, total)


def search_options(options: DistillationArguments) -> dict[str, Any]:
    """Return the options of the teacher's search that differ from its checkpoint's."""
    search = {} if options.teacher_num_beams is None else {"num_beams": options.teacher_num_beams}
    return search | ({"num_return_sequences": options.hypotheses} if options.hypotheses > 1 else {})


def check_direction(translate: TranslationPipeline, pairs: Sequence[SentencePair]) -> None:
    """Check that a teacher translates in the direction of the text: better than its sources are as translations."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    texts = [answer["translation_text"] for answer in translate(sources, num_beams=1)]
    teacher, copies = score(texts, references).chrf, score(sources, references).chrf
    if teacher < copies:
        raise UserError(
            "The teacher must translate the source of the training text to its target, but its translations of "
            f"{len(texts)} sentences have chrF {teacher:.1f}, their sources {copies:.1f}. It translates "
            f"{sources[0]!r} as {texts[0]!r}. Name a teacher of this direction."
        )


def choose_targets(answers: Any, reference: str, kind: str) -> list[str]:
    """Return the translations on which the student is trained, given the pipeline's answers and `teacher_targets`."""
    answers = answers if isinstance(answers, list) else [answers]
    texts = [*dict.fromkeys(answer["translation_text"] for answer in answers)]
    texts = [text for text in texts if text.strip()]
    if kind == BEAM:
        return texts[:1]
    if kind == INTERPOLATED and texts:
        return [max(texts, key=lambda text: _BLEU.sentence_score(text, [reference]).score)]
    return texts


def measure_candidates(
    sources: Sequence[str], chosen: Sequence[Sequence[str]], limits: WarningLimits, scorer: Scorer | None
) -> list[list[Candidate]]:
    """Return the translations of each source with their warnings and scores."""
    pairs = [SentencePair(source, text) for source, texts in zip(sources, chosen, strict=True) for text in texts]
    scores = iter([None] * len(pairs) if scorer is None else scorer(pairs))
    return [
        [Candidate(text, find_warnings(source, text, limits), next(scores)) for text in texts]
        for source, texts in zip(sources, chosen, strict=True)
    ]


def load_scorer(options: DistillationArguments) -> Scorer | None:
    """Return a function for the log-probabilities of pairs, for each token: sources by a reverse model, or targets."""
    if not options.drop_lowest_scores:
        return None
    name = options.reverse_model
    model, tokenizer = (
        load_teacher(options) if name is None else (load_seq2seq(name, "scores translations"), load_tokenizer(name))
    )
    model = model.to(process_state().device)

    def score_all(pairs: Sequence[SentencePair]) -> list[float]:
        sides = pairs if name is None else [SentencePair(pair.target, pair.source) for pair in pairs]
        return [result.log_probability / len(result.tokens) for result in score_pairs(model, tokenizer, sides)]

    return score_all
