"""The sources that wait for a slot: those that the model has not read, and those that it has."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .prefill import Prefilled, places_by_batch, prefill
from .requests import Request
from .sources import SourceRules


class PrefilledSource(NamedTuple):
    """
    A source that the model has read: its request, its length, its row in a batch, and what the batch leaves in slots.

    `limit` is the number of tokens that may be generated.
    """

    request: Request
    length: int
    limit: int
    row: int
    batch: Prefilled


class SourceQueue:
    """
    Hold sources, and let the model read some of them ahead.

    Args:
        model: Reads the sources.
        rules: Of the model's sources.
        together: Sources that the model reads at once, at most.
    """

    def __init__(self, model: Any, rules: SourceRules, together: int):
        self._model, self._rules, self._together = model, rules, together
        self._unread: deque[tuple[list[Request], Sequence[int]]] = deque()
        self._prefilled: deque[PrefilledSource] = deque()

    def __bool__(self) -> bool:
        return bool(self._unread or self._prefilled)

    def __len__(self) -> int:
        """Return the number of sources or, once the model has read them, of searches and samples."""
        return len(self._unread) + len(self._prefilled)

    @property
    def requests(self) -> int:
        """The number of searches and samples."""
        return sum(len(requests) for requests, _ in self._unread) + len(self._prefilled)

    def add(self, requests: list[Request], source: Sequence[int]) -> None:
        """Add the requests for a source that the model has not read."""
        self._unread.append((requests, source))

    def add_batch(self, batch: Prefilled, sources: Sequence[tuple[list[Request], int, int]]) -> None:
        """Add the sources of a batch that the model has read, given the requests, the length and the limit of each."""
        for row, (requests, length, limit) in enumerate(sources):
            self._prefilled.extend(PrefilledSource(request, length, limit, row, batch) for request in requests)

    def read_ahead(self) -> None:
        """Let the model read sources, unless others that it has read still wait."""
        if self._unread and not self._prefilled:
            self._read()

    def take(self, most: int) -> list[PrefilledSource]:
        """Remove and return up to `most` sources that the model has read in one batch."""
        self.read_ahead()
        together = [each for each in self._prefilled if each.batch is self._prefilled[0].batch][:most]
        return [self._prefilled.popleft() for _ in together]

    def clear(self) -> None:
        """Remove all sources."""
        self._unread.clear()
        self._prefilled.clear()

    def _read(self) -> None:
        sentences = [self._unread.popleft() for _ in range(min(self._together, len(self._unread)))]
        seen = [self._rules.seen(source) for _, source in sentences]
        read = [tokens or source[:1] for tokens, (_, source) in zip(seen, sentences, strict=True)]
        for places in places_by_batch(self._model, [len(tokens) for tokens in read]):
            batch = prefill(self._model, [read[place] for place in places], [len(seen[place]) for place in places])
            lengths = [(len(read[place]), self._rules.limit(len(seen[place]))) for place in places]
            self.add_batch(batch, [(sentences[place][0], *each) for place, each in zip(places, lengths, strict=True)])


__all__ = ["PrefilledSource", "SourceQueue"]
