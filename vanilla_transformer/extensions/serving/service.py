"""HTTP service: `POST /translate` and `/detect`, `GET /models/NAME`, `/languages`, `/health` and `/metrics`."""

import asyncio
import copy
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, FastAPI, File, Form, Request, Response, UploadFile
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from vanilla_transformer.data.readers import has_invalid_unicode
from vanilla_transformer.decoding.answers import rename_text
from vanilla_transformer.decoding.engine.requests import SentenceSeeds
from vanilla_transformer.decoding.options import MBR_SAMPLES, choose_beams
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.utils.resources import DOCUMENT_ENDINGS
from vanilla_transformer.utils.text_files import decode_text

from . import libretranslate, schema
from .features import RETURNED
from .incoming import STATUS_OF_A_CLIENT_THAT_LEFT, BodyLimit, FormRoute, JsonRoute, unless_disconnected
from .language_detection import Detected, DetectLanguages
from .libretranslate import Question, TranslatedFiles, find_format, name_translation
from .limits import LONGEST_REASON, Limits, Refusal
from .models import Choice, LoadedModel, Models, ServedModel
from .prometheus import CountRequests, Metrics
from .queue import CountTokens, ModelFailure, Translate, count_bytes
from .schema import ResolvedRequest, TranslationRequest


async def stream_events(model: Choice, body: ResolvedRequest, client: str) -> AsyncIterator[str]:
    """Yield a server-sent event for each text, as soon as it is translated or refused."""

    async def translate(position: int) -> dict[str, Any]:
        constraints = None if body.constraints is None else [body.constraints[position]]
        prefixes = None if body.prefixes is None else [body.prefixes[position]]
        texts = [body.texts[position]]
        try:
            (row,) = await model.translate(texts, body.num_hypotheses, client, body.options, constraints, prefixes)
        except Refusal as refusal:
            return {"position": position, "status": refusal.status, "detail": str(refusal)}
        except ModelFailure:
            return {"position": position, "status": 500, "detail": "The model failed to translate the text."}
        return {"position": position, "translations": row}

    tasks = [asyncio.ensure_future(translate(position)) for position in range(len(body.texts))]
    try:
        for finished in asyncio.as_completed(tasks):
            yield f"data: {json.dumps(await finished, ensure_ascii=False)}\n\n"
    finally:  # the client may have hung up
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


CheckDocument = Callable[[str, str, Direction], object]
TranslateDocuments = Callable[..., Sequence[str]]  # of texts, the name of their format, and options of the pipeline
_OF_LIBRETRANSLATE = ("/detect", "/languages", "/translate_file", "/frontend/settings")  # paths


def create_service(
    translate: Translate,
    limits: Limits | None = None,
    count_tokens: CountTokens | None = None,
    api_keys: Sequence[str] = (),
    metrics: bool = False,
    docs: bool = False,
    known: Sequence[str] = (),
    check_document: CheckDocument | None = None,
    directions: Sequence[Direction] = (),
    name: str = "default",
    detect: DetectLanguages | None = None,
    cors: Sequence[str] = (),
) -> FastAPI:
    """Create the application for one model, as [`create_service_of`] does for several.

    Args:
        limits: A request beyond a limit is refused: with 413 if the body is too large, with 408 if it arrives too
            slowly, with 503 if too many texts wait or the time is up, otherwise with 422.
        known: Names of options that `translate` accepts, see [`TranslationRequest`]; others are refused with 422.
        directions: Languages from and to which the model translates, for clients of LibreTranslate.
        name: Name of the model, for requests that name it and for metrics.
    """
    model = LoadedModel(translate, count_tokens or count_bytes, known)
    models = Models([ServedModel(name, limits or Limits(), loaded=model, directions=directions)])
    return create_service_of(models, limits, api_keys, metrics, docs, check_document, detect, cors)


def create_service_of(
    models: Models,
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    metrics: bool = False,
    docs: bool = False,
    check_document: CheckDocument | None = None,
    detect: DetectLanguages | None = None,
    cors: Sequence[str] = (),
) -> FastAPI:
    """Create the application for models of which each may be loaded when a request needs it.

    Args:
        limits: Limits of requests; batches and queues have the limits of their models.
        api_keys: Keys of which requests need one, if there are any: `Authorization: Bearer KEY`.
        metrics: Export metrics at `/metrics`.
        docs: Describe the service at `/docs` and `/openapi.json`.
        check_document: Raises a `ValueError` if a text is not a document of a format, or of other languages. It is
            called on a thread.
        detect: Detects languages for clients of LibreTranslate, also at `/detect`. It is called on a thread.
        cors: Origins whose pages may use the service in a browser, such as `https://example.org`; `*` stands for all.

    Returns:
        The application. `state.models` are its models, and if there is one, `state.batcher` is its batcher, for other
        code that uses the model.
    """
    limits = limits or Limits()
    counters = Metrics(models)
    files = TranslatedFiles(limits)
    translator = _Translator(models, limits, check_document, detect)

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        workers = [asyncio.create_task(model.batcher.run()) for model in models]
        yield
        for worker, model in zip(workers, models, strict=True):
            worker.cancel()
            model.batcher.close()

    service = FastAPI(
        title="vanilla-transformer",
        lifespan=lifespan,
        openapi_url="/openapi.json" if docs else None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    service.state.models = models
    if len(batchers := [model.batcher for model in models]) == 1:
        (service.state.batcher,) = batchers
    service.state.api_keys = tuple(api_keys)
    service.add_middleware(CountRequests, metrics=counters, paths=("/translate", "/translate_file"))
    if cors:  # added after the counter, so that refusals have its headers too
        service.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    service.add_middleware(BodyLimit, limits=limits)  # outermost: no answer may precede it
    _refuse_errors(service, api_keys)
    router = APIRouter(route_class=JsonRoute)

    @router.post("/translate", **schema.TRANSLATE)
    async def translate_texts(
        request: Request,
        content: Annotated[TranslationRequest | Question, Body(openapi_examples=schema.REQUESTS)],
    ) -> Response:
        client = _admit(request, api_keys, content)
        if isinstance(content, TranslationRequest):
            return await translator.answer(request, content, client)
        return JSONResponse(await translator.answer_question(request, content, client))

    @router.get("/models/{name}", **schema.MODEL)
    async def describe_model(request: Request, name: str) -> Response:
        _find_client(request, api_keys)
        model = models.find_name(name, 404)
        await unless_disconnected(request, model.load())
        return JSONResponse({"name": model.name, "features": list(model.known)})

    if detect is not None:

        @router.post("/detect", **schema.DETECT)
        async def detect_language(
            request: Request, content: Annotated[Question, Body(openapi_examples=schema.QUESTIONS)]
        ) -> Response:
            _admit(request, api_keys, content)
            return JSONResponse(await asyncio.to_thread(content.list_languages, detect))

    form_router = APIRouter(route_class=FormRoute)

    @form_router.post("/translate_file", **schema.TRANSLATE_FILE)
    async def translate_file(
        request: Request,
        file: Annotated[UploadFile, File(description=f"A file of at most {limits.max_body_bytes} bytes in UTF-8.")],
        source: Annotated[str, Form(description="Code of a language, or `auto`.")],
        target: Annotated[str, Form(description="Code of a language.")],
        api_key: Annotated[str, Form()] = "",
    ) -> Response:
        question = Question(q="", source=source, target=target, api_key=api_key)
        client, name = _admit(request, api_keys, question), file.filename or ""
        format = find_format(name)
        try:
            text = decode_text(await file.read(), "`file`")
        except ValueError as error:
            raise Refusal(422, str(error)[:LONGEST_REASON]) from error
        question = question.model_copy(update={"q": text, "format": format})
        translated = (await translator.answer_question(request, question, client))["translatedText"]
        if format == "text":  # without the white space around it
            translated = text.replace(text.strip(), translated, 1)
        path = files.add(name_translation(name, target), translated.encode(), client)
        return JSONResponse({"translatedFileUrl": f"{_address(request)}/download_file/{quote(path)}"})

    for each in (router, form_router):
        service.include_router(each)

    @service.get("/download_file/{name}", **schema.DOWNLOAD_FILE)
    async def download_file(request: Request, name: str) -> Response:
        request.state.is_libretranslate = True
        found = files.find(name)
        headers = {
            "Content-Disposition": f"attachment; filename*=utf-8''{quote(found.name)}",
            "X-Content-Type-Options": "nosniff",  # or a browser might run the scripts of a page
            "Cache-Control": "no-store",
        }
        return Response(found.content, headers=headers, media_type="application/octet-stream")

    @service.get("/languages", **schema.LANGUAGE_LIST)
    async def languages() -> Response:
        return JSONResponse(libretranslate.list_languages(models.directions))

    @service.get("/frontend/settings", **schema.SETTINGS)
    async def describe_settings() -> Response:
        endings = list(DOCUMENT_ENDINGS) if check_document is not None else []
        return JSONResponse(libretranslate.frontend_settings(limits, bool(api_keys), models.directions, endings))

    @service.head("/health", include_in_schema=False)  # of monitors
    @service.get("/health", **schema.HEALTH)
    async def health() -> Response:
        return JSONResponse(*models.health())

    if metrics:

        @service.get("/metrics", **schema.METRICS)
        async def export_metrics(request: Request) -> Response:
            _find_client(request, api_keys)
            return Response(generate_latest(counters.registry), media_type=CONTENT_TYPE_LATEST)

    return service


def _refuse_errors(service: FastAPI, api_keys: Sequence[str]) -> None:
    """Let the application answer each error with its reason, in the form of the request."""

    async def refuse(request: Request, refusal: Refusal) -> Response:
        is_libretranslate = getattr(request.state, "is_libretranslate", request.url.path in _OF_LIBRETRANSLATE)
        return _refuse(refusal, is_libretranslate)

    async def refuse_body(request: Request, reason: str, key: str = "") -> Response:
        try:
            _find_client(request, api_keys, key)  # a missing key goes before a mistake in the body
        except Refusal as refusal:
            return await refuse(request, refusal)
        return await refuse(request, Refusal(422, reason))

    async def refuse_content(request: Request, error: RequestValidationError) -> Response:
        entries = error.body if request.url.path in _OF_LIBRETRANSLATE else None
        key = str(entries.get("api_key") or "") if isinstance(entries, Mapping) else ""
        return await refuse_body(request, schema.explain_refusal(error.errors()), key)

    async def refuse_nesting(request: Request, error: Exception) -> Response:  # a message would show a value
        return await refuse_body(request, "The body must not be nested so deeply.")

    async def refuse_request(request: Request, error: HTTPException) -> Response:
        if error.status_code in (404, 405):  # no path of the service
            if request.url.path in _OF_LIBRETRANSLATE:
                return JSONResponse({"error": error.detail}, error.status_code, error.headers)
            return await http_exception_handler(request, error)
        if error.status_code == 422:
            return await refuse_body(request, error.detail)
        return await refuse(request, Refusal(error.status_code, error.detail))

    async def explain_failure(request: Request, failure: ModelFailure) -> Response:
        return await refuse(request, Refusal(500, "The model failed to translate the text."))

    async def forget_client(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=STATUS_OF_A_CLIENT_THAT_LEFT)

    handlers: dict[Any, Any] = {
        Refusal: refuse,
        RequestValidationError: refuse_content,
        RecursionError: refuse_nesting,
        HTTPException: refuse_request,
        ModelFailure: explain_failure,
        ClientDisconnect: forget_client,
    }
    for error, handler in handlers.items():
        service.add_exception_handler(error, handler)


@dataclass
class _Translator:
    """Translate the texts of requests by models; see [`create_service_of`] for its arguments."""

    models: Models
    limits: Limits
    check_document: CheckDocument | None
    detect: DetectLanguages | None

    async def answer(self, request: Request, content: TranslationRequest, client: str) -> Response:
        """Return the translations of texts, as soon as each one is there if the request asks for that."""
        model = self.models.find(content.model)
        body = await self._resolve(request, model, content)
        if body.is_stream:
            self.limits.check_request(body.texts, body.num_hypotheses)
            return StreamingResponse(stream_events(model, body, client), media_type=schema.EVENTS)
        return JSONResponse({"translations": await _translate(request, model, body, client)})

    async def answer_question(self, request: Request, question: Question, client: str) -> dict[str, Any]:
        """Return the answer to a request in the form of LibreTranslate.

        Texts whose language is detected are translated language by language.
        """
        known, detected = self.models.directions, await self._detect(question)
        if detected is None:
            rows = await self._translate_from(request, question, question.find_direction(known), client)
            return question.answer(rows)
        positions: dict[str, list[int]] = {}
        for position, each in enumerate(detected):
            positions.setdefault(each.language, []).append(position)
        found: dict[int, list[Any]] = {}
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                for language, own in positions.items():
                    texts = [question.texts[position] for position in own]
                    part = question.model_copy(update={"q": texts, "source": language})
                    try:
                        rows = await self._translate_from(request, part, part.find_direction(known), client)
                    except Refusal as refusal:
                        raise _of_whole_request(refusal, own) from refusal
                    found |= zip(own, rows, strict=True)
        except TimeoutError as error:
            raise Refusal(503, f"The request took longer than {self.limits.request_seconds} seconds.") from error
        return question.answer([found[position] for position in range(len(detected))], detected)

    async def _detect(self, question: Question) -> list[Detected] | None:
        """Return the source language of each text, or None if the request does not ask for that or there is none."""
        if self.detect is None or not question.asks_for_detection:
            return None
        self.limits.check_request(question.texts, question.num_hypotheses)
        return await asyncio.to_thread(question.detect_sources, self.detect, self.models.directions)

    async def _translate_from(
        self, request: Request, question: Question, direction: Direction | None, client: str
    ) -> list[list[Any]]:
        model = self.models.find_direction(direction)
        content = TranslationRequest.of(question.to_content() | model.language_entries(direction))
        return await _translate(request, model, await self._resolve(request, model, content), client)

    async def _resolve(self, request: Request, model: Choice, content: TranslationRequest) -> schema.ResolvedRequest:
        """Return the resolved request after the model was loaded."""
        request.state.model = model.name
        if not model.is_loaded:
            await unless_disconnected(request, model.load())
        body = content.resolve(model.known)
        options = dict(body.options)
        if "mbr" in options:
            samples = options.setdefault("mbr_samples", min(MBR_SAMPLES, self.limits.max_mbr_samples))
            self.limits.check_samples(samples)
            body = body._replace(options=tuple(options.items()))
        if self.check_document is not None:
            await _check_documents(body, self.limits, self.check_document, _find_direction(model, options))
        return body


async def _translate(request: Request, model: Choice, body: schema.ResolvedRequest, client: str) -> list[list[Any]]:
    work = model.translate(body.texts, body.num_hypotheses, client, body.options, body.constraints, body.prefixes)
    return await unless_disconnected(request, work)


def _of_whole_request(refusal: Refusal, positions: Sequence[int]) -> Refusal:
    """Return a refusal of some texts of a request, which names the text by its position among all of them.

    Args:
        positions: Positions of these texts among all.
    """

    def place(found: re.Match[str]) -> str:
        return f"at position {positions[int(found[1])]}{found[2]}"

    return Refusal(refusal.status, re.sub(r"at position (\d+)(\)?\.?)$", place, str(refusal)))


def _refuse(refusal: Refusal, is_libretranslate: bool = False) -> JSONResponse:
    headers = {
        401: {"WWW-Authenticate": "Bearer", "Connection": "close"},
        408: {"Connection": "close"},
        413: {"Connection": "close"},
        503: {"Retry-After": "1"},
    }
    content, status = {"detail": str(refusal)}, refusal.status
    if is_libretranslate:
        content, status = libretranslate.refuse(refusal)
    return JSONResponse(content, status, headers.get(refusal.status))


def _address(request: Request) -> str:
    """Return the address of the service as the client knows it."""
    host = request.headers.get("host") or "localhost"
    return f"{request.scope['scheme']}://{host}{request.scope.get('root_path', '')}"


def _admit(request: Request, api_keys: Sequence[str], content: TranslationRequest | Question) -> str:
    """Return what [`_find_client`] returns, after a check of all strings of the request."""
    request.state.is_libretranslate = isinstance(content, Question)
    client = _find_client(request, api_keys, content.key if isinstance(content, Question) else "")
    for name, value in content:
        if has_invalid_unicode(json.dumps(value, ensure_ascii=False)):
            if getattr(request.state, "is_form", False):
                raise Refusal(422, f"`{name}` must be UTF-8, got other bytes.")
            raise Refusal(422, f"`{name}` must be valid Unicode, got a lone surrogate.")
    return client


def _find_client(request: Request, api_keys: Sequence[str], key: str = "") -> str:
    """Return the name by which requests take turns: the API key, or the address if no keys are required.

    Args:
        key: The key in the body of a request, which the header replaces.
    """
    if not api_keys:
        return request.client.host if request.client else ""
    header = request.headers.get("authorization")  # as Latin-1
    sent = f"Bearer {key}" if header is None else header.encode("latin-1").decode(errors="surrogateescape")
    scheme, _, given = sent.partition(" ")
    if scheme.lower() != "bearer" or not is_api_key(given, api_keys):
        raise Refusal(401, "A valid API key is required: `Authorization: Bearer KEY`.")
    return given


def is_api_key(given: str, api_keys: Sequence[str]) -> bool:
    """Return whether `given` is one of the keys, after a time that tells nothing about them."""
    matches = [hmac.compare_digest(given.encode(errors="surrogatepass"), key.encode()) for key in api_keys]
    return any(matches)


def _find_direction(model: Choice, options: Mapping[str, Any]) -> Direction:
    """Return the languages of a request, as far as they are known."""
    source, target = model.default
    return Direction(options.get("src_lang", source), options.get("tgt_lang", target))


async def _check_documents(
    body: schema.ResolvedRequest, limits: Limits, check_document: CheckDocument, direction: Direction
) -> None:
    """Check texts of a format besides plain text."""
    name = dict(body.options).get("format")
    if name is None:
        return
    limits.check_request(body.texts, body.num_hypotheses)
    for position, text in enumerate(body.texts):
        try:
            await asyncio.to_thread(check_document, text, name, direction)
        except (ValueError, OSError, RecursionError) as error:
            reason = "It is nested too deeply." if isinstance(error, RecursionError) else str(error)
            raise Refusal(422, f"{reason[:LONGEST_REASON]} (at position {position})") from error


def translate_with(
    pipeline: Any,
    translate_documents: TranslateDocuments | None = None,
    languages: Mapping[str, str] | None = None,
    source_language: str = "en",
) -> Translate:
    """Wrap a [`TranslationPipeline`] for [`Batcher`], and a function that translates documents of a format.

    Args:
        languages: `src_lang` and `tgt_lang` of requests that do not give them.
        source_language: Language of texts that are split into sentences and have no `src_lang`, as an ISO 639-1 code.
    """

    def translate(texts: Any, num_hypotheses: int, format: str | None = None, **options: Any) -> list[list[Any]]:
        options = {**(languages or {}), **options}
        if format is not None:
            assert translate_documents is not None
            return [[document] for document in translate_documents(texts, format, **options)]
        if num_hypotheses > 1 and "alternatives" not in options:
            options |= {"num_return_sequences": num_hypotheses}
        options = choose_beams(options, pipeline.model.generation_config.num_beams, pipeline.reranks)
        if options.get("split_sentences"):
            options |= {"source_language": options.get("src_lang", source_language)}
        if "seed" in options:  # not counting repeated sentences, or the samples would depend on the batch
            options |= {"seed": SentenceSeeds(options["seed"], repeats_differ=False)}
        answers = pipeline(list(texts), progress_bar=False, **options)
        rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
        if options.keys() & {*RETURNED}:
            return [[rename_text(answer) for answer in row] for row in rows]
        return [[hypothesis["translation_text"] for hypothesis in row] for row in rows]

    return translate


def count_tokens_with(tokenizer: Any) -> CountTokens:
    """Wrap a tokenizer for [`Batcher`]. It is copied, because a tokenizer must not work for two threads at once."""
    tokenizer = copy.deepcopy(tokenizer)

    def count_tokens(texts: Sequence[str]) -> list[int]:
        return [len(tokens) for tokens in tokenizer(list(texts))["input_ids"]]

    return count_tokens
