"""The text of a recipe before tokenization."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np

from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.scripts import find_scripts
from vanilla_transformer.text.translation_warnings import USED_SHARE

from .cached_texts import CachedTexts
from .cleaning_rules import CleaningRules
from .data_arguments import DataArguments
from .readers import ROWS_PER_BATCH, CorpusSpec, SentencePair

_SAMPLED_SOURCES = 20_000


@dataclass(frozen=True)
class ValidationSet:
    """Held-out pairs of one direction."""

    direction: Direction
    pairs: Sequence[SentencePair]


@dataclass(frozen=True)
class Texts:
    """
    The text of a recipe before tokenization.

    Attributes:
        specs, rules: The corpora of the training text, and how each is cleaned.
        augmentations: The shares of training pairs that get each change.
        training: The training text, cleaned by the rules that need no tokens. Of a prepared corpus,
            a sample.
        validation_sets: Held-out pairs by their direction, maybe none.
        test: Held-out pairs, maybe none.
        forgetting: Pairs of the former domain of a model that is fine-tuned, maybe none.
        cache_dir (`Path`): Folder of everything cached.
    """

    data: DataArguments
    specs: list[CorpusSpec]
    rules: list[CleaningRules]
    augmentations: dict[str, float]
    training: CachedTexts
    validation_sets: Sequence[ValidationSet]
    test: Sequence[SentencePair]
    forgetting: Sequence[SentencePair]
    cache_dir: Path

    @property
    def validation(self) -> list[SentencePair]:
        """Return the validation pairs of all directions."""
        return [pair for validation_set in self.validation_sets for pair in validation_set.pairs]

    @property
    def held_out(self) -> dict[str, Sequence[SentencePair]]:
        """Return the held-out pairs by their name, without empty sets."""
        return {name: pairs for name in ("validation", "test") if (pairs := getattr(self, name))}

    def sentences(self) -> Iterator[str]:
        """Yield the training sentences of both sides for a vocabulary: all, or if there are more
        than `vocabulary_sentences`, those with the lowest hashes.
        """
        if self.is_sampled:
            return sample_sentences(self._batches, self.data.vocabulary_sentences)
        return chain.from_iterable(self._batches())

    @property
    def is_sampled(self) -> bool:
        """Return whether a vocabulary is trained on a part of the text."""
        return 2 * len(self.training.dataset) > self.data.vocabulary_sentences

    def _batches(self) -> Iterator[list[str]]:
        for table in self.training.dataset.with_format("arrow").iter(ROWS_PER_BATCH):
            sources, targets = table["source"].to_pylist(), table["target"].to_pylist()
            yield [*chain.from_iterable(zip(sources, targets, strict=True))]

    def source_scripts(self) -> list[str]:
        """Return the scripts of the sources, of 20,000 from all places of the text if there are
        more.
        """
        dataset = self.training.dataset
        rows = range(0, len(dataset), max(1, len(dataset) // _SAMPLED_SOURCES))
        return list(find_scripts(dataset.select(rows)["source"], USED_SHARE))


def sample_sentences(
    read_batches: Callable[[], Iterable[Sequence[str]]], most: int
) -> Iterator[str]:
    """
    Yield so many sentences, in their order: the ones with the lowest hashes, which are spread over
    the whole text. All copies of the last one are among them.

    The sample does not depend on who reads which part of the text.

    Args:
        read_batches: Returns all sentences. It is called twice.
        most: Fewer than there are. Each takes 32 bytes of memory at most.
    """
    lowest: list[np.ndarray] = []
    for batch in read_batches():
        lowest.append(_hash_sentences(batch))
        if sum(map(len, lowest)) > 2 * most:
            lowest = [np.sort(np.concatenate(lowest))[:most]]
    limit = np.sort(np.concatenate(lowest))[most - 1]
    for batch in read_batches():
        for row in np.flatnonzero(_hash_sentences(batch) <= limit).tolist():
            yield batch[row]


def _hash_sentences(sentences: Sequence[str]) -> np.ndarray:
    digests = [blake2b(text.encode(), digest_size=8).digest() for text in sentences]
    return np.frombuffer(b"".join(digests), np.uint64)
