"""Tokenized training text in numbered epochs, with every corpus of a mix as often as its weight
says.

`datasets.interleave_datasets` does not replace the mixing: it samples corpora until one or all of
them end, so it cannot yield each pair exactly `weight` times per epoch.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import cached_work

from .cached_texts import CachedTexts
from .cleaning import EXAMPLES, CleaningReport, abbreviate
from .cleaning_rules import CleaningRules
from .readers import ROWS_PER_BATCH, CorpusSpec, SentencePair
from .stages import ONE_STAGE, Stages
from .tokenized_corpus import EncodedPairs, TokenLinks

_FORMAT = 1  # of the cached overlaps; another number invalidates all older entries
_OVERLAP_FILE = "report.json"


@dataclass
class Overlap:
    """How many of `pairs` held-out pairs occur in the training text: by source, by target, and as a
    whole pair.
    """

    pairs: int
    sources: int
    targets: int
    both: int
    examples: list[list[str]]

    def __str__(self) -> str:
        sides = f"{self.sources:,} sources, {self.targets:,} targets"
        counts = f"{sides} and {self.both:,} whole pairs"
        lines = [f"of {self.pairs:,} pairs the training text has {counts}."]
        for source, target in self.examples:
            lines.append(f"    {source} | {target}")
        return "\n".join(lines)


def count_overlap(texts: datasets.Dataset, held_out: Sequence[SentencePair]) -> Overlap:
    """Count which held-out pairs occur in training text.

    Arrow finds the rows that share a side with one of them.
    """
    sources = pa.array(sorted({pair.source for pair in held_out}), pa.string())
    targets = pa.array(sorted({pair.target for pair in held_out}), pa.string())
    training_pairs: set[SentencePair] = set()
    for table in texts.with_format("arrow").iter(ROWS_PER_BATCH):
        has_source = pa.compute.is_in(table["source"], value_set=sources)
        has_target = pa.compute.is_in(table["target"], value_set=targets)
        rows = table.filter(pa.compute.or_(has_source, has_target))
        pairs = map(SentencePair, rows["source"].to_pylist(), rows["target"].to_pylist())
        training_pairs.update(pairs)
    seen_sources = {pair.source for pair in training_pairs}
    seen_targets = {pair.target for pair in training_pairs}
    seen = [pair for pair in held_out if pair.source in seen_sources]
    return Overlap(
        pairs=len(held_out),
        sources=len(seen),
        targets=sum(pair.target in seen_targets for pair in held_out),
        both=sum(pair in training_pairs for pair in held_out),
        examples=[[abbreviate(pair.source), abbreviate(pair.target)] for pair in seen[:EXAMPLES]],
    )


def count_overlap_cached(
    texts: CachedTexts, held_out: Sequence[SentencePair], cache_dir: Path
) -> Overlap:
    """Count how much of the held-out text the training text contains, or return the cached
    count.
    """

    def write(folder: Path) -> None:
        overlap = count_overlap(texts.dataset, held_out)
        (folder / _OVERLAP_FILE).write_text(json.dumps(asdict(overlap)), encoding="utf-8")

    folder = cached_work(cache_dir, "overlap", (_FORMAT, texts.key, held_out), write)
    report = (folder / _OVERLAP_FILE).read_text(encoding="utf-8")
    return Overlap(**json.loads(report))


class Window(NamedTuple):
    """
    Pairs of an epoch that are planned together: by default, all of them.

    Args:
        pairs: They have lengths, rows and a table as [`EncodedPairs`] do, as far as they are read.
        begin, share: The shares of the epoch's tokens that come before the window, and that it has.
        ends, shifts: From pair `ends[n - 1]` on, the numbers of pairs in the corpus are `shifts[n]`
            more than in the window.
        rows: The number of each pair among all pairs of the window's shards, which occur as often
            as their weights say; None where each occurs once.
    """

    pairs: Any
    begin: float = 0.0
    share: float = 1.0
    ends: Sequence[int] | np.ndarray = ()
    shifts: Sequence[int] | np.ndarray = (0,)
    rows: np.ndarray | None = None

    def numbers(self, pairs: np.ndarray) -> np.ndarray:
        """Return the numbers of pairs in the corpus, given the ones in the window."""
        if self.rows is not None:
            pairs = self.rows[pairs]
        return pairs + np.take(self.shifts, np.searchsorted(self.ends, pairs, side="right"))


class Epochs(ABC):
    """
    Pairs in numbered epochs, of one window or several.

    Attributes:
        is_constant (`bool`): Whether all epochs have the same pairs, in one window.
    """

    is_constant: bool = False

    @abstractmethod
    def epoch(self, number: int, stage: int = 0) -> Any:
        """
        Return the pairs of an epoch.

        They depend on its number and on the number of its stage alone, so a resumed run gets the
        same pairs.
        """

    def count_windows(self, stage: int = 0) -> int:
        """Return the number of windows of each epoch of a stage."""
        return 1

    def window(self, epoch: int, number: int, stage: int = 0) -> Window:
        """Return a window of an epoch, by its number from 0."""
        return Window(self.epoch(epoch, stage))

    def side_lengths(self, stage: int = 0) -> tuple[np.ndarray, np.ndarray] | None:
        """Return `of_corpus` of [`packed_shape`] for all windows of a stage, if an epoch has
        several.
        """
        return None

    def check_batches(self, max_tokens: int, batches_per_step: int) -> None:
        """Refuse a budget or a number of batches that a window which is planned later cannot have.

        Args:
            max_tokens (`int`): The most tokens of a sentence.
        """
        return None


class Corpus(Epochs):
    """
    Training text, cleaned and tokenized, in numbered epochs.

    Attributes:
        texts (`datasets.Dataset`):
            Columns `source`, `target` and `corpus` (its number in the mix).
            `texts.select(pairs.rows)` is the text of `pairs = epoch(n)` for the most recent call of
            `epoch`.
        report (`CleaningReport`): The pairs that cleaning dropped.
        overlaps: Overlap of each held-out set, such as "validation", with the training text.
        max_source_length (`int`): Tokens of the longest source sentence, for the model's
            configuration.
        links (`TokenLinks`): The links between the tokens of `texts`, if there are some.
    """

    texts: datasets.Dataset
    report: CleaningReport
    overlaps: dict[str, Overlap]
    max_source_length: int
    links: TokenLinks | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the results of cleaning and the overlaps as JSON values."""
        overlaps = {name: vars(overlap) for name, overlap in self.overlaps.items()}
        return {"cleaning": self.report.to_dict(), "overlap": overlaps}

    def __str__(self) -> str:
        lines = [f"Training text: {self.report}"]
        for name, overlap in self.overlaps.items():
            lines.append(f"Overlap with {name} text: {overlap}")
        return "\n".join(lines)


class DerivedCorpus(Corpus):
    """
    A corpus whose epochs are made from the epochs of another one, `plain`.

    The last epoch is kept.
    """

    def __init__(self, plain: Corpus):
        self.plain = plain
        self.report = plain.report
        self.overlaps = plain.overlaps
        self.max_source_length = plain.max_source_length
        self.links = plain.links
        self._last: tuple[tuple[int, int], EncodedPairs] | None = None

    def epoch(self, number: int, stage: int = 0) -> EncodedPairs:
        if self._last is None or self._last[0] != (number, stage):
            self._last = None  # two epochs would need twice the memory
            self._last = (number, stage), self.derive(self.plain.epoch(number, stage), number)
        return self._last[1]

    @abstractmethod
    def derive(self, pairs: EncodedPairs, epoch: int) -> EncodedPairs:
        """Return the pairs of an epoch, given the ones of `plain`, and set `texts`."""


class TokenizedCorpus(Corpus):
    """
    Training pairs on disk, memory-mapped.

    Args:
        pairs (`EncodedPairs`): The encoded rows of `texts` that cleaning kept.
        weights: Number of times that the pairs of each corpus of the mix occur in an epoch, for
            each stage.
        seed (`int`): Seed of the sampling of pairs if a weight is not an integer.
    """

    def __init__(
        self,
        texts: datasets.Dataset,
        pairs: EncodedPairs,
        weights: Sequence[Sequence[float]],
        seed: int,
        report: CleaningReport,
        overlaps: dict[str, Overlap],
    ):
        self.texts = texts
        self.pairs = pairs
        self.weights = weights
        self.seed = seed
        self.report = report
        self.overlaps = overlaps
        self.max_source_length = int(pairs.source_lengths.max())
        self.is_constant = all(weight == 1 for stage in weights for weight in stage)

    def epoch(self, number: int, stage: int = 0) -> EncodedPairs:
        weights = self.weights[stage]
        if all(weight == 1 for weight in weights):
            return self.pairs
        numbers = corpus_numbers(self.texts, self.pairs)
        return self.pairs.select(sample_epoch(numbers, weights, self.seed, number))


def corpus_numbers(texts: datasets.Dataset, pairs: EncodedPairs) -> np.ndarray:
    """Return the number of each pair's corpus in the mix, shape `(pairs,)`."""
    return texts.data.column("corpus").to_numpy()[pairs.rows]


def corpus_weights(
    specs: Sequence[CorpusSpec],
    counts: Sequence[int],
    temperature: float = 1.0,
    stages: Stages = ONE_STAGE,
) -> list[list[float]]:
    """Return how many times the pairs of each corpus occur in an epoch, for each stage.

    Args:
        counts: The number of pairs of each corpus.
        temperature: See [`temperature_weights`]; 1 if there are stages.
    """
    if stages != ONE_STAGE:
        names = [spec.name for spec in specs]
        return [share_weights(names, counts, shares) for shares in stages.shares]
    weights = [spec.weight for spec in specs]
    if temperature != 1.0:
        directions = [spec.direction for spec in specs]
        weights = temperature_weights(counts, weights, directions, temperature)
    return [weights]


def share_weights(
    names: Sequence[str], counts: Sequence[int], shares: Mapping[str, float]
) -> list[float]:
    """
    Return weights of corpora for `sample_epoch` that give each its share of an epoch.

    The epoch has as many pairs as the corpora with a share have. Corpora of one name have one
    share.

    Args:
        names, counts: The name of each corpus and its number of pairs.
        shares: Shares by name, relative to their sum. Corpora without a share have the weight 0.
    """
    sizes = dict.fromkeys(names, 0)
    for name, count in zip(names, counts, strict=True):
        sizes[name] += count
    for name in shares:
        if not sizes[name]:
            raise UserError(
                f"The corpus {name} of `stages` must have pairs, but cleaning has left none."
            )
    scale = sum(sizes[name] for name in shares) / sum(shares.values())
    weights = {name: share * scale / sizes[name] for name, share in shares.items()}
    return [weights.get(name, 0.0) for name in names]


def sample_epoch(
    corpora: np.ndarray, weights: Sequence[float], seed: int, epoch: int
) -> np.ndarray:
    """
    Return the indices of the rows of an epoch, in ascending order.

    Args:
        corpora (`np.ndarray` of shape `(rows,)`): The number of each row's corpus.
        weights: Weights by the number of the corpus. With weight w, each of the n rows of a corpus
            occurs ⌊w⌋ times, and (w − ⌊w⌋)·n of them, rounded and sampled as a function of `seed`
            and `epoch`, occur once more.
    """
    copies = np.array(weights).astype(int)[corpora]
    is_sampled = np.ones(len(corpora), dtype=bool)
    return sample_window(corpora, weights, copies, is_sampled, (seed, epoch))


def sample_window(
    corpora: np.ndarray,
    weights: Sequence[float],
    copies: np.ndarray,
    is_sampled: np.ndarray,
    seed: Sequence[int],
) -> np.ndarray:
    """
    Return the indices of the rows of a window, in ascending order.

    Args:
        corpora, weights: See [`sample_epoch`].
        copies (`np.ndarray` of shape `(rows,)`): How often each row occurs.
        is_sampled (`np.ndarray` of shape `(rows,)`): The rows of which a share may occur once more:
            of n of them, (w − ⌊w⌋)·n, rounded.
    """
    random = np.random.default_rng(seed)
    indices = []
    for corpus, weight in enumerate(weights):
        rows = np.flatnonzero(corpora == corpus)
        indices.append(np.repeat(rows, copies[rows]))
        rows = rows[is_sampled[rows]]
        count = round((weight - int(weight)) * len(rows))
        if count:
            indices.append(random.permutation(rows)[:count])
    return np.sort(np.concatenate(indices))


def temperature_weights(
    counts: Sequence[int], weights: Sequence[float], directions: Sequence[Any], temperature: float
) -> list[float]:
    """
    Return the weights of corpora with which each direction has its share pᵢ ∝ nᵢ^(1/T) of an epoch.

    nᵢ is the number of pairs of a direction, each as often as the weight of its corpus says. The
    corpora of a direction keep their proportions, and the epoch keeps its number of pairs. T = 1
    changes nothing; a large T gives each direction the same share (Arivazhagan et al., 2019,
    "Massively Multilingual Neural Machine Translation in the Wild", section 4.2).

    Args:
        counts, weights, directions: Of each corpus: its number of pairs, its weight and its
            direction.
    """
    sizes: dict[Any, float] = dict.fromkeys(directions, 0.0)
    for count, weight, direction in zip(counts, weights, directions, strict=True):
        sizes[direction] += count * weight
    shares: dict[Any, float] = {}
    for direction, size in sizes.items():
        if size:
            shares[direction] = size ** (1.0 / temperature)
    scale = sum(sizes.values()) / sum(shares.values())
    scaled_weights: list[float] = []
    for weight, direction in zip(weights, directions, strict=True):
        factor = 1.0
        if direction in shares:
            factor = scale * shares[direction] / sizes[direction]
        scaled_weights.append(weight * factor)
    return scaled_weights


def drop_by_length(
    pairs: EncodedPairs,
    texts: datasets.Dataset,
    rules: Sequence[CleaningRules],
    report: CleaningReport,
) -> EncodedPairs:
    """Drop pairs as [`find_fitting`] says, and refuse rules that drop every pair."""
    kept = find_fitting(pairs, texts, rules, report)
    report.check_kept()
    return pairs if kept.all() else pairs.select(kept)


def find_fitting(
    pairs: EncodedPairs,
    texts: datasets.Dataset,
    rules: Sequence[CleaningRules],
    report: CleaningReport,
) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is False for pairs that break the rules of their corpus
    on lengths in tokens, and count them in `report`.

    `max_length` is about the longer side, with EOS, and `max_length_ratio` about the lengths of
    both.
    """
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths)
    shortest = np.minimum(pairs.source_lengths, pairs.target_lengths)
    kept, corpora = np.ones(len(pairs), dtype=bool), corpus_numbers(texts, pairs)
    for name, unit in (("max_length", 1), ("max_length_ratio", shortest)):
        limits = [getattr(corpus_rules, name) for corpus_rules in rules]
        if any(limit is not None for limit in limits):
            most = np.array([np.inf if limit is None else limit for limit in limits])[corpora]
            broken = kept & (longest > most * unit)
            report.add_rows(name, texts, pairs.rows[broken])
            kept &= ~broken
    return kept
