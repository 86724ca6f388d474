"""Training pairs whose sides begin with the tokens of their languages."""

from collections.abc import Sequence

import datasets
import numpy as np

from vanilla_transformer.text.languages import DirectionTokens

from .corpus import Corpus, DerivedCorpus
from .tokenized_corpus import EncodedPairs, TokenColumn, TokenTable


class TaggedCorpus(DerivedCorpus):
    """
    The pairs of another corpus, each beginning with the tokens of its direction.

    Tags are added to token ids, so no augmentation changes them, and the cached tokens of a text
    fit any tags.

    Args:
        plain (`Corpus`): The corpus without these tokens.
        tokens: The tokens of the direction of each corpus of the mix, as many for one as for the
            others.
        replaced: Number of tokens at the start of each side of `plain` that the tokens replace.
    """

    def __init__(self, plain: Corpus, tokens: Sequence[DirectionTokens], replaced: int):
        super().__init__(plain)
        self.tokens = tokens
        self.replaced = replaced
        self.max_source_length += len(tokens[0].source) - replaced
        self._tagged: tuple[TokenTable, TaggedTable] | None = None

    def derive(self, pairs: EncodedPairs, epoch: int) -> EncodedPairs:
        self.texts = self.plain.texts
        # Workers of a loader keep their table.
        if self._tagged is None or self._tagged[0] is not pairs.table:
            corpora = np.asarray(self.texts.with_format("numpy")["corpus"][:])
            table = TaggedTable(pairs.table.dataset, corpora, self.tokens, self.replaced)
            self._tagged = (pairs.table, table)
        return EncodedPairs(self._tagged[1], pairs.rows)


class TaggedTable(TokenTable):
    """
    A table whose rows begin with the tokens of their corpus.

    Args:
        dataset (`datasets.Dataset`): See [`TokenTable`].
        corpora (`np.ndarray` of shape `(rows,)`): The number of each row's corpus.
    """

    def __init__(
        self,
        dataset: datasets.Dataset,
        corpora: np.ndarray,
        tokens: Sequence[DirectionTokens],
        replaced: int,
    ):
        super().__init__(dataset)
        self._arguments = dataset, corpora, tokens, replaced
        sources = [direction_tokens.source for direction_tokens in tokens]
        targets = [direction_tokens.target for direction_tokens in tokens]
        self.sources = _TaggedColumn(dataset, "input_ids", corpora, sources, replaced)
        if any(targets):
            self.targets = _TaggedColumn(dataset, "labels", corpora, targets, replaced)

    def __reduce__(self) -> tuple[type, tuple]:
        return TaggedTable, self._arguments


class _TaggedColumn(TokenColumn):
    """A column whose rows begin with other tokens than the `replaced` first ones."""

    def __init__(
        self,
        dataset: datasets.Dataset,
        name: str,
        corpora: np.ndarray,
        tokens: Sequence[tuple[int, ...]],
        replaced: int,
    ):
        super().__init__(dataset.data.column(name))
        self._corpora = corpora
        self._first = np.array(tokens)  # (corpora, tokens of a direction)
        self._replaced = replaced

    def lengths(self) -> np.ndarray:
        return super().lengths() + np.int32(self._first.shape[1] - self._replaced)

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        plain, plain_lengths = super().read(rows)
        added = self._first.shape[1]
        lengths = plain_lengths + (added - self._replaced)
        tokens = np.empty(lengths.sum(), plain.dtype)
        is_first = _is_near_start(lengths, added)
        tokens[is_first] = self._first[self._corpora[rows]].ravel()
        tokens[~is_first] = plain[~_is_near_start(plain_lengths, self._replaced)]
        return tokens, lengths


def _is_near_start(lengths: np.ndarray, count: int) -> np.ndarray:
    """Return a mask of rows one after another that is True at the `count` first tokens of each
    row.
    """
    mask = np.zeros(lengths.sum(), dtype=bool)
    mask[((np.cumsum(lengths) - lengths)[:, None] + np.arange(count)).ravel()] = True
    return mask
