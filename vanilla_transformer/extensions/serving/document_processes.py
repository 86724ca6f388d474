"""Read and write the documents of requests in processes, a few at once, while their sentences wait
in the queue.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import Direction

from .limits import LONGEST_REASON, Limits, Refusal
from .queue import ModelFailure

Answer = Callable[[list[Sentence]], Awaitable[list[Translation]]]
_MOST_AT_ONCE, _MOST_OF_A_CLIENT = 4, 2  # processes
# To refuse a document whose process takes too long, before the whole request is too late
_SECONDS_TO_REFUSE = 1.0
_STOPPED = "The service is shutting down."


class Documents(Protocol):
    """An object that describes documents to their process and translates their sentences, such as
    [`DocumentTranslator`].
    """

    def describe(
        self,
        texts: Sequence[str],
        format: str,
        options: TranslationOptions,
        default: Direction,
    ) -> Any: ...
    def translate(
        self, sentences: Sequence[Sentence], options: TranslationOptions
    ) -> list[Translation]: ...


class DocumentProcesses:
    """
    Call functions on documents in processes of [`DocumentProcess`], one for each call.

    A client has some of them at once, so that its slow documents do not keep others out.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="document")
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._turns_of_clients = WeakValueDictionary[str, asyncio.Semaphore]()
        self._starting: asyncio.Future[None] | None = None
        self._running, self._is_stopped = set[Any](), False

    @property
    def is_starting(self) -> bool:
        """Whether a thread waits until documents can be read."""
        return self._starting is not None and not self._starting.done()

    def start(self) -> asyncio.Future[None]:
        """Begin to import what all processes need, which takes seconds, and return when that is
        done.
        """
        from vanilla_transformer.extensions.documents.document_process import start_server

        if self._starting is None:
            loop = asyncio.get_running_loop()
            self._starting = loop.run_in_executor(self._threads, start_server)
        return asyncio.shield(self._starting)

    def stop(self) -> None:
        """Refuse all calls from here on, the running ones included."""
        self._is_stopped = True
        for process in self._running:
            process.kill()

    def close(self) -> None:
        """End the threads. A call that is canceled ends its process."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(
        self,
        client: str,
        function: Callable[..., Any],
        *arguments: Any,
        answer: Answer | None = None,
    ) -> Any:
        """Return the result of a function for documents of a client.

        Args:
            answer: Translates the sentences for which it asks.
        """
        await self.start()
        deadline = asyncio.get_running_loop().time() + self._limits.request_seconds
        semaphore = asyncio.Semaphore(_MOST_OF_A_CLIENT)
        turns = self._turns_of_clients.setdefault(client, semaphore)
        try:
            refused_at = deadline + _SECONDS_TO_REFUSE
            async with asyncio.timeout_at(refused_at), turns, self._turns:
                return await self._run(deadline, answer, function, *arguments)
        except TimeoutError as error:
            raise self._limits.late() from error

    async def _run(
        self,
        deadline: float,
        answer: Answer | None,
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        from vanilla_transformer.extensions.documents.document_process import DocumentProcess

        if self._is_stopped:
            raise Refusal(503, _STOPPED)
        loop, limits = asyncio.get_running_loop(), self._limits
        seconds, memory = limits.request_seconds, limits.max_document_memory
        call = partial(loop.run_in_executor, self._threads)
        process = await call(DocumentProcess, seconds, memory, function, *arguments)
        self._running.add(process)
        requirement, status = "A document must be read and written", 422
        try:
            asks, content = await call(process.receive, deadline - loop.time())
            while asks:
                assert answer is not None
                await call(process.send, await answer(content))
                asks, content = await call(process.receive, deadline - loop.time())
            return content
        except TimeoutError:
            reason = f"{requirement} within {seconds:,} seconds (--request_seconds). Split it."
        except MemoryError:
            reason = (
                f"{requirement} in {memory:,} bytes of memory (--max_document_memory). Split it."
            )
            status = 413
        except (EOFError, ConnectionError):
            reason = "The process that read or wrote the document was killed. Split the document."
            if self._is_stopped:
                reason, status = _STOPPED, 503
        except UserError as error:
            position = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
            reason = f"{str(error)[: 2 * LONGEST_REASON]}{position}"
        except RuntimeError as error:  # a bug
            logger = logging.getLogger(__name__)
            logger.error("A document cannot be translated: %s", error)
            raise ModelFailure(f"A document cannot be translated: {error}") from error
        finally:
            self._running.remove(process)
            process.kill()
        raise Refusal(status, reason)
