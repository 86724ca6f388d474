"""Serve a model over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.serving.batcher import Limits

from .arguments import parse, require_one_model


@dataclass(frozen=True)
class ServeArguments(Limits):
    """Flags of `serve`: the address, the backend and the limits of the service."""

    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on; 0.0.0.0 for all interfaces."})
    port: int = field(default=8000, metadata={"help": "Port to listen on."})
    backend: str | None = field(
        default=None, metadata={"help": "`ctranslate2` for a model converted to CTranslate2; by default PyTorch."}
    )
    page: bool = field(default=False, metadata={"help": "Serve a web page at / to try the model."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ServeArguments, arguments, "serve MODEL [--flags]")
    name = require_one_model(words)
    from vanilla_transformer.inference.loading import load_pipeline

    with requires_extra("serve", "Serving"):
        import uvicorn

        from vanilla_transformer.serving.service import create_service, translate_with
    translate = load_pipeline(name, options.backend)
    service = create_service(translate_with(translate), options)
    if options.page:
        service = _add_page(service, translate, name)
    uvicorn.run(service, host=options.host, port=options.port, log_level="info")


def _add_page(service: Any, translate: TranslationPipeline, name: str) -> Any:
    """Add the web page, with a plot of the attention unless the backend is CTranslate2, which does not return it."""
    from vanilla_transformer import VanillaTransformerForConditionalGeneration

    with requires_extra("page", "The page"):
        from vanilla_transformer.serving.page import add_page
    draw = None
    if isinstance(translate.model, VanillaTransformerForConditionalGeneration):
        draw = partial(_draw_attention, translate)
    return add_page(service, Path(name).name, draw)


def _draw_attention(translate: TranslationPipeline, text: str, picture: Path) -> Path:
    from vanilla_transformer.evaluation.plots import plot_attention

    return plot_attention(translate.model, translate.tokenizer, text, picture)
