"""Drop pairs with low scores by two models, which are cached by content."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vanilla_transformer.file_utils import cached_folder, hash_file
from vanilla_transformer.text.languages import Direction

from .cached_texts import CachedTexts, load_folder, write_texts
from .cleaning import EXAMPLES, CleaningReport, nothing_left_error
from .cleaning.histograms import count_lengths, move_to_dropped
from .cleaning_rules import ScoreRule
from .readers import CorpusSpec, SentencePair
from .tokenized_corpus import hash_json

# (forward model, backward model, pairs, direction) -> scores in (0, 1], shape `(pairs,)`.
Scorer = Callable[[str, str, Sequence[SentencePair], Direction], np.ndarray]
_SCORES_FILE = "scores.npy"


def drop_low_scores(
    texts: CachedTexts,
    specs: Sequence[CorpusSpec],
    rules: Sequence[ScoreRule | None],
    score: Scorer,
    cache_dir: Path,
) -> CachedTexts:
    """
    Return the pairs with high scores, and all pairs of corpora without a rule.

    Args:
        rules: The rule of each corpus, or None.
        score: Such as `dual_scores`. It is called for each corpus with a rule whose scores the cache does not hold.

    Raises:
        OSError, ValueError: as raised by `score`; or nothing is left.
    """
    corpora = texts.dataset.data.column("corpus").to_numpy()
    kept = np.ones(len(corpora), dtype=bool)
    for number, (spec, rule) in enumerate(zip(specs, rules, strict=True)):
        rows = np.flatnonzero(corpora == number)
        if rule is not None and len(rows):
            scores = _load_scores(texts, rows, spec.direction, rule, score, cache_dir)
            kept[rows[scores < rule.threshold(scores)]] = False
    key = hash_json(texts.key, [rule and vars(rule) | {"models": _model_keys(rule)} for rule in rules])
    folder = cached_folder(cache_dir, f"texts-{key}", partial(_write_kept, texts=texts, kept=kept))
    return load_folder(folder, key)


def _load_scores(
    texts: CachedTexts, rows: np.ndarray, direction: Direction, rule: ScoreRule, score: Scorer, cache_dir: Path
) -> np.ndarray:
    def write(folder: Path) -> None:
        pairs = texts.dataset[rows.tolist()]
        numbered = list(map(SentencePair, pairs["source"], pairs["target"]))
        scores = score(rule.forward, rule.backward, numbered, direction)
        np.save(folder / _SCORES_FILE, scores.astype(np.float32))

    name = hash_json(texts.key, [int(rows[0]), len(rows)], direction, _model_keys(rule))
    return np.load(cached_folder(cache_dir, f"scores-{name}", write) / _SCORES_FILE)


def _model_keys(rule: ScoreRule) -> list[Any]:
    """Return values that identify the content of both models; of a model on the Hub, its name."""
    return [
        [hash_file(path) for path in sorted(Path(name).glob("*.*")) if path.is_file()] if Path(name).is_dir() else name
        for name in (rule.forward, rule.backward)
    ]


def _write_kept(folder: Path, texts: CachedTexts, kept: np.ndarray) -> None:
    report = CleaningReport.from_dict(texts.report.to_dict())
    dropped = np.flatnonzero(~kept)
    examples = texts.dataset[dropped[:EXAMPLES].tolist()]
    report.add("score", list(map(SentencePair, examples["source"], examples["target"])), len(dropped))
    report.histograms = move_to_dropped(report.histograms, count_lengths(texts.dataset, kept))
    if not kept.any():
        raise nothing_left_error(report)
    write_texts(folder, texts.dataset, kept, report)
