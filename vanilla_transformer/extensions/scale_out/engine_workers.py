"""
Translate in several processes, each with its own engine and a share of the cores.

A step of a small model cannot use many cores, and engines in threads of one process take turns: a
compiled step holds Python's lock.
"""

import math
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from vanilla_transformer.decoding.engine import compiled_steps
from vanilla_transformer.decoding.engine.precision import resolve_precision
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.sentences import Report, Sentence
from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import LostProcessError, UserError
from vanilla_transformer.machine.cores import check_workers, usable_cores
from vanilla_transformer.user_input.user_modules import starting_processes

logger = logging.get_logger(__name__)
Loading = tuple[tuple[str, Any], ...]  # arguments of `load_pipeline`, by name
_LEAST, _MOST = 64, 512  # sentences that a worker gets at once


class WorkerPipeline(TranslationPipeline):
    """
    Translate raw text in worker processes on the CPU, as [`TranslationPipeline`] does in one; see
    [`open_pipeline`].

    Workers start when there is text for them, and load the model from its folder. They use the
    compiled steps of the cache, and compile none. Like all that starts processes, a script needs
    `if __name__ == "__main__":`.

    Args:
        name: The folder of the model, or its name on the Hub.
        loaded: A pipeline with the same model.
        workers: Processes, at most as many as the cores that this process may use.
        loading: `dtype` and other arguments of [`load_pipeline`].
    """

    def __init__(
        self,
        name: str | Path,
        loaded: TranslationPipeline,
        workers: int,
        precision: str | None = None,
        **loading: Any,
    ):
        super().__init__(loaded.model, loaded.tokenizer, device="cpu", precision=precision)
        # The workers decode, but these decide here which options a call may have.
        self._ensemble, self.reranker = loaded._ensemble, loaded.reranker
        self.workers = workers
        # The share of each worker, and not more threads than this process has.
        threads = max(1, min(usable_cores() // workers, torch.get_num_threads()))
        context = get_context("spawn")
        reader, self._lifeline = context.Pipe(duplex=False)
        with starting_processes():  # the tracker of its semaphores
            self._executor = ProcessPoolExecutor(workers, context, start_worker, (reader, threads))
        frozen: list[tuple[str, Any]] = []
        for key, value in loading.items():
            frozen.append((key, tuple(value) if isinstance(value, list) else value))
        self._task = partial(_translate_chunk, str(name), precision, tuple(frozen))

    def close(self) -> None:
        """End the workers, even while they translate."""
        self._lifeline.close()
        self._executor.shutdown(cancel_futures=True)

    def decode(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        translations = dict[int, list[Translation]]()
        lengths = [len(sentence.text) for sentence in sentences]
        order = sorted(range(len(sentences)), key=lengths.__getitem__, reverse=True)
        futures = dict[Future, list[int]]()
        options = options.without_columns()
        try:
            with starting_processes():
                for chunk in _split(order, self.workers):
                    chunk_sentences = [sentences[index] for index in chunk]
                    future = self._executor.submit(self._task, chunk_sentences, options)
                    futures[future] = chunk
            for future in as_completed(futures):
                translations |= zip(futures[future], future.result(), strict=True)
                report(len(futures[future]))
        except BrokenProcessPool as error:
            hint = f"If memory is short, use fewer than {self.workers} workers."
            raise LostProcessError(f"A worker process was killed. {hint}") from error
        finally:
            for future in futures:
                future.cancel()
        return [translations[index] for index in range(len(sentences))]


@contextmanager
def open_workers(
    name: str | Path, workers: int, precision: str | None, **loading: Any
) -> Iterator[TranslationPipeline]:
    """Yield the pipeline of a model for several workers, see [`open_pipeline`]."""
    check_workers(workers)
    translate = load_pipeline(name, precision=precision, **loading)
    model = translate.model
    precision = None if precision is None else resolve_precision(model, precision)
    if model.device.type != "cpu":
        raise UserError(
            f"Workers translate on the CPU, but this process uses {model.device}. Use one worker."
        )
    of_workers = {key: value for key, value in loading.items() if key != "device"}
    with closing(WorkerPipeline(name, translate, workers, precision, **of_workers)) as parallel:
        del translate
        yield parallel


def _split(order: list[int], workers: int) -> Iterator[list[int]]:
    """Split work into chunks that become smaller, so that all workers end at about the same
    time.
    """
    start = 0
    while start < len(order):
        size = min(_MOST, max(_LEAST, (len(order) - start) // (2 * workers)))
        yield order[start : start + size]
        start += size


def start_worker(lifeline: Connection, threads: int) -> None:
    """Begin a process that computes in so many threads, and ends with its parent."""

    def end_with_parent() -> None:
        lifeline.poll(None)  # until the parent closes its end of the pipe, or dies
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # whose threads would be as many as cores
    torch.set_num_threads(threads)
    # Or each worker would compile the same steps in the background.
    compiled_steps.EAGER_SECONDS = math.inf
    logging.set_verbosity_error()  # the parent has loaded the same model, and shown its warnings
    logging.disable_progress_bar()


def _translate_chunk(
    name: str,
    precision: str | None,
    loading: Loading,
    sentences: list[Sentence],
    options: TranslationOptions,
) -> list[list[Translation]]:
    return _load(name, precision, loading).decode(sentences, options, lambda count: None)


@lru_cache(maxsize=1)
def _load(name: str, precision: str | None, loading: Loading = ()) -> TranslationPipeline:
    return load_pipeline(name, precision=precision, device="cpu", **dict(loading))
