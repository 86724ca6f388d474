"""Sentences of concurrent requests, gathered into batches."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")
# A batch of texts to their translations, best first, as many of each as the number says.
Translate = Callable[[Sequence[str], int], list[list[str]]]


class Overloaded(Exception):
    """More texts wait than may."""


class _Waiting(NamedTuple):
    """A text, how many translations of it are wanted, and where they go."""

    text: str
    hypotheses: int
    answer: asyncio.Future


class Batcher:
    """
    Translates with one thread, batch after batch. While one is at work the texts of other requests gather, so that a
    busy server has full batches and an idle one answers at once.

    Args:
        translate: Called in a thread of its own, never twice at a time.
        max_batch_size: Texts translated together.
        max_waiting: Texts that may wait; further ones are refused.
    """

    def __init__(self, translate: Translate, max_batch_size: int = 32, max_waiting: int = 1024):
        self.batches = self.texts = 0
        self._translate = translate
        self._max_batch_size = max_batch_size
        self._max_waiting = max_waiting
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="translate")

    @property
    def waiting(self) -> int:
        """Texts that no batch has taken yet."""
        return self._waiting.qsize()

    async def translate(self, texts: Sequence[str], hypotheses: int) -> list[list[str]]:
        """
        Translations of each text, best first, once the batches that hold them are done.

        Raises:
            Overloaded: too many texts wait already.
        """
        if self.waiting + len(texts) > self._max_waiting:
            raise Overloaded
        loop = asyncio.get_running_loop()
        entries = [_Waiting(text, hypotheses, loop.create_future()) for text in texts]
        for entry in entries:
            self._waiting.put_nowait(entry)
        return list(await asyncio.gather(*(entry.answer for entry in entries)))

    async def alone(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What else needs the model, in the same thread: nothing is translated meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def run(self) -> None:
        """Works until it is cancelled; a batch in progress is finished first."""
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._max_batch_size and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await asyncio.shield(self._answer([entry for entry in batch if not entry.answer.cancelled()]))

    async def drain(self) -> None:
        """Returns once nothing waits."""
        while self.waiting:
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """Ends the thread, behind the batch that it is at."""
        self._pool.shutdown(wait=True)

    async def _answer(self, batch: list[_Waiting]) -> None:
        """Those that want the same number of translations are translated together; a failure is theirs alone."""
        loop = asyncio.get_running_loop()
        for hypotheses in sorted({entry.hypotheses for entry in batch}):
            group = [entry for entry in batch if entry.hypotheses == hypotheses]
            self.batches += 1
            self.texts += len(group)
            try:
                texts = [entry.text for entry in group]
                answers = await loop.run_in_executor(self._pool, self._translate, texts, hypotheses)
            except Exception as error:
                for entry in group:
                    if not entry.answer.done():
                        entry.answer.set_exception(error)
            else:
                for entry, answer in zip(group, answers, strict=True):
                    if not entry.answer.done():
                        entry.answer.set_result(answer)
