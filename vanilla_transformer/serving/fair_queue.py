"""
A queue of texts in which small requests do not wait for large ones, and clients take turns.

The queues of asyncio know neither clients nor the sizes of requests.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .limits import Limits, Refusal

Options = tuple[tuple[str, Any], ...]  # keyword arguments

# A request is small as long as the small requests of its client have at most this many tokens. As long as there were
# small requests within the last seconds, large ones get few tokens of each batch, so that a small one, which waits for
# the current batch and for its own, waits briefly.
_TOKENS_OF_SMALL_REQUESTS = 256
_SECONDS_WITH_SMALL_BATCHES = 30.0
_FEW_TOKENS = 32


class QueuedText(NamedTuple):
    """
    A text, its number of tokens, the number of translations to return, and the future that receives them.

    `options` are keyword arguments of the translation, such as `("return_scores", True)`. Translations must
    contain the `constraints` and begin with the `target_prefix`. `arrived` is the time of `time.monotonic`.
    """

    text: str
    tokens: int
    num_hypotheses: int
    future: asyncio.Future[list[Any]]
    options: Options = ()
    constraints: tuple[str, ...] = ()
    target_prefix: str | None = None
    arrived: float = 0.0


@dataclass(eq=False)
class QueuedRequest:
    """The texts of a request that wait."""

    client: str
    texts: deque[QueuedText]


class FairQueue:
    """Queue the texts of requests and take batches of them.

    Args:
        limits: Limits of batches and of waiting texts. The limits of waiting texts hold separately for small and for
            large requests, so that large ones do not keep small ones out. A batch of one text may have any length.
        clock: Returns the time in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self._limits = limits
        self._clock = clock
        self._small, self._large = _Lane(), _Lane()
        self._last_small_request = -float("inf")
        self._large_must_be_next = False

    def __len__(self) -> int:
        return self._small.texts.total() + self._large.texts.total()

    def add(self, request: QueuedRequest) -> None:
        """Add the texts of a request.

        Raises:
            Refusal: 503; too many texts wait.
        """
        tokens = self._small.tokens[request.client] + sum(text.tokens for text in request.texts)
        small = tokens <= _TOKENS_OF_SMALL_REQUESTS
        lane = self._small if small else self._large
        if lane.texts[request.client] + len(request.texts) > self._limits.max_waiting_per_client:
            raise Refusal(503, "Too many of your texts wait. Try again later.")
        if lane.texts.total() + len(request.texts) > self._limits.max_waiting:
            raise Refusal(503, "Too many texts wait. Try again later.")
        if small:
            self._last_small_request = self._clock()
        if request.texts:
            lane.add(request)

    def discard(self, request: QueuedRequest) -> None:
        """Remove the texts of a request that still wait, if any."""
        self._small.discard(request)
        self._large.discard(request)

    def take(self) -> list[QueuedText]:
        """Remove and return the texts of the next batch, none if the queue is empty."""
        batch: list[QueuedText] = []
        if not self._large_must_be_next:
            self._fill(batch, self._small, self._limits.max_batch_tokens)
        num_small = len(batch)
        self._fill(batch, self._large, self._tokens_for_large(batch))
        self._large_must_be_next = len(self._large) > 0 and len(batch) == num_small
        return batch

    def _tokens_for_large(self, batch: list[QueuedText]) -> int:
        if self._clock() - self._last_small_request > _SECONDS_WITH_SMALL_BATCHES:
            return self._limits.max_batch_tokens
        return min(self._limits.max_batch_tokens, max(_FEW_TOKENS, 2 * _padded_tokens(batch)))

    def _fill(self, batch: list[QueuedText], lane: "_Lane", max_tokens: int) -> None:
        while len(lane) and len(batch) < self._limits.max_batch_size:
            if batch and _padded_tokens([*batch, lane.first()]) > max_tokens:
                break
            batch.append(lane.take())


class _Lane:
    """Waiting requests: clients take turns, and so do the requests of each client."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[QueuedRequest]] = OrderedDict()
        self.texts: Counter[str] = Counter()  # waiting, by client
        self.tokens: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of clients that wait."""
        return len(self._clients)

    def add(self, request: QueuedRequest) -> None:
        self._clients.setdefault(request.client, deque()).append(request)
        self._count(request.client, request.texts, 1)

    def first(self) -> QueuedText:
        return next(iter(self._clients.values()))[0].texts[0]

    def take(self) -> QueuedText:
        client, requests = self._clients.popitem(last=False)
        request = requests.popleft()
        text = request.texts.popleft()
        self._count(client, [text], -1)
        if request.texts:
            requests.append(request)
        if requests:
            self._clients[client] = requests
        return text

    def discard(self, request: QueuedRequest) -> None:
        requests = self._clients.get(request.client, deque())
        if request in requests:
            requests.remove(request)
            self._count(request.client, request.texts, -1)
            if not requests:
                del self._clients[request.client]

    def _count(self, client: str, texts: Iterable[QueuedText], sign: int) -> None:
        for text in texts:
            self.texts[client] += sign
            self.tokens[client] += sign * text.tokens
        if not self.texts[client]:
            del self.texts[client], self.tokens[client]


def _padded_tokens(texts: list[QueuedText]) -> int:
    return len(texts) * max((text.tokens for text in texts), default=0)
