"""Queue the texts of requests fairly, and translate them in batches on the thread of the model."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

from vanilla_transformer.decoding.options import OptionError, TranslationOptions
from vanilla_transformer.decoding.sentences import Sentence

from .limits import LONGEST_REASON, Limits, Refusal

TEXT = "text"  # the format of texts that are no documents
_NO_OPTIONS = TranslationOptions()

# A request is small as long as the small requests of its client have at most this many tokens. As
# long as there were small requests within the last seconds, large ones get few tokens of each
# batch, so that a small one, which waits for the current batch and for its own, waits briefly.
_TOKENS_OF_SMALL_REQUESTS = 256
_SECONDS_WITH_SMALL_BATCHES = 30.0
_FEW_TOKENS = 32


class TextRequest(NamedTuple):
    """
    A request to translate texts, which are still unchecked, and so is the number of translations
    of each one.

    Attributes:
        options: Options of all texts.
        client: Name by which requests take turns.
        format: The format of documents.
        constraints: The phrases of each text, or None.
        prefixes: The target prefix of each text, or None.
        drafts: The draft of each text, or None.
        is_part: Whether the texts are some of the sentences of a document. They wait as a large
            request does, although they are few at a time.
    """

    texts: Any
    options: TranslationOptions = _NO_OPTIONS
    client: str = ""
    format: str = TEXT
    constraints: Sequence[tuple[str, ...]] | None = None
    prefixes: Sequence[str | None] | None = None
    drafts: Sequence[str | None] | None = None
    is_part: bool = False


class QueuedText(NamedTuple):
    """
    A text, or a sentence of a document, that waits for its translations, which must contain the
    `constraints` and begin with the `target_prefix`, and may be the `draft`.

    `arrived` is the time of `time.monotonic`.
    """

    text: str | Sentence
    tokens: int
    future: asyncio.Future[list[Any]]
    options: TranslationOptions = _NO_OPTIONS
    format: str = TEXT
    constraints: tuple[str, ...] = ()
    target_prefix: str | None = None
    draft: str | None = None
    arrived: float = 0.0


@dataclass(eq=False)
class QueuedRequest:
    """The texts of a request that wait."""

    client: str
    texts: deque[QueuedText]
    is_part: bool = False


class FairQueue:
    """Queue the texts of requests and take batches of them.

    Args:
        limits: Limits of batches and of waiting texts. The limits of waiting texts hold separately
            for small and for large requests, so that large ones do not keep small ones out. A batch
            of one text may have any length.
        clock: Returns the time in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self._limits = limits
        self._clock = clock
        self._small, self._large = _Lane(), _Lane()
        self._last_small_request = -float("inf")
        self._large_must_be_next = False

    def __len__(self) -> int:
        return len(self._small.waiting()) + len(self._large.waiting())

    def add(self, request: QueuedRequest) -> None:
        """Add the texts of a request."""
        texts = [*self._small.waiting(request.client), *request.texts]
        num_tokens = sum(text.tokens for text in texts)
        is_small = not request.is_part and num_tokens <= _TOKENS_OF_SMALL_REQUESTS
        lane = self._small if is_small else self._large
        num_waiting = len(lane.waiting(request.client)) + len(request.texts)
        if num_waiting > self._limits.max_waiting_per_client:
            raise Refusal(
                429, "Too many of your texts wait (--max_waiting_per_client). Try again later."
            )
        if len(lane.waiting()) + len(request.texts) > self._limits.max_waiting:
            raise Refusal(429, "Too many texts wait (--max_waiting). Try again later.")
        if is_small:
            self._last_small_request = self._clock()
        if request.texts:
            lane.setdefault(request.client, deque()).append(request)

    def discard(self, request: QueuedRequest) -> None:
        """Remove the texts of a request that still wait, if any."""
        for lane in (self._small, self._large):
            if request in (requests := lane.get(request.client, deque())):
                requests.remove(request)
                if not requests:
                    del lane[request.client]

    def take(self) -> list[QueuedText]:
        """Remove and return the texts of the next batch, none if the queue is empty."""
        batch: list[QueuedText] = []
        if not (self._large_must_be_next and self._large):  # the large one may be gone
            self._fill(batch, self._small, self._limits.max_batch_tokens)
        num_small, max_tokens = len(batch), self._limits.max_batch_tokens
        if self._clock() - self._last_small_request <= _SECONDS_WITH_SMALL_BATCHES:
            max_tokens = min(max_tokens, max(_FEW_TOKENS, 2 * _padded_tokens(batch)))
        self._fill(batch, self._large, max_tokens)
        self._large_must_be_next = bool(self._large) and len(batch) == num_small
        return batch

    def _fill(self, batch: list[QueuedText], lane: "_Lane", max_tokens: int) -> None:
        while lane and len(batch) < self._limits.max_batch_size:
            next_text = next(iter(lane.values()))[0].texts[0]
            if batch and _padded_tokens([*batch, next_text]) > max_tokens:
                break
            batch.append(lane.take())


class _Lane(OrderedDict[str, deque[QueuedRequest]]):
    """Waiting requests by their clients, which take turns, and so do the requests of each
    client.
    """

    def waiting(self, client: str | None = None) -> list[QueuedText]:
        """Return the texts of a client, or of all clients."""
        requests = chain(*self.values()) if client is None else self.get(client, ())
        return [text for request in requests for text in request.texts]

    def take(self) -> QueuedText:
        client, requests = self.popitem(last=False)
        request = requests.popleft()
        text = request.texts.popleft()
        if request.texts:
            requests.append(request)
        if requests:
            self[client] = requests
        return text


def _padded_tokens(texts: list[QueuedText]) -> int:
    return len(texts) * max((text.tokens for text in texts), default=0)


class Translate(Protocol):
    """A function that returns as many translations of each text as the options ask for, best
    first.

    With an option such as `return_scores` each translation is an object instead of a string. The
    texts are documents of a format other than text, or their sentences.
    """

    def __call__(
        self, texts: Sequence[str | Sentence], options: TranslationOptions, format: str
    ) -> list[list[Any]]: ...


CountTokens = Callable[[Sequence[str]], list[int]]

# A model that cannot translate this after a failure is broken.
_HARMLESS_TEXT = "1"
# Texts are counted in groups, so that a large request does not delay the others.
_TEXTS_TO_COUNT = 16
_REFUSALS = (OptionError, Refusal)  # which are no failures of the model
_CHARACTERS_PER_TOKEN = 4  # of a document, about
# A call that takes this many times as long as a request may take hangs.
_HANGING = 5


def count_bytes(texts: Sequence[str]) -> list[int]:
    """Return the number of bytes of each text in UTF-8."""
    return [len(text.encode("utf-8")) for text in texts]


Result = TypeVar("Result")


async def call_on_thread(
    thread: ThreadPoolExecutor, function: Callable[..., Result], *arguments: Any
) -> Result:
    """Run `function` on a thread and return its result."""

    def call() -> tuple[Any, BaseException | None]:
        try:
            return function(*arguments), None
        except BaseException as error:  # some kinds would end the event loop
            return None, error

    result, error = await asyncio.get_running_loop().run_in_executor(thread, call)
    if error is not None:
        raise ModelFailure(f"{type(error).__name__}: {error}") from error
    return result


class ModelFailure(Exception):
    """Raised for a text that the model cannot translate, and for all texts once the model is
    broken.
    """


class Batcher:
    """Translate texts on one thread, batch by batch.

    While a batch is translated, the texts of other requests wait in a queue and form the next
    batch. So a busy server has full batches and an idle one answers at once. If a batch fails, its
    texts are translated one by one.

    Args:
        translate: Called on the model thread, one call at a time.
        count_tokens: Returns the number of tokens of each text. Called on a thread; by default,
            counts bytes.
        model_thread: Thread of the model, which several batchers may share; by default its own.

    Attributes:
        failures: Number of texts that the model failed to translate.
        last_failure: Type of the last exception of the model, or None.
        broken: Whether the model cannot translate anymore.
        on_broken: Called when that happens.
        on_batch: Called with the texts of each batch before it is translated.
    """

    def __init__(
        self,
        translate: Translate,
        limits: Limits,
        count_tokens: CountTokens = count_bytes,
        model_thread: ThreadPoolExecutor | None = None,
    ):
        self.batches = self.texts = self.failures = 0
        self.last_failure: str | None = None
        self.broken = False
        self.on_broken: Callable[[], None] = lambda: None
        self.on_batch: Callable[[Sequence[QueuedText]], None] = lambda batch: None
        self._translate = translate
        self.limits = limits
        self._count_tokens = count_tokens
        self._queue = FairQueue(limits)
        self._arrived = asyncio.Event()
        self._accepted: set[asyncio.Future[list[Any]]] = set()
        self._stopped: Exception | None = None
        self._model_thread = model_thread or ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="translate"
        )
        self._counting_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="count")
        self._busy_since: float | None = None

    @property
    def waiting(self) -> int:
        """Number of texts in the queue."""
        return len(self._queue)

    @property
    def busy_seconds(self) -> float:
        """Time since the model began the current call, 0 if it is idle."""
        return 0.0 if self._busy_since is None else time.monotonic() - self._busy_since

    async def translate(self, request: TextRequest) -> list[list[Any]]:
        """Return the best translations of each text, best first.

        Texts of a canceled call leave the queue.
        """
        texts, options, client, format, constraints, prefixes, drafts, is_part = request
        self.limits.check_request(texts, options.count, format)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                counts: list[int] = []
                if format != TEXT:  # which would take long to encode
                    for text in texts:
                        plain = text.text if isinstance(text, Sentence) else text
                        counts.append(1 + len(plain) // _CHARACTERS_PER_TOKEN)
                for start in range(len(counts), len(texts), _TEXTS_TO_COUNT):
                    chunk = texts[start : start + _TEXTS_TO_COUNT]
                    counts += await loop.run_in_executor(
                        self._counting_thread, self._count_tokens, chunk
                    )
                    self.limits.check_tokens(counts)
                phrases, arrived = constraints or [()] * len(texts), time.monotonic()
                nothing = [None] * len(texts)
                rows = phrases, prefixes or nothing, drafts or nothing
                columns = zip(texts, counts, *rows, strict=True)
                entries = deque[QueuedText]()
                for text, count, required, prefix, draft in columns:
                    future = asyncio.Future[list[Any]]()
                    entry = QueuedText(
                        text, count, future, options, format, required, prefix, draft, arrived
                    )
                    entries.append(entry)
                queued = QueuedRequest(client, entries, is_part)
                return await self._wait_for_translations(queued)
        except TimeoutError as error:
            raise self.limits.late() from error

    async def _wait_for_translations(self, request: QueuedRequest) -> list[list[Any]]:
        if self._stopped is not None:
            raise self._stopped
        futures = [text.future for text in request.texts]
        self._queue.add(request)
        self._accepted.update(futures)
        self._arrived.set()
        try:
            return list(await asyncio.gather(*futures))
        finally:
            self._queue.discard(request)
            self._accepted.difference_update(futures)
            for future in futures:
                future.cancel()
            # asyncio reports exceptions that it returned to no one.
            asyncio.gather(*futures, return_exceptions=True)

    async def run(self) -> None:
        """Translate batches until canceled or until the model is broken."""
        try:
            while not self.broken:
                groups: dict[Any, list[QueuedText]] = {}  # with the same options
                for text in self._queue.take():
                    is_constrained = bool(text.constraints)
                    has_prefix = text.target_prefix is not None
                    has_draft = text.draft is not None
                    key = (text.options, text.format, is_constrained, has_prefix, has_draft)
                    groups.setdefault(key, []).append(text)
                for group in groups.values():
                    self.batches += 1
                    self.on_batch(group)
                    await self._translate_group(group)
                if not groups:
                    self._arrived.clear()
                    await self._arrived.wait()
        except Exception as error:
            self.last_failure = type(error).__name__
            self._break()
            raise
        finally:
            self.stop()

    def stop(self) -> None:
        """Refuse all requests from here on, the accepted ones included."""
        if self._stopped is None:
            broken = ModelFailure("The model cannot translate anymore.")
            self._stopped = broken if self.broken else Refusal(503, "The service is shutting down.")
        for future in list(self._accepted):
            if not future.done():
                future.set_exception(self._stopped)

    def close(self) -> None:
        """Stop the threads after their current call, without waiting for it."""
        self._model_thread.shutdown(wait=False, cancel_futures=True)
        self._counting_thread.shutdown(wait=False, cancel_futures=True)

    async def _translate_group(self, group: list[QueuedText]) -> None:
        """Translate texts together, or one by one if that fails, so that each one fails alone."""
        group = [entry for entry in group if not entry.future.done()]
        if not group or self.broken:
            return
        try:
            translations = await self._call_model(group)
        except ModelFailure as failure:
            is_refused = isinstance(failure.__cause__, _REFUSALS)
            if not is_refused:
                await self._check_model(group[0].options)
            if len(group) > 1:
                for entry in group:
                    await self._translate_group([entry])
                return
            reason = (
                Refusal(422, str(failure.__cause__)[:LONGEST_REASON]) if is_refused else failure
            )
            self.failures += not is_refused
            if not group[0].future.done():  # its request may be gone
                group[0].future.set_exception(reason)
        else:
            self.texts += len(group)
            for entry, hypotheses in zip(group, translations, strict=True):
                if not entry.future.done():
                    entry.future.set_result(hypotheses)

    async def _call_model(self, group: Sequence[QueuedText]) -> list[list[Any]]:
        """Translate texts of one group.

        The calls of other batchers on this thread do not count as its time.
        """
        first = group[0]
        texts = [entry.text for entry in group]
        count = first.options.count
        columns = dict[str, list[Any]]()
        if first.constraints:
            columns["constraints"] = [list(entry.constraints) for entry in group]
        if first.target_prefix is not None:
            columns["target_prefix"] = [entry.target_prefix for entry in group]
        if first.draft is not None:
            columns["draft"] = [entry.draft for entry in group]
        options = first.options.model_copy(update=columns)

        def translate() -> list[list[Any]]:
            # It stays so if the call is canceled or hangs: its thread still works.
            self._busy_since = time.monotonic()
            return self._translate(texts, options, first.format)

        limit = _HANGING * self.limits.request_seconds
        call = asyncio.ensure_future(call_on_thread(self._model_thread, translate))
        try:
            while not call.done():
                if self.busy_seconds >= limit:
                    self.last_failure = "TimeoutError"
                    self._break()
                    raise ModelFailure("The model hangs.")
                await asyncio.wait([call], timeout=limit - self.busy_seconds)
        finally:
            call.cancel()
        self._busy_since = None
        try:
            translations = call.result()
            if [len(hypotheses) for hypotheses in translations] != [count] * len(texts):
                raise ModelFailure(f"Each of {len(texts)} texts must have {count} translations.")
        except ModelFailure as failure:
            if not isinstance(failure.__cause__, _REFUSALS):
                self.last_failure = type(failure.__cause__ or failure).__name__
            raise
        return translations

    async def _check_model(self, options: TranslationOptions) -> None:
        """Translate a harmless text after a failure; the model is broken if it cannot do that."""
        if self.broken:
            return
        languages = TranslationOptions(src_lang=options.src_lang, tgt_lang=options.tgt_lang)
        try:
            text = QueuedText(_HARMLESS_TEXT, 1, asyncio.Future(), languages)
            await self._call_model([text])
        except ModelFailure:
            self._break()

    def _break(self) -> None:
        self.broken = True
        self.on_broken()
