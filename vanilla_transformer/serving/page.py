"""Web page to try a model (`pip install 'vanilla-transformer[page]'`)."""

import asyncio
import base64
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # do not report usage to Gradio
os.environ.setdefault("GRADIO_RUN_HISTORY", "False")  # do not keep the texts of visitors in their browsers

import gradio as gr
from fastapi import Depends, FastAPI, HTTPException, Request

from vanilla_transformer.text.languages import Languages

from .batcher import Batcher, ModelFailure
from .language_names import language_name
from .limits import Refusal
from .service import is_api_key

_NUM_HYPOTHESES = 4
_MAX_PLOTTED_TOKENS = 64
_MAX_VISITORS_AT_ONCE, _MAX_VISITORS_WAITING = 8, 64
_MAX_SESSIONS = 100  # of which Gradio keeps the last text and answer in memory
# The routes of Gradio that the page needs. Others store files, hold connections or tell more than the page.
_ROUTES = {
    "/", "/config", "/login", "/theme.css", "/favicon.ico", "/manifest.json", "/assets/{path:path}",
    "/static/{path:path}", "/gradio_api/queue/join", "/gradio_api/queue/data", "/gradio_api/startup-events",
    "/gradio_api/theme.css",
}  # fmt: skip
Answer = tuple[str, list[list[str | int]], str]
DrawAttention = Callable[..., Path]  # (text, picture, **languages)


def add_page(
    service: FastAPI,
    title: str,
    draw_attention: DrawAttention | None = None,
    languages: Languages | None = None,
    default: Mapping[str, str] | None = None,
) -> FastAPI:
    """Add a page at `/` that shows the translations of a text and the attention of the best one.

    The page has the limits of the service and takes no uploads. If the service has API keys, visitors log in with any
    name and a key as the password.

    Args:
        service: An application of [`create_service`].
        title: Name of the model on the page.
        draw_attention: Plots the attention for a text to a file; if None, the page has no plot. Long texts have none.
        languages: Of the model, from which visitors choose.
        default: The `src_lang` and `tgt_lang` that are chosen at first.
    """
    batcher, api_keys = service.state.batcher, service.state.api_keys
    limits = batcher.limits
    answer = (make_answer if languages is None else make_answer_in_languages)(batcher, draw_attention)
    with gr.Blocks(title=title) as page:
        gr.Markdown(f"# {title}")
        with gr.Row():
            # Not `max_length`, with which the browser cuts a longer text without a word.
            hint = f"At most {limits.max_characters:,} characters and {limits.max_tokens:,} tokens"
            source = gr.Textbox(
                label="Source", placeholder=hint, lines=3, elem_id="source", autofocus=True, min_width=320
            )
            target = gr.Textbox(label="Translation", lines=3, elem_id="translation", interactive=False, min_width=320)
        choices = [] if languages is None else _language_choices(languages, default or {})
        button = gr.Button("Translate", variant="primary", elem_id="translate")
        best = gr.Dataframe(
            headers=["rank", "translation"],
            label=f"{_NUM_HYPOTHESES} best translations of the first line",
            elem_id="hypotheses",
            interactive=False,
            wrap=True,
            column_widths=["15%", "85%"],
        )
        # Not `gr.Image`, which writes each picture to a folder and leaves it there.
        picture = gr.HTML(elem_id="attention", visible=draw_attention is not None)
        for event in (button.click, source.submit):
            outputs = [target, best, picture]
            event(answer, [source, *choices], outputs, show_progress_on=target, api_visibility="undocumented")
        page.queue(max_size=_MAX_VISITORS_WAITING, default_concurrency_limit=_MAX_VISITORS_AT_ONCE)
    page.state_session_capacity = _MAX_SESSIONS
    log_in = (lambda name, password: is_api_key(password, api_keys)) if api_keys else None
    return gr.mount_gradio_app(
        service,
        page,
        path="/",
        auth=log_in,
        auth_message="Any user name, and an API key as the password.",
        show_error=False,
        footer_links=[],
        app_kwargs={"dependencies": [Depends(_check_request)], "openapi_url": None},
    )


def _language_choices(languages: Languages, default: Mapping[str, str]) -> list[gr.Dropdown]:
    """Return the choice of the source language, hidden where no token names it, and of the target language."""
    sources, targets = (
        [(language_name(code), code) for code in codes] for codes in (languages.sources, languages.targets)
    )
    source = gr.Dropdown(
        sources or [""],
        value=default.get("src_lang", next(iter(languages.sources), "")),
        label="From",
        elem_id="source-language",
        visible=bool(languages.sources),
    )
    chosen = default.get("tgt_lang", next(iter(languages.targets)))
    return [source, gr.Dropdown(targets, value=chosen, label="To", elem_id="target-language")]


def make_answer_in_languages(batcher: Batcher, draw_attention: DrawAttention | None) -> Callable[..., Any]:
    """Return the function of the page of a model with several languages, which visitors choose."""

    async def answer(text: str, source: str | None, target: str | None, request: gr.Request) -> Answer:
        given = {"src_lang": source, "tgt_lang": target}
        languages = {name: code for name, code in given.items() if code}
        return await make_answer(batcher, draw_attention, languages)(text, request)

    return answer


def make_answer(
    batcher: Batcher, draw_attention: DrawAttention | None, languages: Mapping[str, str] | None = None
) -> Callable[[str, gr.Request], Awaitable[Answer]]:
    """Return the function of the page: from a text to its translation, hypotheses and attention as HTML."""
    languages = languages or {}
    options = tuple(languages.items())

    async def translate(text: str, first: str, visitor: str) -> Answer:
        ((translation,),) = await batcher.translate([text], 1, visitor, options)
        (hypotheses,) = await batcher.translate([first], _NUM_HYPOTHESES, visitor, options)
        picture = ""
        if draw_attention is not None and max(await batcher.count_tokens([first, *hypotheses])) <= _MAX_PLOTTED_TOKENS:
            picture = await batcher.run_on_model_thread(_draw, partial(draw_attention, **languages), first)
        return translation, [[rank, text] for rank, text in enumerate(hypotheses, start=1)], picture

    async def answer(text: str, request: gr.Request) -> Answer:
        first = next((line for line in text.splitlines() if line.strip()), None)
        if first is None:
            raise _error("There is no text to translate.")
        visitor = request.client.host if request.client else ""
        try:
            async with asyncio.timeout(batcher.limits.request_seconds):
                return await translate(text, first, visitor)
        except Refusal as refusal:
            raise _error(str(refusal).replace(" at position 0", "")) from refusal  # the page has one text only
        except TimeoutError as error:
            raise _error(f"The request took longer than {batcher.limits.request_seconds} seconds.") from error
        except ModelFailure as failure:
            raise _error("The model failed to translate the text.") from failure

    return answer


def _error(message: str) -> gr.Error:
    """Return an error that the page shows, and that the server's log does not repeat with a traceback."""
    return gr.Error(message, print_exception=False)


def _draw(draw_attention: DrawAttention, text: str) -> str:
    """Return the plot as an HTML element that contains the picture; no file is kept."""
    with tempfile.TemporaryDirectory(prefix="attention-") as folder:
        picture = draw_attention(text, Path(folder, "attention.png")).read_bytes()
    data = base64.b64encode(picture).decode()
    image = f'<img alt="attention" style="min-width: 60rem" src="data:image/png;base64,{data}">'
    return f'<p>Attention of the best translation</p><div style="overflow-x: auto">{image}</div>'


async def _check_request(request: Request) -> None:
    """Refuse requests that the page does not make.

    Gradio stores the files of uploads, and downloads the files that a request names instead of its text.

    Raises:
        HTTPException: 403 or 422; the page has no use for the request.
    """
    if request.scope["route"].path not in _ROUTES:
        raise HTTPException(403, "The page does not use this address.")
    if request.method == "POST" and request.url.path.endswith("/join"):
        try:
            texts = (await request.json())["data"]
        except (ValueError, TypeError, LookupError, RecursionError):
            texts = None
        if not isinstance(texts, list) or len(texts) not in (1, 3) or not all(isinstance(each, str) for each in texts):
            raise HTTPException(422, "`data` must be a list of one text, and of the languages if there are several.")
