"""Web page to try a model (`pip install 'vanilla-transformer[page]'`)."""

import base64
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # do not report usage to Gradio

import gradio as gr
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .batcher import Batcher, ModelFailure
from .limits import Limits, Refusal
from .service import is_api_key

_NUM_HYPOTHESES = 4
_MAX_PLOTTED_CHARACTERS = 200
_MAX_VISITORS_AT_ONCE, _MAX_VISITORS_WAITING = 8, 64
Answer = tuple[str, list[list[str | int]], str]


def add_page(
    service: FastAPI,
    title: str,
    draw_attention: Callable[[str, Path], Path] | None = None,
    examples: Sequence[str] = (),
    limits: Limits | None = None,
) -> FastAPI:
    """Add a page at `/` that shows the translations of a text and the attention of the best one.

    The page has the limits of the service and takes no uploads. If the service has API keys, visitors log in with any
    name and a key as the password.

    Args:
        service: An application of [`create_service`].
        title: Name of the model on the page.
        draw_attention: Plots the attention for a text to a file; if None, the page has no plot. Long texts have none.
        examples: Texts that a click puts into the input field.
        limits: The limits of the service, to show them in the input field.
    """
    answer = make_answer(service.state.batcher, draw_attention)
    api_keys = service.state.api_keys
    with gr.Blocks(title=title) as page:
        gr.Markdown(f"# {title}")
        max_length = (limits or Limits()).max_characters
        with gr.Row():
            source = gr.Textbox(label="Source", lines=3, elem_id="source", autofocus=True, max_length=max_length)
            target = gr.Textbox(label="Translation", lines=3, elem_id="translation", interactive=False)
        button = gr.Button("Translate", variant="primary", elem_id="translate")
        if examples:
            gr.Examples([[text] for text in examples], source)
        best = gr.Dataframe(
            headers=["rank", "translation"],
            label=f"{_NUM_HYPOTHESES} best translations of the first line",
            elem_id="hypotheses",
            interactive=False,
        )
        gr.Markdown("Attention of the best translation", visible=draw_attention is not None)
        # Not `gr.Image`, which writes each picture to a folder and leaves it there.
        picture = gr.HTML(elem_id="attention", visible=draw_attention is not None)
        button.click(answer, source, [target, best, picture])
        source.submit(answer, source, [target, best, picture])
        page.queue(max_size=_MAX_VISITORS_WAITING, default_concurrency_limit=_MAX_VISITORS_AT_ONCE)
    service.add_middleware(_NoUploads)
    log_in = (lambda name, password: is_api_key(password, api_keys)) if api_keys else None
    return gr.mount_gradio_app(service, page, path="/", auth=log_in)


def make_answer(
    batcher: Batcher, draw_attention: Callable[[str, Path], Path] | None
) -> Callable[[str, gr.Request], Awaitable[Answer]]:
    """Return the function of the page: from a text to its translation, hypotheses and attention as HTML."""

    async def answer(text: str, request: gr.Request) -> Answer:
        first = next((line for line in text.splitlines() if line.strip()), None)
        if first is None:
            raise gr.Error("There is no text to translate.")
        visitor = request.client.host if request.client else ""
        try:
            ((translation,),) = await batcher.translate([text], 1, visitor)
            (hypotheses,) = await batcher.translate([first], _NUM_HYPOTHESES, visitor)
            picture = ""
            if draw_attention is not None and len(first) <= _MAX_PLOTTED_CHARACTERS:
                picture = await batcher.run_on_model_thread(_draw, draw_attention, first)
        except Refusal as refusal:
            raise gr.Error(str(refusal)) from refusal
        except ModelFailure as failure:
            raise gr.Error("The model failed to translate the text.") from failure
        return translation, [[rank, text] for rank, text in enumerate(hypotheses, start=1)], picture

    return answer


def _draw(draw_attention: Callable[[str, Path], Path], text: str) -> str:
    """Return the plot as an HTML element that contains the picture; no file is kept."""
    with tempfile.TemporaryDirectory(prefix="attention-") as folder:
        picture = draw_attention(text, Path(folder, "attention.png")).read_bytes()
    return f'<img alt="attention" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'


class _NoUploads:
    """Middleware that refuses Gradio's uploads, which would store files of any size; the page needs none."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith(("/upload", "/upload_progress")):
            await PlainTextResponse("The page takes no uploads.", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
