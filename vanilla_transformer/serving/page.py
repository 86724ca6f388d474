"""Web page to try a model (`pip install 'vanilla-transformer[page]'`)."""

import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # do not report usage to Gradio

import gradio as gr
from fastapi import FastAPI

from .batcher import Batcher

_NUM_HYPOTHESES = 4
Answer = tuple[str, list[list[str | int]], str | None]


def add_page(
    service: FastAPI,
    title: str,
    draw_attention: Callable[[str, Path], Path] | None = None,
    examples: Sequence[str] = (),
) -> FastAPI:
    """Add a page at `/` that shows the translations of a text and the attention of the best one.

    Args:
        service: An application of [`create_service`].
        title: Name of the model on the page.
        draw_attention: Plots the attention for a text to a file; if None, the page has no plot.
        examples: Texts that a click puts into the input field.
    """
    answer = make_answer(service.state.batcher, draw_attention)
    with gr.Blocks(title=title) as page:
        gr.Markdown(f"# {title}")
        with gr.Row():
            source = gr.Textbox(label="Source", lines=3, elem_id="source", autofocus=True)
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
        shown = draw_attention is not None
        gr.Markdown("Attention of the best translation", visible=shown)
        # The label of the image would cover its top.
        picture = gr.Image(show_label=False, elem_id="attention", visible=shown, interactive=False)
        button.click(answer, source, [target, best, picture])
        source.submit(answer, source, [target, best, picture])
    return gr.mount_gradio_app(service, page, path="/")


def make_answer(
    batcher: Batcher, draw_attention: Callable[[str, Path], Path] | None
) -> Callable[[str], Awaitable[Answer]]:
    """Return the function of the page: from a text to its translation, hypotheses and attention."""

    async def answer(text: str) -> Answer:
        first = next((line for line in text.splitlines() if line.strip()), None)
        if first is None:
            raise gr.Error("There is no text to translate.")
        ((translation,),) = await batcher.translate([text], 1)
        (hypotheses,) = await batcher.translate([first], _NUM_HYPOTHESES)
        picture = None
        if draw_attention is not None:
            folder = Path(tempfile.mkdtemp(prefix="attention-"))  # Gradio copies the file
            picture = str(await batcher.run_on_model_thread(draw_attention, first, folder / "attention.png"))
        return translation, [[rank, text] for rank, text in enumerate(hypotheses, start=1)], picture

    return answer
