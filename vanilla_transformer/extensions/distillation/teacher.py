"""The translations that a student may learn from, of a teacher or of a file, with their warnings
and scores.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.cli.flags import cluster_work, enter_for_good
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.corpus_shards import (
    SHARD_LINES,
    CorpusShards,
    Shard,
    ShardWork,
    work_in_turn,
)
from vanilla_transformer.decoding.open_pipeline import open_pipeline
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
from vanilla_transformer.machine.cores import process_state
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages
from vanilla_transformer.text.protection import find_kept, locate
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .candidates import DistillationText, Entry
from .distillation_arguments import BEAM, INTERPOLATED, DistillationArguments

# Reasons to drop a translation: it has no text, repeats another one of its source, or lacks text to
# keep.
UNUSABLE = EMPTY, REPEATED = "empty", "repeated"
PLACEHOLDER = "placeholder"
# Pairs by whose translation a teacher of another direction is noticed.
DIRECTION_SAMPLE = 64
logger = logging.getLogger(__name__)
_BLEU = BLEU(effective_order=True)

Scorer = Callable[[Sequence[SentencePair]], list[float]]


class Candidate(NamedTuple):
    """
    A translation for the student.

    Attributes:
        target: The translation.
        warnings: Reasons to drop it.
        scores: Numbers by models, and in its file. Log-probabilities are for each token, by forced
            decoding, in nats.
    """

    target: str
    warnings: list[str]
    scores: list[float]


def is_dropped(candidate: Candidate, drop_warnings: bool) -> bool:
    """Return whether a candidate is dropped before any score counts."""
    return bool(candidate.warnings) and (drop_warnings or candidate.warnings[0] in UNUSABLE)


def open_teacher(options: DistillationArguments) -> AbstractContextManager[TranslationPipeline]:
    """Return a context with the pipeline of the teacher."""
    first, *others = options.teacher
    further = ensemble_arguments(others, options.teacher_weights)
    return open_pipeline(first, options.teacher_workers, options.teacher_precision, **further)


def load_models(names: Sequence[str], weights: Sequence[float] | None) -> tuple[Any, Any]:
    """Return a model, or an ensemble, and its tokenizer."""
    first, *others = names
    model, tokenizer = load_seq2seq(first, "translates"), load_tokenizer(first)
    ensemble = load_ensemble(model, tokenizer, others or None, weights if others else None)
    return ensemble, tokenizer


def open_shards(
    folder: Path,
    options: DistillationArguments,
    text: DistillationText,
    further: Mapping[str, Any],
    overwrite: bool,
) -> CorpusShards:
    """Open the folder of translations, or overwrite the ones of another teacher, text, choice or
    `further` thing.
    """
    names = [
        "teacher_weights",
        "teacher_num_beams",
        "teacher_precision",
        "hypotheses",
        "teacher_targets",
    ]
    names = names if options.teacher else ["drop_warnings"]
    models = [*map(hash_model, options.teacher)]
    origin: dict[str, Any] = {"text": text.key, "teacher": models}
    for name in ("reverse_model", "quality_model"):
        model = getattr(options, name)
        origin[name] = None if model is None else hash_model(model)
    choices = {name: getattr(options, name) for name in names}
    origin["options"] = choices | {"scores": options.needs_scores}
    origin |= further
    shards = CorpusShards(folder, origin, SHARD_LINES, text.total)
    try:
        shards.open(resume=True)
    except UserError:
        if not overwrite:
            raise
        shards.delete()
        shards.open(resume=True)
    return shards


def translate_text(
    shards: CorpusShards,
    text: DistillationText,
    options: DistillationArguments,
    direction: Direction,
    limits: WarningLimits,
    test: Sequence[SentencePair],
) -> None:
    """
    Translate the shards that have no result yet, or take their candidates, and score them.

    The result is a JSON list of the number of the corpus, the source and its candidates.
    """
    pairs = []
    for entry in islice(text.entries(), DIRECTION_SAMPLE):
        if entry.reference is not None:
            pairs.append(SentencePair(entry.source, entry.reference))
    opening = partial(
        open_work, options, direction, limits, text.total, pairs or test[:DIRECTION_SAMPLE]
    )
    lines = map(json.dumps, text.entries())
    work = cluster_work(options, partial(enter_for_good, opening))
    if work is not None:
        shards.complete(lines, work)
        return
    with opening() as work_here:
        shards.complete(lines, partial(work_in_turn, work=work_here))


@contextmanager
def open_work(
    options: DistillationArguments,
    direction: Direction,
    limits: WarningLimits,
    total: int,
    pairs: Sequence[SentencePair],
) -> Iterator[ShardWork]:
    """Yield the function that translates and scores a shard, once the teacher is found to translate
    in the direction of `pairs`.
    """
    scorers = load_scorers(options, direction)
    opening: AbstractContextManager[TranslationPipeline | None] = nullcontext()
    if options.teacher:
        opening = open_teacher(options)
    with opening as translate:
        languages: dict[str, str] = {}
        if translate:
            languages = language_options(translate.tokenizer, direction)
            check_direction(translate, pairs, languages)

        def work(shard: Shard) -> list[str]:
            entries = [Entry(*json.loads(line)) for line in shard.lines]
            if translate:
                sources = [entry.source for entry in entries]
                search = search_options(options) | languages
                answers = translate(sources, options.teacher_batch_size, False, **search)
                rows = zip(entries, answers, strict=True)
                for number, (entry, answer) in enumerate(rows):
                    reference = entry.reference or ""
                    texts = choose_targets(answer, reference, options.teacher_targets)
                    entries[number] = entry._replace(candidates=texts)
            drop_warnings = options.drop_warnings and not translate
            measured = measure_candidates(entries, limits, scorers, drop_warnings)
            logger.info("%s of %s are done.", shard, f"{total:,}")
            lines = []
            for entry, candidates in zip(entries, measured, strict=True):
                lines.append(json.dumps([entry.corpus, entry.source, candidates]))
            return lines

        yield work


def search_options(options: DistillationArguments) -> dict[str, Any]:
    """Return the options of the teacher's search that differ from its checkpoint's."""
    search = {}
    if options.teacher_num_beams is not None:
        search["num_beams"] = options.teacher_num_beams
    if options.hypotheses > 1:
        search["num_return_sequences"] = options.hypotheses
    return search


def language_options(tokenizer: PreTrainedTokenizerBase, direction: Direction) -> dict[str, str]:
    """Return the options of the pipeline that name a direction, if the model has several
    languages.
    """
    languages = find_languages(tokenizer)
    codes = NO_DIRECTION if languages is None else languages.resolve(*direction)
    options = {}
    for name, code in zip(("src_lang", "tgt_lang"), codes, strict=True):
        if code is not None:
            options[name] = code
    return options


def check_direction(
    translate: TranslationPipeline, pairs: Sequence[SentencePair], languages: Mapping[str, str]
) -> None:
    """Check that a teacher translates in the direction of the text: better than its sources are as
    translations.
    """
    sources = [pair.source for pair in pairs]
    references = [pair.target for pair in pairs]
    answers = translate(sources, num_beams=1, **languages)
    texts = [answer["translation_text"] for answer in answers]
    teacher, copies = score(texts, references).chrf, score(sources, references).chrf
    if teacher < copies:
        raise UserError(
            "The teacher must translate the source of the text to its target, but its translations "
            f"of {len(texts)} sentences have chrF {teacher:.1f}, their sources {copies:.1f}. It "
            f"translates {sources[0]!r} as {texts[0]!r}. Name a teacher of this direction."
        )


def choose_targets(
    answers: Mapping[str, Any] | list[Mapping[str, Any]], reference: str, kind: str
) -> list[str]:
    """Return the translations on which the student is trained, given the pipeline's answers and
    `teacher_targets`.
    """
    if not isinstance(answers, list):
        answers = [answers]
    texts = [*dict.fromkeys(answer["translation_text"] for answer in answers)]
    texts = [text for text in texts if text.strip()]
    if kind == BEAM:
        return texts[:1]
    if kind == INTERPOLATED and texts:
        return [max(texts, key=lambda text: _BLEU.sentence_score(text, [reference]).score)]
    return texts


def find_reasons(source: str, texts: Sequence[str], limits: WarningLimits) -> Iterator[list[str]]:
    """Yield the reasons to drop each translation of a source: one of `UNUSABLE`, or warnings."""
    kept, seen = find_kept(source), set[str]()
    for text in texts:
        if not text.strip() or text in seen:
            yield [REPEATED if text.strip() else EMPTY]
        else:
            reasons = find_warnings(source, text, limits)
            if kept and locate(kept, text) is None:
                reasons.append(PLACEHOLDER)
            yield reasons
        seen.add(text)


def measure_candidates(
    entries: Sequence[Entry],
    limits: WarningLimits,
    scorers: Sequence[Scorer],
    drop_warnings: bool = False,
) -> list[list[Candidate]]:
    """Return the translations of each source with their warnings, and scores of those that are not
    dropped.
    """
    measured: list[list[Candidate]] = []
    usable: list[tuple[Entry, int, Candidate]] = []
    for entry in entries:
        texts = entry.candidates or []
        reasons = find_reasons(entry.source, texts, limits)
        candidates = []
        for index, (text, warnings) in enumerate(zip(texts, reasons, strict=True)):
            candidate = Candidate(text, warnings, [])
            candidates.append(candidate)
            if not is_dropped(candidate, drop_warnings):
                usable.append((entry, index, candidate))
        measured.append(candidates)
    pairs = [SentencePair(entry.source, candidate.target) for entry, _, candidate in usable]
    columns = [scorer(pairs) for scorer in scorers if pairs]
    for (entry, index, candidate), *scores in zip(usable, *columns, strict=True):
        candidate.scores.extend(scores)
        if entry.scores:
            candidate.scores.append(entry.scores[index])
    return measured


def load_scorers(options: DistillationArguments, direction: Direction) -> list[Scorer]:
    """Return functions for the scores of pairs: by the reverse model and the quality model, or by
    the teacher.
    """
    name, scorers = options.reverse_model, list[Scorer]()
    device = process_state().device
    needs_teacher = options.teacher and options.quality_model is None and options.needs_scores
    if name is not None or needs_teacher:
        models = [name] if name else options.teacher
        model, tokenizer = load_models(models, options.teacher_weights)
        model = model.to(device)
        if name is not None:
            direction = Direction(direction.target, direction.source)
        languages = language_options(tokenizer, direction)
        codes = Direction(*map(languages.get, ("src_lang", "tgt_lang")))

        def score_all(pairs: Sequence[SentencePair]) -> list[float]:
            if name is not None:
                pairs = [SentencePair(pair.target, pair.source) for pair in pairs]
            scored = score_pairs(model, tokenizer, pairs, direction=codes)
            return [result.log_probability / len(result.tokens) for result in scored]

        scorers.append(score_all)
    if options.quality_model is not None:
        from vanilla_transformer.extensions.quality.comet import Comet

        comet = Comet.load(options.quality_model, without_references=True).to(device)

        def score_quality(pairs: Sequence[SentencePair]) -> list[float]:
            sources = [pair.source for pair in pairs]
            return comet.score(sources, [pair.target for pair in pairs]).tolist()

        scorers.append(score_quality)
    return scorers
