"""
Read and write documents in a separate process, which ends when it takes too much time or memory.

A document may be made to take hours or all memory, and a search of an expression, which holds
Python's lock, stops all threads of a process. Only texts come back from that process: it asks for
the translations of sentences.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from multiprocessing.forkserver import set_forkserver_preload
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from vanilla_transformer.decoding.sentences import Sentence, TranslateSentences
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import DOCUMENT_FORMATS, FORMATS
from vanilla_transformer.files.text_files import decode_document, decode_text, fit_encoding
from vanilla_transformer.user_input.user_modules import starting_processes

# A new process is a copy of one that has imported these modules, which takes milliseconds, where
# the system can do so.
_METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
_context: Any = get_context(_METHOD)
_MODULES = [
    __name__,
    *{f"{__package__}.{FORMATS[name].reader.partition(':')[0]}" for name in DOCUMENT_FORMATS},
]
_REQUIREMENT = "The document must be read and written"
# In a question, so that reading it does not hold Python's lock for long.
_MOST_SENTENCES = 1024
_starting = threading.Lock()


@cache
def start_server() -> None:
    """Start the process of which all processes for documents are copies, and wait until it has
    imported the modules.
    """
    if _METHOD == "forkserver":
        set_forkserver_preload(_MODULES)
        with _starting, starting_processes():
            process = _context.Process(target=_do_nothing)
            process.start()
        process.join()


def _do_nothing() -> None:
    """Return at once. A process that does has been started."""


class DocumentProcess:
    """
    A process that calls a function with a [`TranslateSentences`] and its arguments.

    Args:
        seconds: Time of the processor after which it ends by itself, for a process whose parent is
            gone.
        memory: Bytes that it may take. Only Linux limits them.
        function: A function of a module.
    """

    def __init__(
        self, seconds: int, memory: int, function: Callable[..., Any], *arguments: Any
    ) -> None:
        self._connection, other = _context.Pipe()
        work = other, seconds, memory, function, arguments
        self._process = _context.Process(target=_work, args=work, daemon=True)
        with _starting, starting_processes():
            self._process.start()
        other.close()

    def kill(self) -> None:
        """End the process, also while another thread waits for it."""
        self._process.kill()

    def receive(self, seconds: float) -> tuple[bool, Any]:
        """Return whether the process asks, and the sentences to translate or what the function has
        returned.

        Raises:
            TimeoutError: There is nothing within this time.
            EOFError: The process was killed.
            MemoryError, UserError, RuntimeError: As the function did; a bug is the last one, with
                its traceback.
        """
        if not self._connection.poll(max(0.0, seconds)):
            raise TimeoutError
        asks, content = self._connection.recv()
        if isinstance(content, Exception):
            raise content
        return asks, content

    def send(self, answers: Sequence[Translation]) -> None:
        """Answer what the process has asked."""
        with suppress(ConnectionError):  # which `receive` reports
            self._connection.send(answers)


def limit_memory(memory: int) -> Callable[[], None]:
    """Limit the memory that this process may take from now on, in bytes, on Linux. Return a
    function that ends the limit.
    """
    if sys.platform != "linux":
        return _do_nothing
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return partial(resource.setrlimit, resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def limited_work(seconds: int, memory: int) -> Iterator[None]:
    """
    Refuse a document that takes too much time or memory to read or write in this process.

    Python's signals end a search of an expression, too. Systems without them have no limit of time.

    Args:
        seconds: Time of the processor, in this process.
        memory: Bytes beside the memory in use.
    """

    def refuse(*_: Any) -> None:
        raise UserError(f"{_REQUIREMENT} within {seconds:,} seconds of the processor. Split it.")

    has_timer = hasattr(signal, "setitimer") and current_thread() is main_thread()
    restore_memory = limit_memory(memory)
    if has_timer:
        handler = signal.signal(signal.SIGVTALRM, refuse)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except MemoryError:
        raise UserError(f"{_REQUIREMENT} in {memory:,} bytes of memory. Split it.") from None
    finally:
        if has_timer:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, handler)
        restore_memory()


def _work(
    connection: Connection,
    seconds: int,
    memory: int,
    function: Callable[..., Any],
    arguments: Sequence[Any],
) -> None:
    """Call the function in its process, and send what it returns or raises."""

    def ask(sentences: Sequence[Sentence]) -> list[Translation]:
        translations = list[Translation]()
        for start in range(0, len(sentences), _MOST_SENTENCES):
            connection.send((True, sentences[start : start + _MOST_SENTENCES]))
            translations += connection.recv()
        return translations

    limit_memory(memory)
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1,) * 2)
    try:
        content = function(ask, *arguments)
    except (MemoryError, UserError) as error:
        content = error
    except RecursionError:
        content = UserError("A document must not be nested so deeply.")
    except Exception:
        content = RuntimeError(traceback.format_exc())
    with suppress(ConnectionError):  # the caller does not wait anymore
        connection.send((False, content))


# --- Functions for the process
# --------------------------------------------------------------------------------------


def decode_file(ask: TranslateSentences, content: bytes, name: str, format: str) -> tuple[str, str]:
    """Return the text and the encoding of a file: of a document, or of lines of text."""
    if format == "text":
        return decode_text(content, name), "UTF-8"
    return decode_document(content, name, format)


def encode_file(ask: TranslateSentences, text: str, encoding: str) -> bytes:
    """Return the content of a file with a translated document."""
    return fit_encoding(text, encoding).encode(encoding)
