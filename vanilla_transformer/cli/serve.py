"""Offer a model over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.serving.limits import Limits

from .arguments import parse

if TYPE_CHECKING:
    from vanilla_transformer import TranslationPipeline


@dataclass(frozen=True)
class ServeArguments(Limits):
    """Where the service listens, and what it takes."""

    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on; 0.0.0.0 for all of them."})
    port: int = field(default=8000, metadata={"help": "Port to listen on."})
    backend: str | None = field(
        default=None, metadata={"help": "`ctranslate2` for a folder that was converted for it; by default torch."}
    )
    page: bool = field(default=False, metadata={"help": "Offer a page at / as well, to try the model on."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ServeArguments, arguments, "serve FOLDER [--flags]")
    if len(words) != 1:
        raise ValueError(f"Name the folder (or Hub name) of one model before the flags, got {len(words)} names.")
    from transformers import pipeline

    from vanilla_transformer import TranslationPipeline

    with requires_extra("serve", "Serving"):
        import uvicorn

        from vanilla_transformer.serving.service import create_service, translate_with
    translate = (
        pipeline("translation", model=words[0])
        if options.backend is None
        else TranslationPipeline(words[0], backend=options.backend)
    )
    service = create_service(translate_with(translate), options)
    if options.page:
        service = _with_page(service, translate, words[0])
    uvicorn.run(service, host=options.host, port=options.port, log_level="info")


def _with_page(service: Any, translate: "TranslationPipeline", name: str) -> Any:
    """The page has a picture of the attention where the model shows it, which those for CTranslate2 do not."""
    from vanilla_transformer import VanillaTransformerForConditionalGeneration

    with requires_extra("page", "The page"):
        from vanilla_transformer.serving.page import add_page
    draw = None
    if isinstance(translate.model, VanillaTransformerForConditionalGeneration):
        draw = partial(_draw, translate)
    return add_page(service, Path(name).name, draw)


def _draw(translate: "TranslationPipeline", text: str, picture: Path) -> Path:
    from vanilla_transformer.evaluation.plots import plot_attention

    return plot_attention(translate.model, translate.tokenizer, text, picture)
