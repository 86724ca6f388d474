"""Gather the texts of concurrent requests into batches."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")
# Maps a batch of texts and a number of hypotheses to that many translations of each text, best first.
Translate = Callable[[Sequence[str], int], list[list[str]]]


@dataclass(frozen=True)
class Limits:
    """Limits of one request, of a batch and of the queue."""

    max_batch_size: int = field(default=32, metadata={"help": "Maximum number of texts per batch."})
    max_waiting: int = field(default=1024, metadata={"help": "Maximum number of texts in the queue."})
    max_body_bytes: int = field(default=1_000_000, metadata={"help": "Maximum size of a request in bytes."})
    max_texts: int = field(default=256, metadata={"help": "Maximum number of texts per request."})
    max_characters: int = field(default=5000, metadata={"help": "Maximum length of a text in characters."})
    max_hypotheses: int = field(default=8, metadata={"help": "Maximum number of translations per text."})

    def __post_init__(self) -> None:
        for limit in fields(Limits):
            value = getattr(self, limit.name)
            if value < 1:
                raise ValueError(f"`{limit.name}` must be 1 or more, got {value}.")


class QueueFull(Exception):
    """Raised when more texts wait than allowed."""


class _QueuedText(NamedTuple):
    """A text, the number of translations to return, and the future that receives them."""

    text: str
    num_hypotheses: int
    future: asyncio.Future


class Batcher:
    """Translate texts on one thread, batch by batch.

    While a batch is translated, the texts of other requests wait in a queue and form the next batch. So a busy server
    has full batches and an idle one answers at once.

    Args:
        translate: Called on the model thread, one call at a time.
        limits: Limits of a batch and of the queue.

    Attributes:
        batches: Number of batches so far.
        texts: Number of texts so far.
    """

    def __init__(self, translate: Translate, limits: Limits):
        self.batches = self.texts = 0
        self._translate = translate
        self._limits = limits
        self._queue: asyncio.Queue[_QueuedText] = asyncio.Queue()
        self._model_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="translate")

    @property
    def waiting(self) -> int:
        """Number of texts in the queue."""
        return self._queue.qsize()

    async def translate(self, texts: Sequence[str], num_hypotheses: int) -> list[list[str]]:
        """Return the `num_hypotheses` best translations of each text, best first.

        Raises:
            QueueFull: the queue has no room for all of `texts`.
        """
        if self.waiting + len(texts) > self._limits.max_waiting:
            raise QueueFull
        loop = asyncio.get_running_loop()
        entries = [_QueuedText(text, num_hypotheses, loop.create_future()) for text in texts]
        for entry in entries:
            self._queue.put_nowait(entry)
        return list(await asyncio.gather(*(entry.future for entry in entries)))

    async def run_on_model_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run `function` on the model thread; no batch is translated meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._model_thread, function, *arguments)

    async def run(self) -> None:
        """Translate batches until canceled; the current batch is finished first."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < self._limits.max_batch_size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await asyncio.shield(self._translate_batch([entry for entry in batch if not entry.future.done()]))

    async def drain(self) -> None:
        """Wait until the queue is empty."""
        while self.waiting:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Stop the model thread after the current batch."""
        self._model_thread.shutdown(wait=True)

    async def _translate_batch(self, batch: list[_QueuedText]) -> None:
        """Translate the texts of each number of hypotheses together. An exception fails only the texts of its call."""
        for num_hypotheses in sorted({entry.num_hypotheses for entry in batch}):
            group = [entry for entry in batch if entry.num_hypotheses == num_hypotheses]
            self.batches += 1
            self.texts += len(group)
            try:
                texts = [entry.text for entry in group]
                translations = await self.run_on_model_thread(self._translate, texts, num_hypotheses)
            except Exception as error:
                for entry in group:
                    if not entry.future.done():
                        entry.future.set_exception(error)
            else:
                for entry, hypotheses in zip(group, translations, strict=True):
                    if not entry.future.done():
                        entry.future.set_result(hypotheses)
