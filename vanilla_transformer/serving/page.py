"""A page to try a model on (`pip install 'vanilla-transformer[page]'`)."""

import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # nobody is told that the page is used

import gradio as gr
from fastapi import FastAPI

from .batcher import Batcher

_HYPOTHESES = 4
Answer = tuple[str, list[list[str | int]], str | None]


def add_page(
    service: FastAPI,
    title: str,
    draw_attention: Callable[[str, Path], Path] | None = None,
    examples: Sequence[str] = (),
) -> FastAPI:
    """
    The service with a page at `/`: a text, its translations with the best first, and what each token of the best one
    looks at.

    Args:
        title: What the page calls the model.
        draw_attention: Draws a picture for a text into a file; without it the page has none.
    """
    answer = answering(service.state.batcher, draw_attention)
    with gr.Blocks(title=title) as page:
        gr.Markdown(f"# {title}")
        with gr.Row():
            source = gr.Textbox(label="Source", lines=3, elem_id="source", autofocus=True)
            target = gr.Textbox(label="Translation", lines=3, elem_id="translation", interactive=False)
        button = gr.Button("Translate", variant="primary", elem_id="translate")
        if examples:
            gr.Examples([[text] for text in examples], source)
        others = gr.Dataframe(
            headers=["rank", "translation"],
            label=f"The {_HYPOTHESES} best of the first line",
            elem_id="hypotheses",
            interactive=False,
        )
        shown = draw_attention is not None
        gr.Markdown("What each token of the best one looks at", visible=shown)
        # Its own label would cover the top of the picture.
        picture = gr.Image(show_label=False, elem_id="attention", visible=shown, interactive=False)
        button.click(answer, source, [target, others, picture])
        source.submit(answer, source, [target, others, picture])
    return gr.mount_gradio_app(service, page, path="/")


def answering(
    batcher: Batcher, draw_attention: Callable[[str, Path], Path] | None
) -> Callable[[str], Awaitable[Answer]]:
    """What the page shows for a text: its translation, and of its first line the best ones and the attention."""

    async def answer(text: str) -> Answer:
        first = next((line for line in text.splitlines() if line.strip()), None)
        if first is None:
            raise gr.Error("There is no text to translate.")
        ((whole,),) = await batcher.translate([text], 1)
        (hypotheses,) = await batcher.translate([first], _HYPOTHESES)
        picture = None
        if draw_attention is not None:
            folder = Path(tempfile.mkdtemp(prefix="attention-"))  # gradio serves a copy of its own
            picture = str(await batcher.alone(draw_attention, first, folder / "attention.png"))
        return whole, [[rank, one] for rank, one in enumerate(hypotheses, start=1)], picture

    return answer
