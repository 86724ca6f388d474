"""Score the pairs of corpora, and drop the worst ones.

The models are imported when a corpus is scored.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState

from vanilla_transformer.data.cached_texts import CachedTexts, cache_texts, write_texts
from vanilla_transformer.data.cleaning import count_lengths
from vanilla_transformer.data.cleaning_rules import ScoreRule
from vanilla_transformer.data.readers import CorpusSpec, SentencePair
from vanilla_transformer.files.hashes import cached_work, hash_file
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

_SCORES_FILE = "scores.npy"


def drop_low_scores(
    texts: CachedTexts,
    specs: Sequence[CorpusSpec],
    rules: Sequence[ScoreRule | None],
    cache_dir: Path,
) -> CachedTexts:
    """
    Return the pairs with high scores, and all pairs of corpora without a rule.

    Args:
        rules: The rule of each corpus, or None. Pairs are scored only if the cache does not hold
            their scores.
    """
    corpora = texts.dataset.data.column("corpus").to_numpy()
    kept = np.ones(len(corpora), dtype=bool)
    keys: list[dict[str, Any] | None] = []
    for number, (spec, score_rule) in enumerate(zip(specs, rules, strict=True)):
        if score_rule is None:
            keys.append(None)
            continue
        model_keys = _model_keys(score_rule, cache_dir)
        keys.append(vars(score_rule) | {"models": model_keys})
        rows = np.flatnonzero(corpora == number)
        if not len(rows):
            continue
        direction = spec.direction
        content = (texts.key, [int(rows[0]), len(rows)], direction, model_keys)
        write = partial(
            _write_scores, texts=texts, rows=rows, direction=direction, models=score_rule.models
        )
        folder = cached_work(cache_dir, "scores", content, write)
        scores = np.load(folder / _SCORES_FILE)
        kept[rows[scores < score_rule.threshold(scores.tolist())]] = False
    write_kept = partial(_write_kept, texts=texts, kept=kept)
    return cache_texts(cache_dir, (texts.key, keys), write_kept)


def _write_scores(
    folder: Path,
    texts: CachedTexts,
    rows: np.ndarray,
    direction: Direction,
    models: Sequence[str],
) -> None:
    columns = texts.dataset[rows.tolist()]
    pairs = list(map(SentencePair, columns["source"], columns["target"]))
    scores = corpus_scores(models, pairs, direction)
    np.save(folder / _SCORES_FILE, scores.astype(np.float32))


def _model_keys(score_rule: ScoreRule, cache_dir: Path) -> list[Any]:
    """Return values that identify the content of the models; of a model on the Hub, its name."""
    keys: list[Any] = []
    for name in score_rule.models:
        if not Path(name).is_dir():
            keys.append(name)
            continue
        # The weights of a COMET model are in a folder.
        files, checkpoints = Path(name).glob("*.*"), Path(name).glob("checkpoints/*.ckpt")
        paths = sorted([*files, *checkpoints])
        keys.append([hash_file(path, cache_dir) for path in paths if path.is_file()])
    return keys


def _write_kept(folder: Path, texts: CachedTexts, kept: np.ndarray) -> None:
    report = deepcopy(texts.report)
    report.add_rows("score", texts.dataset, np.flatnonzero(~kept))
    for side, counts in count_lengths(texts.dataset, kept).items():
        earlier = np.array(report.histograms[side]["dropped"])
        dropped = (earlier + counts["dropped"]).tolist()
        report.histograms[side] = counts | {"dropped": dropped}
    report.check_kept()
    write_texts(folder, texts.dataset, kept, report)


def corpus_scores(
    models: Sequence[str], pairs: Sequence[tuple[str, str]], direction: Direction
) -> np.ndarray:
    """
    Return the score of each pair: by [`dual_scores`] of two models, or the quality that one model
    predicts.

    Args:
        models: A model of the direction and one of the opposite direction, or a COMET model that
            needs no references; folders or names on the Hub.
    """
    if len(models) == 2:
        return dual_scores(models[0], models[1], pairs, direction)
    from vanilla_transformer.extensions.quality.comet import Comet

    sources, targets = zip(*pairs, strict=True)
    model = Comet.load(models[0], without_references=True)
    return model.to(PartialState().device).score(sources, targets, progress_bar=True)


def dual_scores(
    forward: str, backward: str, pairs: Sequence[tuple[str, str]], direction: Direction
) -> np.ndarray:
    """
    Return a score in (0, 1] for each pair, which is high if both models find it about equally
    probable.

    With the cross-entropies for each token `f` by the forward and `b` by the backward model, it is
    exp(-(|f - b| + (f + b) / 2)).

    Args:
        forward, backward: A model of the direction, and one of the opposite direction; folders or
            names on the Hub.
    """
    reverse = Direction(direction.target, direction.source)
    forth = cross_entropies(forward, pairs, direction)
    swapped = [(target, source) for source, target in pairs]
    back = cross_entropies(backward, swapped, reverse)
    return np.exp(-(np.abs(forth - back) + (forth + back) / 2))


def cross_entropies(
    name: str, pairs: Sequence[tuple[str, str]], direction: Direction
) -> np.ndarray:
    """Return the negative log-probability of each translation, given its source, for each of its
    tokens, in nats.
    """
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.evaluation.pair_scores import score_pairs

    model = load_seq2seq(name, "scores translations").to(PartialState().device)
    tokenizer = load_tokenizer(name)
    if find_languages(tokenizer) is None:
        direction = NO_DIRECTION
    rows, total = map(SentencePair._make, pairs), len(pairs)
    scored = score_pairs(model, tokenizer, rows, total=total, direction=direction)
    return np.array([-pair.log_probability / len(pair.tokens) for pair in scored])
