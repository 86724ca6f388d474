"""Queue the texts of requests fairly, and translate them in batches on the thread of the model."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from vanilla_transformer.decoding.options import OptionError, TranslationOptions
from vanilla_transformer.decoding.sentences import Sentence

from .limits import LONGEST_REASON, Limits, Refusal

TEXT = "text"  # the format of texts that are no documents
_NO_OPTIONS = TranslationOptions()

# A request with more tokens, or a part of one, is large: its tokens count several times.
_TOKENS_OF_SMALL_REQUESTS = 256
_COST_OF_LARGE_REQUESTS = 4
# A batch has large requests for so many seconds, or so many times the time that any batch takes.
_SECONDS_OF_BATCH = 0.25
_LEAST_SHARE = 5
_MEASURED_BATCHES = 64  # the last ones
_WEIGHT_OF_NOTHING = 0.1  # of a batch without tokens, which takes no time


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
        columns: The columns of tables that are translated.
        existing: A translation of the only document, which gets what it lacks.
        previous: An earlier version of the only document and its translation.
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
    columns: str = ""
    existing: str | None = None
    previous: Sequence[str] = ()
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


class _Waiting(NamedTuple):
    """A text that waits, with the virtual time at which its turn ends."""

    finish: int
    text: QueuedText
    request: QueuedRequest
    is_large: bool


class FairQueue:
    """Queue the texts of requests and take batches of them.

    The texts are in the order of self-clocked fair queueing (Golestani 1994). Its clock counts
    tokens: the turn of a text ends when its tokens have passed since the text before it, of the
    same client and kind, or since the text that was taken last. That has these reasons:

    - Equal requests of a client are taken in the order in which they came. Turns among its requests
      would make all of them end late, and a bound of its waiting tokens, beyond which they lose
      their preference, would let the latest ones overtake the others.
    - Clients share the model by tokens. One with hundreds of requests does not delay the single
      request of another one, and none collects a right, or a debt, while it is silent.
    - Small and large requests have separate turns, so that a small one does not wait for a large
      one of its own client. Tokens of large ones count several times: small ones come first, and
      their share is larger if both keep coming. But no text waits for ever, since all that come
      later end later.
    - A batch is filled in this order, past texts that do not fit into it, and the first one always
      fits. Full batches are what makes a model fast: a text alone takes nearly as long as many.
    - A small request waits at most for the batch at work and for its own. So a batch with large
      requests must not take long, and how many tokens that are depends on the model: the time that
      any batch takes and the time of a token are measured by a line through the last batches. Where
      any batch takes long, a short one would waste the model. Hence a batch may always take five
      times as long as its fixed part, and large requests lose at most a fourth of their speed.

    Args:
        limits: Limits of batches and of waiting texts. The limits of waiting texts hold separately
            for small and for large requests, so that large ones do not keep small ones out. A batch
            of one text may have any length.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._waiting: list[_Waiting] = []
        self._now = 0  # the end of the last turn
        self._measured = deque[tuple[int, float]](maxlen=_MEASURED_BATCHES)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: QueuedRequest) -> None:
        """Add the texts of a request."""
        num_tokens = sum(text.tokens for text in request.texts)
        is_large = request.is_part or num_tokens > _TOKENS_OF_SMALL_REQUESTS
        of_kind = [entry for entry in self._waiting if entry.is_large == is_large]
        of_client = [entry for entry in of_kind if entry.request.client == request.client]
        if len(of_client) + len(request.texts) > self._limits.max_waiting_per_client:
            raise Refusal(
                429, "Too many of your texts wait (--max_waiting_per_client). Try again later."
            )
        if len(of_kind) + len(request.texts) > self._limits.max_waiting:
            raise Refusal(429, "Too many texts wait (--max_waiting). Try again later.")
        finish = max((entry.finish for entry in of_client), default=self._now)
        for text in request.texts:
            finish += text.tokens * (_COST_OF_LARGE_REQUESTS if is_large else 1)
            self._waiting.append(_Waiting(finish, text, request, is_large))
        self._waiting.sort(key=attrgetter("finish"))

    def discard(self, request: QueuedRequest) -> None:
        """Remove the texts of a request that still wait, if any."""
        self._waiting = [entry for entry in self._waiting if entry.request is not request]

    def take(self) -> list[QueuedText]:
        """Remove and return the texts of the next batch, none if the queue is empty."""
        batch, others = list[QueuedText](), list[_Waiting]()
        tokens_in_time, longest = self._tokens_in_time(), 0
        for entry in self._waiting:
            longest_with_it = max(longest, entry.text.tokens)
            num_tokens = (len(batch) + 1) * longest_with_it
            is_slow = entry.is_large and len(batch) > 1 and num_tokens > tokens_in_time
            is_full = len(batch) == self._limits.max_batch_size
            if batch and (is_full or is_slow or num_tokens > self._limits.max_batch_tokens):
                others.append(entry)
                continue
            batch.append(entry.text)
            longest = longest_with_it
            self._now = max(self._now, entry.finish)
        self._waiting = others
        return batch

    def measure(self, batch: Sequence[QueuedText], seconds: float) -> None:
        """Learn how long a batch took."""
        longest = max(1, *(text.tokens for text in batch))
        self._measured.append((len(batch) * longest, seconds))

    def _tokens_in_time(self) -> float:
        """Return how many tokens a batch may have to take the time of one with large requests."""
        if not self._measured:
            return float("inf")
        # The last batches may be equally long. That no tokens take no time makes the next one
        # shorter then, from which the fixed part is learned.
        tokens, seconds = np.array([(0, 0.0), *self._measured]).T
        weights = [_WEIGHT_OF_NOTHING] + [1.0] * len(self._measured)
        slope, fixed = np.polyfit(tokens, seconds, 1, w=weights)
        return (max(_SECONDS_OF_BATCH, _LEAST_SHARE * fixed) - fixed) / max(slope, 1e-9)


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
        texts, options, format = request.texts, request.options, request.format
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
                arrived = time.monotonic()
                phrases = request.constraints or [()] * len(texts)
                nothing = [None] * len(texts)
                prefixes, drafts = request.prefixes or nothing, request.drafts or nothing
                columns = zip(texts, counts, phrases, prefixes, drafts, strict=True)
                entries = deque[QueuedText]()
                for text, count, required, prefix, draft in columns:
                    future = asyncio.Future[list[Any]]()
                    entry = QueuedText(
                        text, count, future, options, format, required, prefix, draft, arrived
                    )
                    entries.append(entry)
                queued = QueuedRequest(request.client, entries, request.is_part)
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
        seconds, self._busy_since = self.busy_seconds, None
        try:
            translations = call.result()
            if [len(hypotheses) for hypotheses in translations] != [count] * len(texts):
                raise ModelFailure(f"Each of {len(texts)} texts must have {count} translations.")
        except ModelFailure as failure:
            if not isinstance(failure.__cause__, _REFUSALS):
                self.last_failure = type(failure.__cause__ or failure).__name__
            raise
        self._queue.measure(group, seconds)
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
