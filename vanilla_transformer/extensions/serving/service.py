"""HTTP service: `POST /translate` and `/detect`, `GET /models/NAME`, `/languages`, `/health` and
`/metrics`.
"""

import asyncio
import copy
import hmac
import json
import re
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Info, generate_latest
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from vanilla_transformer.data.readers import has_invalid_unicode
from vanilla_transformer.decoding.answers import rename_text
from vanilla_transformer.decoding.engine.requests import SentenceSeeds
from vanilla_transformer.decoding.options import (
    EXACT,
    SOFT,
    OptionError,
    TranslationOptions,
    options_of,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import DOCUMENT_ENDINGS
from vanilla_transformer.text.inline_terms import knows_inline_terms
from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.user_input.schemas import find_mistakes

from . import schema
from .document_processes import DocumentProcesses, Documents
from .incoming import BodyLimit, read_content, read_form, read_texts, unless_disconnected
from .language_detection import Detected, DetectLanguages
from .libretranslate import (
    DETECTED,
    Correction,
    Question,
    TranslatedFiles,
    name_language,
    name_translation,
)
from .limits import LONGEST_REASON, Limits, Refusal
from .models import VERSION, LoadedModel, Models, ServedModel
from .prometheus import CountRequests
from .queue import TEXT, CountTokens, ModelFailure, TextRequest, Translate, count_bytes
from .schema import TranslationRequest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Paths of the interface of LibreTranslate.
_OF_LIBRETRANSLATE = ("/detect", "/languages", "/translate_file", "/frontend/settings", "/suggest")
# Entries of LibreTranslate by ours.
_ENTRIES = {
    "text": "q",
    "num_return_sequences": "alternatives",
    "src_lang": "source",
    "tgt_lang": "target",
}
# No page of another site may show ours in a frame. A page cannot say so itself.
OF_PAGES = {"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY"}
_STATUS_OF_A_CLIENT_THAT_LEFT = 499
_FAILED = "The model failed to translate the text."
# Pages wait so long for the next letter, as LibreTranslate has it.
_TYPING_MILLISECONDS = 500
# Percent, of a language that `/detect` lists besides the most probable one.
_LEAST_CONFIDENCE = 1.0


def create_service(
    translate: Translate,
    limits: Limits | None = None,
    count_tokens: CountTokens = count_bytes,
    known: Sequence[str] = (),
    directions: Sequence[Direction] = (),
    name: str = "default",
    documents: Documents | None = None,
    **options: Any,
) -> FastAPI:
    """Create the application for one model, as [`create_service_of`] does for several, with its
    further `options`.

    Args:
        limits: A request beyond a limit is refused: with 413 if the body is too large, with 408 if
            it arrives too slowly, with 429 if too many texts wait, with 503 if the time is up,
            otherwise with 422.
        known: Names of options that `translate` accepts; others are refused with 422.
        directions: Languages from and to which the model translates, for clients of LibreTranslate.
        name: Name of the model, for requests that name it and for metrics.
        documents: Translates documents; `translate` gets their sentences from [`translate_with`].
    """
    loaded = LoadedModel(translate, count_tokens, known, documents=documents)
    model = ServedModel(name, limits or Limits(), loaded=loaded, directions=directions)
    options = {"documents": documents is not None, **options}
    return create_service_of(Models([model]), limits, **options)


def create_service_of(
    models: Models,
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    metrics: bool = False,
    docs: bool = False,
    documents: bool = False,
    detect: DetectLanguages | None = None,
    cors: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
    suggestions: Any = None,
) -> FastAPI:
    """Create the application for models of which each may be loaded when a request needs it.

    Args:
        limits: Limits of requests; batches and queues have the limits of their models.
        api_keys: Keys of which requests need one, if there are any: `Authorization: Bearer KEY`.
        metrics: Export metrics at `/metrics`.
        docs: Describe the service at `/docs` and `/openapi.json`.
        documents: Whether the models translate documents and files.
        detect: Detects languages for clients of LibreTranslate, also at `/detect`. It is called on
            a thread.
        cors: Origins whose pages may use the service in a browser, such as `https://example.org`;
            `*` stands for all.
        hosts: Names and addresses of the service in the header Host, such as `localhost` and
            `*.example.org`; `*` stands for all. Another name, which may be of a page that takes
            this service for its own, has status 400.
        suggestions: Stores corrections of translations, and has the memory of each API key.

    Returns:
        The application. `state.models` are its models.
    """
    limits, registry = limits or Limits(), CollectorRegistry()
    files = TranslatedFiles(limits)
    processes = DocumentProcesses(limits)
    for model in models:
        model.processes = processes
    translator = _Translator(models, limits, detect, suggestions)

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        workers = [asyncio.create_task(model.batcher.run()) for model in models]
        if documents:
            processes.start()
        yield
        processes.close()
        for worker, model in zip(workers, models, strict=True):
            worker.cancel()
            model.batcher.close()

    service = FastAPI(
        title="vanilla-transformer",
        lifespan=lifespan,
        openapi_url="/openapi.json" if docs else None,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        exception_handlers=dict.fromkeys(_REFUSED, _refuse),
    )
    service.state.models, service.state.api_keys = models, tuple(api_keys)
    service.state.suggestions = suggestions
    paths = ("/translate", "/translate_file")
    service.add_middleware(CountRequests, models=models, registry=registry, paths=paths)
    if cors:  # added after the counter, so that refusals have its headers too
        service.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    service.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    # Outermost: no answer may precede it.
    service.add_middleware(BodyLimit, limits=limits, paths=paths if documents else ())

    @service.post("/translate", **schema.TRANSLATE)
    async def translate_texts(request: Request) -> Response:
        content, client = await _read_body(request, processes, limits)
        if isinstance(content, Question):
            answer = await translator.answer_question(request, content, client)
            return JSONResponse(answer)
        return await translator.answer(request, content, client)

    @service.get(
        "/models/{name}",
        summary="Load a model, and list the options of requests that it knows",
        response_model=schema.ModelFeatures,
        responses=schema.refusals(401, 404, 422, 429, 500, 503),
    )
    async def describe_model(request: Request, name: str) -> Response:
        _find_client(request)
        model = models.find(name, 404)
        await unless_disconnected(request, model.load())
        return JSONResponse({"name": model.name, "features": list(model.known)})

    if detect is not None:

        @service.post("/detect", **schema.DETECT)
        async def detect_language(request: Request) -> Response:
            question, _ = await _read_body(request, processes, limits)
            if not isinstance(question.q, str):
                raise Refusal(422, "`q` must be a text.")
            best, *others = await asyncio.to_thread(detect, question.q)
            listed = [other for other in others if other["confidence"] >= _LEAST_CONFIDENCE]
            return JSONResponse([best, *listed])

    @service.post("/translate_file", **schema.TRANSLATE_FILE)
    async def translate_file(request: Request) -> Response:
        from vanilla_transformer.extensions.documents.document_process import encode_file

        question, file, client, encoding = await _read_file(request, processes)
        answer = await translator.answer_question(request, question, client)
        translated = answer["translatedText"]
        if question.format == "text":  # without the white space around it
            translated = question.q.replace(question.q.strip(), translated, 1)
        content = translated.encode()
        if encoding != "UTF-8":
            writing = processes.call(client, encode_file, translated, encoding)
            content = await unless_disconnected(request, writing)
        path = files.add(name_translation(file, question.target), content, client)
        host = request.headers.get("host") or "localhost"
        root_path = request.scope.get("root_path", "")
        address = f"{request.scope['scheme']}://{host}{root_path}"
        file_url = f"{address}/download_file/{quote(path)}"
        return JSONResponse({"translatedFileUrl": file_url})

    @service.get(
        "/download_file/{name}",
        summary="Download a translated file",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}, **schema.refusals(404, 422)},
    )
    async def download_file(request: Request, name: str) -> Response:
        request.state.is_libretranslate = True
        file = files.find(name)
        headers = {
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(file.name)}",
            "X-Content-Type-Options": "nosniff",  # or a browser might run the scripts of a page
            "Cache-Control": "no-store",
        }
        return Response(file.content, headers=headers, media_type="application/octet-stream")

    @service.get("/languages", summary="List the languages", response_model=list[schema.Language])
    async def languages() -> Response:
        targets: dict[str, list[str]] = {}
        for source, target in models.directions:
            targets.setdefault(str(source), []).append(str(target))
        for _, target in models.directions:  # clients look for both languages of a pair
            targets.setdefault(str(target), [])
        languages = []
        for code, known in targets.items():
            languages.append(name_language(code) | {"targets": known})
        return JSONResponse(languages)

    @service.get(
        "/frontend/settings",
        summary="Describe the service for pages",
        response_model=dict[str, Any],
    )
    async def describe_settings() -> Response:
        source, target = next(iter(models.directions), Direction())
        settings = {
            "charLimit": limits.max_characters,
            "frontendTimeout": _TYPING_MILLISECONDS,
            "apiKeys": bool(api_keys),
            "keyRequired": bool(api_keys),
            "suggestions": suggestions is not None,
            "filesTranslation": documents,
            "supportedFilesFormat": list(DOCUMENT_ENDINGS) if documents else [],
            "language": {
                "source": name_language(source or DETECTED),
                "target": name_language(target or ""),
            },
        }
        return JSONResponse(settings)

    @service.head("/health", include_in_schema=False)  # of monitors
    @service.get(
        "/health",
        summary="Describe the state of the models",
        response_model=schema.Health,
        responses={503: {"description": "A model is slow or broken.", "model": schema.Health}},
    )
    async def health() -> Response:
        return JSONResponse(*models.health())

    if suggestions is not None:
        add_suggestions(service, translator, suggestions, processes)

    if metrics:
        info = Info(
            "model",
            "Version of the package, and SHA-256 of the weights.",
            ["model"],
            registry=registry,
        )

        @service.get(
            "/metrics",
            summary="Export metrics for Prometheus",
            response_class=PlainTextResponse,
            responses=schema.refusals(401),
        )
        async def export_metrics(request: Request) -> Response:
            _find_client(request)
            for model in models:
                version = {"version": VERSION, "sha256": model.sha256 or ""}
                info.labels(model.name).info(version)
            return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    if docs:

        @service.get("/docs", include_in_schema=False)
        async def show_docs(request: Request) -> Response:
            address = f"{request.scope.get('root_path', '')}/openapi.json"
            page = get_swagger_ui_html(openapi_url=address, title=service.title)
            page.headers.update(OF_PAGES)
            return page

        service.openapi()["components"]["schemas"] |= schema.BODIES
    return service


# --- Requests and refusals ------------------------------------------------------------------------


async def _read_body(
    request: Request,
    processes: DocumentProcesses,
    limits: Limits,
    question_type: type[Question] = Question,
) -> tuple[Any, str]:
    """Return a [`TranslationRequest`] or a [`Question`], and its client."""
    reading = read_content(request, processes, limits.max_body_bytes, question_type)
    content = await _read_after_key(request, reading)
    names = content.keys() if isinstance(content, dict) else set()
    is_question = request.url.path in _OF_LIBRETRANSLATE or "q" in names
    has_languages = bool(names & {"source", "target"})
    is_question = is_question or ("text" not in names and has_languages)
    request.state.is_libretranslate = is_question
    key = content.get("api_key") if is_question and isinstance(content, dict) else None
    client = _find_client(request, str(key or ""))
    body = (question_type if is_question else TranslationRequest).model_validate(content)
    _check_unicode(request, body)
    return body, client


async def _read_file(
    request: Request, processes: DocumentProcesses
) -> tuple[Question, str, str, str]:
    """Return the request to translate the text of a file, the name of the file, the client, and the
    encoding.
    """
    from vanilla_transformer.extensions.documents.document_process import decode_file

    form = await _read_after_key(request, read_form(request))
    client = _find_client(request, str(form.get("api_key", [""])[-1]))
    file = form.get("file", [None])[-1]
    if not isinstance(file, UploadFile):
        raise Refusal(422, "`file` must be given: a file of a form, whose name says its format.")
    if missing := [name for name in ("source", "target") if name not in form]:
        raise Refusal(422, f"`{missing[0]}` must be given.")
    entries: dict[str, Any] = {}
    for name in ("source", "target", "columns", "api_key"):
        if name in form:
            entries[name] = read_texts(form, name)[-1]
    _check_unicode(request, Question(q="", **entries))
    name = file.filename or ""
    format = DOCUMENT_ENDINGS.get(PurePosixPath(name).suffix.lower())
    if format is None:
        raise Refusal(
            422, f"The name of the file must end with one of {', '.join(DOCUMENT_ENDINGS)}."
        )

    async def read(entry: str, part: Any) -> tuple[str, str]:
        if not isinstance(part, UploadFile):
            raise Refusal(422, f"`{entry}` must be a file of the form, got a text.")
        content = await part.read()
        reading = processes.call(client, decode_file, content, f"`{entry}`", format)
        return await unless_disconnected(request, reading)

    text, encoding = await read("file", file)
    entries["previous"] = []
    for part in form.get("previous", ()):
        version, _ = await read("previous", part)
        entries["previous"].append(version)
    for part in form.get("existing", ()):
        entries["existing"], encoding = await read("existing", part)
    return Question(q=text, format=format, **entries), name, client, encoding


async def _read_after_key(request: Request, reading: Awaitable[Any]) -> Any:
    """Read a body; that the key is missing goes before a mistake in it."""
    try:
        return await reading
    except Refusal:
        _find_client(request)
        raise


def _check_unicode(request: Request, body: TranslationRequest | Question) -> None:
    """Refuse strings with lone surrogates, which stand for bytes of a form that are not UTF-8."""
    for name, value in body:
        if has_invalid_unicode(json.dumps(value, ensure_ascii=False)):
            is_form = getattr(request.state, "is_form", False)
            reason = "UTF-8, got other bytes" if is_form else "valid Unicode, got a lone surrogate"
            raise Refusal(422, f"`{name}` must be {reason}.")


def _find_client(request: Request, key: str = "") -> str:
    """Return the name by which requests take turns: the API key, or the address if no keys are
    required.

    Args:
        key: The key in the body of a request, which the header replaces.
    """
    api_keys = request.app.state.api_keys
    if not api_keys:
        return request.client.host if request.client else ""
    header = request.headers.get("authorization")  # as Latin-1
    sent = f"Bearer {key}"
    if header is not None:
        sent = header.encode("latin-1").decode(errors="surrogateescape")
    scheme, _, key_sent = sent.partition(" ")
    # All keys are compared, in a time that tells nothing about them.
    encoded = key_sent.encode(errors="surrogatepass")
    matches = [hmac.compare_digest(encoded, key.encode()) for key in api_keys]
    if scheme.lower() != "bearer" or not any(matches):
        raise Refusal(401, "A valid API key is required: `Authorization: Bearer KEY`.")
    return key_sent


def _key_of(request: Request, client: str) -> str:
    """Return the API key of a client, or nothing if no keys are required."""
    return client if request.app.state.api_keys else ""


_REFUSED = (
    Refusal,
    HTTPException,
    ValidationError,
    UserError,
    RecursionError,
    ModelFailure,
    ClientDisconnect,
)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer with the reason of a mistake of the client or of a failure, in the form of the
    request.
    """
    status, headers = 422, dict[str, str]()
    match error:
        case ClientDisconnect():
            return Response(status_code=_STATUS_OF_A_CLIENT_THAT_LEFT)
        case Refusal():
            status, reason = error.status, str(error)
        case HTTPException():
            status, reason = error.status_code, error.detail
            headers = dict(error.headers or {})
        case ModelFailure():
            status, reason = 500, _FAILED
        case RecursionError():  # whose message would show a value
            reason = "The body must not be nested so deeply."
        case ValidationError():
            fields = TranslationRequest.model_fields | options_of()
            mistakes = find_mistakes(error, fields)
            reason = "\n".join(mistakes.values())[:LONGEST_REASON]
        case _:
            reason = str(error)[:LONGEST_REASON]
    if status in (401, 408, 413):
        headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        headers["Retry-After"] = "1"
    if getattr(request.state, "is_libretranslate", request.url.path in _OF_LIBRETRANSLATE):
        named = f"(?<=`)({'|'.join(_ENTRIES)})(?=`)"
        reason = re.sub(named, lambda match: _ENTRIES[match[0]], reason)
        status = {401: 403, 422: 400}.get(status, status)
        return JSONResponse({"error": reason}, status, headers)
    return JSONResponse({"detail": reason}, status, headers)


# --- Suggestions ----------------------------------------------------------------------------------


def add_suggestions(
    service: FastAPI,
    translator: "_Translator",
    suggestions: Any,
    processes: DocumentProcesses,
) -> None:
    """Add the paths by which clients suggest translations, list their suggestions and delete
    them.
    """
    from vanilla_transformer.extensions.memory.suggestions import find_faults, write_tmx

    models, limits = translator.models, translator.limits

    @service.post("/suggest", **schema.SUGGEST)
    async def suggest(request: Request) -> Response:
        correction, client = await _read_body(request, processes, limits, Correction)
        limits.check_request([correction.q, correction.s], 1)
        direction = correction.find_direction(models.directions)
        model = next(model for model in models if direction in model.directions)
        await unless_disconnected(request, model.load())
        log = suggestions.log(_key_of(request, client))
        if len(log.entries) >= limits.max_suggestions:
            reason = f"There may be at most {limits.max_suggestions} suggestions of an API key"
            raise Refusal(422, f"{reason} (--max_suggestions). Delete some.")
        faults = find_faults(correction.q, correction.s, model.loaded.warning_limits)
        add = partial(log.add, correction.q, correction.s, direction, faults)
        entry = await asyncio.to_thread(add)
        return JSONResponse({"success": True, "id": entry["id"], "warnings": faults})

    @service.get("/suggestions", **schema.SUGGESTIONS)
    async def list_suggestions(request: Request, format: str = "json") -> Response:
        entries = suggestions.log(_key_of(request, _find_client(request))).entries.values()
        if format == "tmx":
            return Response("".join(write_tmx(entries)), media_type="application/xml")
        return JSONResponse([*entries])

    @service.delete("/suggestions/{number}", **schema.DELETED)
    async def delete_suggestion(request: Request, number: int) -> Response:
        log = suggestions.log(_key_of(request, _find_client(request)))
        if not await asyncio.to_thread(log.remove, number):
            raise Refusal(404, "There is no such suggestion of this API key.")
        return JSONResponse({"success": True})


# --- Translations ---------------------------------------------------------------------------------


@dataclass
class _Translator:
    """Translate the texts of requests by models; [`create_service_of`] has the meaning of its
    arguments.
    """

    models: Models
    limits: Limits
    detect: DetectLanguages | None
    suggestions: Any = None

    async def answer(self, request: Request, content: TranslationRequest, client: str) -> Response:
        """Return the translations of texts, as soon as each one is there if the request asks for
        that.
        """
        model = self.models.find(content.model)
        resolved = await self._resolve(request, model, content, client)
        if content.stream:
            options = resolved.options
            self.limits.check_request(resolved.texts, options.count, content.format)
            events = stream_events(model, resolved)
            at_once = {"X-Accel-Buffering": "no"}  # for nginx
            return StreamingResponse(events, headers=at_once, media_type=schema.EVENTS)
        translations = await unless_disconnected(request, model.translate(resolved))
        return JSONResponse({"translations": translations})

    async def answer_question(
        self, request: Request, question: Question, client: str
    ) -> dict[str, Any]:
        """Return the answer to a request in the form of LibreTranslate.

        Texts whose language is detected are translated language by language, but those in the
        target language.
        """
        detected: list[Detected] | None = None
        if self.detect is not None and question.asks_for_detection:
            texts, num_hypotheses = question.texts, question.num_hypotheses
            self.limits.check_request(texts, num_hypotheses, question.format)
            detected = await asyncio.to_thread(
                question.detect_sources, self.detect, self.models.directions
            )
        if detected is None:
            translations = await self._translate_question(request, question, client)
            return question.answer(translations)
        positions: dict[str, list[int]] = {}
        for position, language in enumerate(detected):
            positions.setdefault(language["language"], []).append(position)
        rows: dict[int, list[Any]] = {}
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                for code, places in positions.items():
                    if code == question.target:  # nothing is to be translated
                        for position in places:
                            rows[position] = [texts[position]] * num_hypotheses
                        continue
                    texts_of_code = [question.texts[position] for position in places]
                    part = {"q": texts_of_code, "source": code}
                    try:
                        copy = question.model_copy(update=part)
                        translated = await self._translate_question(request, copy, client)
                    except Refusal as refusal:  # which names a text by its position in this part
                        pattern = r"(.*at position )(\d+)(\)?\.?)"
                        named = re.fullmatch(pattern, str(refusal), re.DOTALL)
                        reason = str(refusal)
                        if named:
                            reason = f"{named[1]}{places[int(named[2])]}{named[3]}"
                        raise Refusal(refusal.status, reason) from refusal
                    rows |= zip(places, translated, strict=True)
        except TimeoutError as error:
            raise self.limits.late() from error
        translations = [rows[position] for position in range(len(detected))]
        return question.answer(translations, detected)

    async def _translate_question(
        self, request: Request, question: Question, client: str
    ) -> list[list[Any]]:
        direction = question.find_direction(self.models.directions)
        model = next(
            model for model in self.models if direction is None or direction in model.directions
        )
        content = {
            "text": question.q,
            "num_return_sequences": question.num_hypotheses,
            "format": question.format,
            "columns": question.columns,
            "existing": question.existing,
            "previous": question.previous,
        }
        if direction is not None and len(model.directions) > 1:
            content["src_lang"] = str(direction.source)
            content["tgt_lang"] = str(direction.target)
        translation_request = TranslationRequest.model_validate(content)
        resolved = await self._resolve(request, model, translation_request, client)
        if resolved.format == TEXT and "split_sentences" in model.known:  # as LibreTranslate does
            options = resolved.options.override(split_sentences=True)
            resolved = resolved._replace(options=options)
        return await unless_disconnected(request, model.translate(resolved))

    async def _resolve(
        self, request: Request, model: ServedModel, content: TranslationRequest, client: str
    ) -> TextRequest:
        """Return the resolved request after the model was loaded."""
        request.state.model = model.name
        num_texts = len(content.text) if isinstance(content.text, list) else 1
        request.state.texts = getattr(request.state, "texts", 0) + num_texts
        is_longer = request.state.body_bytes > self.limits.max_body_bytes
        if content.format == TEXT and is_longer:
            requirement = (
                f"at most {self.limits.max_body_bytes} bytes (--max_body_bytes), unless it has "
                "a document"
            )
            raise Refusal(413, f"The body may have {requirement}.")
        if not model.is_loaded:
            await unless_disconnected(request, model.load())
        resolved = content.resolve(client, model.known, self.limits.max_mbr_samples)
        direction = model.find_direction(resolved.options)
        memory = model.loaded.memory if direction == model.default else None
        if self.suggestions is not None:
            log = self.suggestions.log(_key_of(request, client))
            memory = log.memory(direction, memory)
        if memory is None:
            return resolved
        options = resolved.options.model_copy(update={"memory": memory})
        return resolved._replace(options=options)


async def stream_events(model: ServedModel, request: TextRequest) -> AsyncIterator[str]:
    """Yield a server-sent event for each text, as soon as it is translated or refused."""

    async def translate(position: int) -> dict[str, Any]:
        phrases = request.constraints and [request.constraints[position]]
        prefixes = request.prefixes and [request.prefixes[position]]
        drafts = request.drafts and [request.drafts[position]]
        texts = [request.texts[position]]
        one = request._replace(texts=texts, constraints=phrases, prefixes=prefixes, drafts=drafts)
        one = one._replace(is_part=len(request.texts) > 1)
        try:
            (row,) = await model.translate(one)
        except Refusal as refusal:
            return {"position": position, "status": refusal.status, "detail": str(refusal)}
        except ModelFailure:
            return {"position": position, "status": 500, "detail": _FAILED}
        return {"position": position, "translations": row}

    positions = range(len(request.texts))
    tasks = [asyncio.ensure_future(translate(position)) for position in positions]
    try:
        for finished in asyncio.as_completed(tasks):
            yield f"data: {json.dumps(await finished, ensure_ascii=False)}\n\n"
    finally:  # the client may have hung up
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def translate_with(
    pipeline: Any,
    documents: Documents | None = None,
    languages: Direction = NO_DIRECTION,
    source_language: str | None = None,
    glossary: Any = None,
) -> Translate:
    """Wrap a [`TranslationPipeline`] for [`Batcher`], and what translates the sentences of
    documents.

    Args:
        languages: The languages of requests that do not give them, as far as they are known.
        source_language: Language of texts that are split into sentences and have no `src_lang`, as
            an ISO 639-1 code.
        glossary: Terms of all requests in these languages, besides their own.
    """

    def translate(
        texts: Sequence[Any], options: TranslationOptions, format: str = TEXT
    ) -> list[list[Any]]:
        usual_beams = pipeline.model.generation_config.num_beams
        source = options.src_lang or languages.source
        target = options.tgt_lang or languages.target
        options = options.override(src_lang=source, tgt_lang=target)
        is_usual_source = languages.source in (None, source)
        is_usual = is_usual_source and languages.target in (None, target)
        if glossary is not None and is_usual:
            options = _add_glossary(options, glossary, pipeline.tokenizer)
        if format != TEXT:
            assert documents is not None
            options = options.choose_beams(usual_beams)
            translations = documents.translate(texts, options)
            return [[translation] for translation in translations]
        options = options.choose_beams(usual_beams, pipeline.reranks)
        if options.split_sentences:
            spoken = options.src_lang or source_language
            options = options.override(source_language=spoken)
        if isinstance(options.seed, int):
            # Repeated sentences do not count, or the samples would depend on the batch.
            seeds = SentenceSeeds(options.seed, repeats_differ=False)
            options = options.override(seed=seeds)
        answers = pipeline(list(texts), progress_bar=False, **options.given)
        rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
        if options.returned:
            return [[*map(rename_text, row)] for row in rows]
        texts_of_rows = []
        for row in rows:
            texts_of_rows.append([answer["translation_text"] for answer in row])
        return texts_of_rows

    return translate


def _add_glossary(
    options: TranslationOptions, glossary: Any, tokenizer: "PreTrainedTokenizerBase"
) -> TranslationOptions:
    """Return options with the terms of the service, after the terms of the request."""
    usual_mode = SOFT if knows_inline_terms(tokenizer) else EXACT
    mode = options.term_mode or usual_mode
    if mode != SOFT and options.do_sample:
        raise OptionError("The glossary of this service needs beam search. Leave `do_sample` out.")
    if options.glossary is not None:
        glossary = glossary.override(options.glossary.terms)
    return options.override(glossary=glossary, term_mode=mode)


def count_tokens_with(tokenizer: "PreTrainedTokenizerBase") -> CountTokens:
    """Wrap a tokenizer for [`Batcher`].

    It is copied, because a tokenizer must not work for two threads at once.
    """
    tokenizer = copy.deepcopy(tokenizer)

    def count_tokens(texts: Sequence[str]) -> list[int]:
        return [len(tokens) for tokens in tokenizer(list(texts))["input_ids"]]

    return count_tokens
