"""Apply rules to all pairs of a mix in parallel, with the same result for any number of processes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import datasets
import numpy as np

from vanilla_transformer.data.cleaning_rules import REPETITIONS, RULES
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tuning import MIN_ROWS_PER_PROCESS, ROWS_PER_BATCH
from vanilla_transformer.device_utils import usable_cores

from .histograms import count_lengths
from .pair_rules import PairRules
from .repetitions import find_duplicates, hash_repetition
from .report import EXAMPLES, CleaningReport

_NAMES = list(RULES)
_KEPT = -1


def find_broken(
    texts: datasets.Dataset, pair_rules: Sequence[PairRules], report: CleaningReport, num_proc: int | None = None
) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is True for pairs that break a rule, and count them in `report`.

    Args:
        texts: Columns `source`, `target` and `corpus`, the number of the pair's corpus.
        pair_rules: The rules of each corpus.
        num_proc (`int`): Number of processes. By default all cores, if the text is long enough.
    """
    repetitions = [name for name in REPETITIONS if any(_drops(each, name) for each in pair_rules)]
    enabled = [each.enabled() for each in pair_rules]
    broken = np.full(len(texts), _KEPT, np.int8)
    if repetitions or any(enabled):
        results = _map(texts, partial(_check_batch, pair_rules=pair_rules, repetitions=repetitions), num_proc)
        broken = results.data.column("rule").to_numpy().copy()
        corpora = texts.data.column("corpus").to_numpy()
        for name in repetitions:
            drops = np.array([_drops(each, name) for each in pair_rules])
            rows = np.flatnonzero(broken == _KEPT)  # pairs that earlier rules drop are no repetitions
            hashes = results.data.column(name).take(rows).combine_chunks()
            repeated = find_duplicates(b"".join(hashes.to_pylist())) & drops[corpora[rows]]
            broken[rows[repeated]] = _NAMES.index(name)
    _report(texts, broken, report)
    return broken != _KEPT


def _drops(pair_rules: PairRules, name: str) -> bool:
    return getattr(pair_rules.rules, f"drop_{name}")


def _map(texts: datasets.Dataset, function: Any, num_proc: int | None) -> datasets.Dataset:
    """Return the results of a function of batches, in memory."""
    processes = num_proc or min(usable_cores(), len(texts) // MIN_ROWS_PER_PROCESS)
    names = function.keywords["repetitions"]
    features = {"rule": datasets.Value("int8")} | dict.fromkeys(names, datasets.Value("binary"))
    return texts.map(
        function,
        batched=True,
        remove_columns=texts.column_names,
        features=datasets.Features(features),
        num_proc=processes if processes > 1 else None,
        writer_batch_size=ROWS_PER_BATCH,
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint="cleaning",  # without it `datasets` would hash the function
        desc="Cleaning",
    )


def _check_batch(
    batch: dict[str, list[Any]], pair_rules: Sequence[PairRules], repetitions: Sequence[str]
) -> dict[str, list[Any]]:
    rules = [each.enabled() for each in pair_rules]
    pairs = list(map(SentencePair, batch["source"], batch["target"]))
    broken = [
        next((_NAMES.index(name) for name, is_broken in rules[corpus].items() if is_broken(pair)), _KEPT)
        for pair, corpus in zip(pairs, batch["corpus"], strict=True)
    ]
    directions = [pair_rules[corpus].direction for corpus in batch["corpus"]]
    hashes = {name: [*map(partial(hash_repetition, name), pairs, directions)] for name in repetitions}
    return {"rule": broken} | hashes


def _report(texts: datasets.Dataset, broken: np.ndarray, report: CleaningReport) -> None:
    for number, name in enumerate(_NAMES):
        rows = np.flatnonzero(broken == number)
        if len(rows):
            examples = texts[rows[:EXAMPLES].tolist()]
            report.add(name, list(map(SentencePair, examples["source"], examples["target"])), len(rows))
    if len(texts):
        report.add_histograms(count_lengths(texts, broken == _KEPT))
