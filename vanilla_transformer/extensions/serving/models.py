"""The models of a service: each has its own queue and limits, and may be loaded when a request
needs it.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.pretrained import hash_model
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, is_of_language
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .document_processes import DocumentProcesses, Documents
from .limits import Limits, Refusal
from .queue import (
    TEXT,
    Batcher,
    CountTokens,
    ModelFailure,
    TextRequest,
    Translate,
    call_on_thread,
    count_bytes,
)

VERSION = version("vanilla-transformer")
_WEIGHTS = (".safetensors", ".bin", ".onnx", ".onnx_data")
_UNAVAILABLE = ("broken", "slow")
_MOST_SHOWN = 12  # names in a message
_COMPARED_TEXTS = 20
_FAULTS = {"copy", "repetition", "numbers"}  # of the warnings
_Answers = dict[tuple[str, TranslationOptions], str]  # to texts in some languages
_LOG = logging.getLogger("uvicorn.error")  # has times


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        known: Names of options that `translate` accepts.
        is_compiled: Tells whether the model decodes by compiled steps.
        documents: Describes documents to the process that reads them. Without it, `translate` gets
            documents.
        memory: Translations that requests in the usual languages share.
        warning_limits: Usual lengths and scripts, by which suggestions are checked.
    """

    translate: Translate
    count_tokens: CountTokens = count_bytes
    known: Sequence[str] = ()
    is_compiled: Callable[[], bool] = lambda: False
    documents: Documents | None = None
    memory: object = None
    warning_limits: WarningLimits = WarningLimits()


class ModelLoader:
    """Load models one at a time, and keep at most `max_loaded` of them in memory.

    Attributes:
        model_thread: Thread on which all of them translate. With a thread each, they would compete
            for the cores.
        is_busy: Whether a thread loads a model, for a request that may have left.
    """

    def __init__(self, max_loaded: int | None = None):
        self.model_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="translate")
        self.is_busy = False
        self._max_loaded = max_loaded
        self._loaded = set[ServedModel]()
        self._lock = asyncio.Lock()

    async def load(self, model: "ServedModel", load: Callable[[], LoadedModel]) -> LoadedModel:
        """Return the result of `load`, after idle models have made room for it, least recently used
        ones first.
        """

        def run() -> LoadedModel:
            self.is_busy = True
            try:
                gc.collect()  # frees models that were unloaded
                return load()
            finally:
                self.is_busy = False

        async with self._lock:
            while self._max_loaded is not None and len({*self._loaded, model}) > self._max_loaded:
                idle = []
                for other in self._loaded:
                    if other.requests == 0 and other.batcher.busy_seconds == 0:
                        idle.append(other)
                if not idle:
                    reason = (
                        "The models in memory are at work, with no room for more "
                        "(--max_loaded). Try again later."
                    )
                    raise Refusal(429, reason)
                least_recently_used = min(idle, key=lambda model: model.last_used)
                least_recently_used.loaded = None
                self._loaded.remove(least_recently_used)
            # This thread ends, and OpenMP's threads for it end too, so that they do not slow down
            # the model thread's.
            thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="load")
            try:
                result = await call_on_thread(thread, run)
            finally:
                thread.shutdown(wait=False)
            self._loaded.add(model)
            return result


class ServedModel:
    """A model of a service, with its own queue and limits.

    Args:
        name: Name by which requests ask for it.
        load: Returns the model; called when a request needs it, unless it is in memory from the
            start (`loaded`).
        directions: Languages from and to which it translates, as far as that is known.
        loader: Loader of all models of the service.
        default: The languages of requests that do not name them, as far as they are known; for one
            direction, that.
        folder: Folder of the model, or its name on the Hub.

    Attributes:
        known: Options of the model, once it was loaded.
        requests: Number of requests that need the model.
        last_used: Time of `time.monotonic` at which it last translated.
        sha256: Hash of its weights, once that is known.
        processes: Processes for documents, which all models of a service share.
    """

    processes: DocumentProcesses

    def __init__(
        self,
        name: str,
        limits: Limits,
        load: Callable[[], LoadedModel] | None = None,
        loaded: LoadedModel | None = None,
        directions: Sequence[Direction] = (),
        loader: ModelLoader | None = None,
        default: Direction = NO_DIRECTION,
        folder: str = "",
    ):
        self.name, self.limits, self.directions, self.folder = name, limits, directions, folder
        self.default = directions[0] if len(directions) == 1 else default
        self.requests, self.last_used = 0, 0.0
        self.sha256: str | None = None
        self.known: Sequence[str] = () if loaded is None else loaded.known
        self._load_model, self.loader = load, loader or ModelLoader()
        self.loaded: Any = loaded  # None if the model is not in memory
        self._loading: asyncio.Task[Refusal | None] | None = None
        self._answers = _Answers()  # the last ones
        self.batcher = Batcher(
            self._translate,
            limits,
            lambda texts: self.loaded.count_tokens(texts),
            self.loader.model_thread,
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the model is in memory."""
        return self.loaded is not None

    def _translate(
        self, texts: Sequence[str | Sentence], options: TranslationOptions, format: str
    ) -> list[list[Any]]:
        translations: list[list[Any]] = self.loaded.translate(texts, options, format)
        return translations

    def health(self) -> dict[str, Any]:
        """Describe the model: `"slow"` means that a batch takes longer than a request may."""
        status = "ok"
        if self.batcher.broken:
            status = "broken"
        elif self.batcher.busy_seconds > self.limits.request_seconds:
            status = "slow"
        elif self.loaded is None:
            status = "not loaded" if self._loading is None else "loading"
        batcher = self.batcher
        failures = {"failures": batcher.failures, "last_failure": batcher.last_failure}
        return {"status": status, **failures, "sha256": self.sha256}

    def find_direction(self, options: TranslationOptions) -> Direction:
        """Return the direction of a request, as the model names it if it does."""
        source = str(options.src_lang or self.default.source)
        target = str(options.tgt_lang or self.default.target)
        for known in self.directions:
            is_source = is_of_language(source, str(known.source))
            if is_source and is_of_language(target, str(known.target)):
                return known
        return self.default

    async def load(self) -> None:
        """Load the model unless it is in memory."""
        if self.loaded is not None:
            return
        loading = self._loading = self._loading or asyncio.create_task(self._load())
        await asyncio.wait([loading], timeout=self.limits.request_seconds)
        if not loading.done():
            raise Refusal(
                503, f"The model {self.name} is still loading (--request_seconds). Try again later."
            )
        try:
            refusal = loading.result()
        except asyncio.CancelledError:  # by `stop`
            refusal = Refusal(503, "The service is shutting down.")
        if refusal is not None:
            raise refusal

    async def translate(self, request: TextRequest) -> list[list[Any]]:
        """Translate as [`Batcher.translate`] does; the model stays in memory meanwhile."""
        self.requests += 1
        try:
            await self.load()
            if self.loaded.documents is None or request.format == TEXT:
                rows = await self.batcher.translate(request)
                self._remember(request, rows)
                return rows
            return await self._translate_documents(request, self.loaded.documents)
        finally:
            self.requests -= 1
            self.last_used = time.monotonic()

    async def _translate_documents(
        self, request: TextRequest, documents: Documents
    ) -> list[list[Any]]:
        """Translate documents, whose sentences wait in the queue as other texts do."""
        from vanilla_transformer.extensions.documents.translation import translate_task

        self.limits.check_request(request.texts, request.options.count, request.format)
        task = documents.describe(request.texts, request.format, request.options, self.default)
        task = task._replace(
            columns=request.columns, existing=request.existing, previous=request.previous
        )

        async def answer(sentences: list[Sentence]) -> list[Translation]:
            limits, answers = self.limits, dict[int, Translation]()
            lengths = [len(sentence.text) for sentence in sentences]
            limits.check_sentences(lengths)
            by_length = iter(sorted(range(len(sentences)), key=lengths.__getitem__))

            async def work() -> None:
                for position in by_length:
                    texts = [sentences[position]]
                    part = request._replace(texts=texts, is_part=len(sentences) > 1)
                    rows = await self.batcher.translate(part)
                    answers[position] = rows[0][0]

            # As many sentences wait as fill the next batch while one is at work.
            num_waiting = min(2 * limits.max_batch_size, limits.max_waiting_per_client)
            workers = [asyncio.create_task(work()) for _ in range(num_waiting)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
            return [answers[position] for position in range(len(sentences))]

        call = self.processes.call
        translated = await call(request.client, translate_task, task, answer=answer)
        return [[text] for text in translated]

    def _remember(self, request: TextRequest, rows: Sequence[Sequence[Any]]) -> None:
        """Keep the last answers to requests without options, for [`ServedModel.reload`]."""
        options = request.options.model_copy(update={"memory": None})
        languages = TranslationOptions(src_lang=options.src_lang, tgt_lang=options.tgt_lang)
        plain = TextRequest(request.texts, languages, request.client, is_part=request.is_part)
        if request._replace(options=options) == plain:
            for text, row in zip(request.texts, rows, strict=True):
                self._answers[text, languages] = row[0]
            self._answers = dict([*self._answers.items()][-_COMPARED_TEXTS:])

    async def reload(self) -> None:
        """Load the model again beside the one in memory, and take it unless it cannot be loaded or
        gives more faulty answers to the last texts.
        """
        if self.loaded is None or self._load_model is None:  # a request will load it
            return
        answers, others, verdict = self._answers, _Answers(), "stays as it is"
        try:
            new = await self.loader.load(self, self._load_model)
            for text, languages in answers:
                rows = await call_on_thread(
                    self.loader.model_thread, new.translate, [text], languages, TEXT
                )
                others[text, languages] = rows[0][0]
        except (ModelFailure, Refusal) as failure:
            _LOG.error("The model %s stays as it is: %s", self.name, failure)
            return
        faults, old_faults = count_faults(others), count_faults(answers)
        if faults <= old_faults and self.loaded is not None:  # it may have made room for another
            self.loaded, self.known, verdict = new, new.known, "was replaced"
            await asyncio.to_thread(hash_models, [self])
        _LOG.warning(
            "The model %s %s: of %d answers, %d of the new one are faulty, and %d of the old one.",
            *(self.name, verdict, len(answers), faults, old_faults),
        )

    def stop(self) -> None:
        """Refuse all requests from here on, the accepted ones included."""
        if self._loading is not None:
            self._loading.cancel()
        self.batcher.stop()
        self.processes.stop()

    async def _load(self) -> Refusal | None:
        """Load the model, or return why requests for it are refused."""
        assert self._load_model is not None
        try:
            self.loaded = await self.loader.load(self, self._load_model)
            self.known, self.last_used = self.loaded.known, time.monotonic()
            return None
        except Refusal as refusal:
            return refusal
        except ModelFailure as failure:
            kind = self.batcher.last_failure = type(failure.__cause__).__name__
            # The reason may name files, which are not for clients.
            logger = logging.getLogger(__name__)
            logger.error("The model %s cannot be loaded: %s", self.name, failure)
            return Refusal(
                500,
                f"The model {self.name} cannot be loaded ({kind}). The log of the service has the "
                "reason.",
            )
        finally:
            self._loading = None


def count_faults(answers: _Answers) -> int:
    """Count the texts whose answer is empty, copied or repeated, or has other numbers."""
    faults = 0
    for (text, _), answer in answers.items():
        warnings = find_warnings(text, answer, WarningLimits())
        faults += answer.strip() in ("", text.strip()) or not _FAULTS.isdisjoint(warnings)
    return faults


def hash_models(models: Sequence[ServedModel]) -> None:
    """Hash the files of weights of models."""
    for model in models:
        with suppress(OSError, UserError):  # loading reports them
            files = hash_model(model.folder).items()
            hashes = [value for file, value in files if Path(file).suffix in _WEIGHTS]
            model.sha256 = " ".join(hashes)


class Models:
    """The models of a service, at least one."""

    def __init__(self, models: Sequence[ServedModel]):
        self._models = models

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    @property
    def directions(self) -> list[Direction]:
        """The directions of all models, as far as they are known."""
        return [direction for model in self for direction in model.directions]

    @property
    def is_busy(self) -> bool:
        """Whether a thread loads a model, translates, or waits for the processes of documents."""
        return any(
            model.loader.is_busy or model.batcher.busy_seconds > 0 or model.processes.is_starting
            for model in self
        )

    def find(self, name: Any, status: int = 422) -> ServedModel:
        """Return the model that a request names, or refuse it with a status; the only model needs
        no name.
        """
        if name is None and len(self._models) == 1:
            return self._models[0]
        for model in self:
            if model.name == name:
                return model
        known = ", ".join([model.name for model in self][:_MOST_SHOWN])
        raise Refusal(status, f"`model` must be one of the models of this service: {known}.")

    def stop(self) -> None:
        """Refuse all requests from here on, the accepted ones included."""
        for model in self:
            model.stop()

    def health(self) -> tuple[dict[str, Any], int]:
        """Describe the state of the models, and return the HTTP status that fits."""
        states = {model.name: model.health() for model in self}
        rows = [state.values() for state in states.values()]
        statuses, failures, kinds, hashes = zip(*rows, strict=True)
        status = next((status for status in _UNAVAILABLE if status in statuses), "ok")
        last_failure = next(filter(None, kinds), None)
        content = {"status": status, "failures": sum(failures), "last_failure": last_failure}
        content["version"] = VERSION
        if len(states) > 1:
            content["models"] = states
        else:
            content |= {"model": next(iter(states)), "sha256": hashes[0]}
        return content, 200 if status == "ok" else 503
