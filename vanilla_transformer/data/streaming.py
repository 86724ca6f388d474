"""Corpora too large for the disk: epoch n is the n-th window of an endless stream, tokenized when it is needed.

A window is counted in lines before cleaning, so a run resumed at window n skips lines without tokenizing them and gets
the same pairs. `datasets.interleave_datasets` and a stateful data loader do not replace this: a resumed
`IterableDataset` loses the content of its shuffle buffer, so the run would not continue with the same pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress

import datasets
import numpy as np

from .cleaning import CleaningReport, clean_text, find_broken, find_language_mistakes, nothing_left_error
from .cleaning_rules import CleaningRules, PairRules
from .corpus import Corpus, Overlap, OverlapCounter, drop_by_length, find_held_out
from .readers import CorpusRow, CorpusSpec, SentencePair, open_corpus, read_pairs, read_rows
from .tokenized_corpus import Encode, EncodedPairs, TokenTable, encode_texts, hash_json


class StreamedTexts:
    """
    The cleaned text of a mix of streams, window by window.

    Every corpus contributes to each window in proportion to its weight and restarts at its end: window n holds pairs
    n·s to (n + 1)·s of a corpus with a share of s pairs. A corpus of weight 0 contributes none.
    """

    def __init__(self, specs: Sequence[CorpusSpec], rules: Sequence[CleaningRules], window: int):
        self.specs = specs
        self.rules = rules
        self.window = window
        self.weights = [spec.weight for spec in specs]
        self.report = CleaningReport()
        self._streams = [EndlessPairs(spec) for spec in specs]
        self._pair_rules: list[PairRules] | None = None
        self._last: tuple[tuple[int, Sequence[float]], datasets.Dataset] | None = None

    def read(self, number: int, weights: Sequence[float] | None = None) -> datasets.Dataset:
        """
        Return window `number` in memory: columns `source`, `target` and `corpus`.

        Args:
            weights: Weights of the corpora in this window, by default their own.

        Raises:
            ValueError, OSError: as raised by `read_pairs` and `clean_text`; or cleaning leaves nothing.
        """
        key = number, self.weights if weights is None else weights
        if self._last is None or self._last[0] != key:
            self._last = None  # two windows would need twice the memory
            self._last = key, self._read_window(*key)
        return self._last[1]

    def first_window(self) -> datasets.Dataset:
        """Return window 0, on which a tokenizer is trained."""
        return self.read(0)

    @property
    def key(self) -> str:
        """Return a hash of the first window."""
        return hash_json(self.first_window()._fingerprint)  # hashes the content of an in-memory dataset

    def _read_window(self, number: int, weights: Sequence[float]) -> datasets.Dataset:
        sizes = split_window(weights, self.window)
        shares = [list(self._read_share(corpus, number, size)) for corpus, size in enumerate(sizes)]
        corpora = np.repeat(np.arange(len(shares)), [len(share) for share in shares])
        window = _to_dataset(list(chain.from_iterable(shares)), corpora)
        if self._pair_rules is None:
            self.report.warn(find_language_mistakes(window, self.specs))
            self._pair_rules = _open_pair_rules(self.specs, self.rules)
        kept = ~find_broken(window, self._pair_rules, self.report)
        if not kept.any():
            raise nothing_left_error(self.report)
        pairs = map(SentencePair, window["source"], window["target"])
        return window if kept.all() else _to_dataset(list(compress(pairs, kept)), corpora[kept])

    def _read_share(self, corpus: int, number: int, size: int) -> Iterator[SentencePair]:
        rows = self._streams[corpus].read(number * size, size) if size else iter(())
        return clean_text(self.specs[corpus], rows, self.rules[corpus], self.report)


def _open_pair_rules(specs: Sequence[CorpusSpec], rules: Sequence[CleaningRules]) -> list[PairRules]:
    """Return the rules of each corpus, which depend on its first pairs, not on the window."""
    return [PairRules.for_corpus(spec, each, _read_pairs(spec)) for spec, each in zip(specs, rules, strict=True)]


def _read_pairs(spec: CorpusSpec) -> Iterator[SentencePair]:
    with open_corpus(spec, streaming=True) as corpus:
        yield from read_pairs(corpus)


def _to_dataset(pairs: Sequence[SentencePair], corpora: np.ndarray) -> datasets.Dataset:
    sources, targets = zip(*pairs, strict=True) if pairs else ([], [])
    return datasets.Dataset.from_dict({"source": sources, "target": targets, "corpus": corpora})


def split_window(weights: Sequence[float], window: int) -> list[int]:
    """
    Split a window of pairs in proportion to the weights of the corpora, with at least one pair for each above 0.

    Raises:
        ValueError: there are more corpora than pairs in the window.
    """
    read = np.asarray(weights) > 0
    if window < read.sum():
        raise ValueError(f"`stream_window` must have a pair of each of the {read.sum()} corpora, got {window}.")
    # One pair for each corpus, and the rest by the largest remainders.
    rest = window - read.sum()
    exact = np.asarray(weights) / sum(weights) * rest
    shares = np.floor(exact).astype(int)
    largest = np.argsort(shares - exact, kind="stable")[: rest - shares.sum()]
    shares[largest] += 1
    return (shares + read).tolist()


class EndlessPairs:
    """A corpus that restarts at its end and yields pairs with their lines and scores. Going back restarts it."""

    def __init__(self, spec: CorpusSpec):
        self.spec = spec
        self.length: int | None = None  # known after the first pass
        self._restart()

    def _restart(self) -> None:
        self.position = 0
        self._pairs = self._open()

    def _open(self) -> Iterator[CorpusRow]:
        with open_corpus(self.spec, streaming=True) as corpus:
            yield from read_rows(corpus)

    def read(self, first: int, count: int) -> Iterator[CorpusRow]:
        """Yield pairs `first` to `first + count` of the endless stream."""
        self._seek(first)
        for _ in range(count):
            yield self._next()

    def _seek(self, position: int) -> None:
        if position < self.position:
            self._restart()
        while self.position < position:
            self._next()
            if self.length is not None:  # skip whole passes
                self.position += (position - self.position) // self.length * self.length

    def _next(self) -> CorpusRow:
        item = next(self._pairs, None)
        if item is None:
            self.length = self.length or self.position
            self._pairs = self._open()
            item = next(self._pairs, None)
            if item is None:
                raise ValueError(f"{self.spec.name} is empty. It must have pairs of sentences.")
        self.position += 1
        return item


class StreamedCorpus(Corpus):
    """
    Training pairs from a stream: `epoch(n)` is window n.

    `texts` is the text of the most recent window; `report` and `overlaps` count all windows read by this process.

    Args:
        weights: For each stage, the weight of each corpus. By default there is one stage, with the corpora's own.
    """

    def __init__(
        self,
        stream: StreamedTexts,
        encode: Encode,
        held_out: Mapping[str, Sequence[SentencePair]],
        num_proc: int | None = None,
        weights: Sequence[Sequence[float]] | None = None,
    ):
        self.stream = stream
        self.weights = [stream.weights] if weights is None else weights
        self.encode = encode
        self.num_proc = num_proc
        self.report = stream.report
        self._counters = {name: OverlapCounter(pairs) for name, pairs in held_out.items()}
        self._last: tuple[tuple[int, int], EncodedPairs] | None = None

    def epoch(self, number: int, stage: int = 0) -> EncodedPairs:
        if self._last is None or self._last[0] != (number, stage):
            self._last = None  # two windows would need twice the memory
            self.texts = self.stream.read(number, self.weights[stage])
            for counter in self._counters.values():
                counter.add(find_held_out(self.texts, counter))
            encoded = EncodedPairs(TokenTable(encode_texts(self.texts, self.encode, self.num_proc)))
            self._last = (number, stage), drop_by_length(encoded, self.texts, self.stream.rules, self.report)
        return self._last[1]

    @property
    def overlaps(self) -> dict[str, Overlap]:
        return {name: counter.overlap() for name, counter in self._counters.items()}

    @property
    def max_source_length(self) -> int:
        limits = [each.max_length for each in self.stream.rules]
        return max(map(int, filter(None, limits))) if all(limits) else int(self.epoch(0).source_lengths.max())
