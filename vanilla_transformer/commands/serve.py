"""Offer a model over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from transformers import pipeline

from vanilla_transformer.evaluation.plots import plot_attention
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline

from .arguments import parse


@dataclass
class ServeArguments:
    """Where the service listens, and what it takes."""

    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on; 0.0.0.0 for all of them."})
    port: int = field(default=8000, metadata={"help": "Port to listen on."})
    backend: str | None = field(
        default=None, metadata={"help": "`ctranslate2` for a folder that was converted for it; by default torch."}
    )
    page: bool = field(default=False, metadata={"help": "Offer a page at / as well, to try the model on."})
    max_batch_size: int = field(default=32, metadata={"help": "Texts translated together."})
    max_waiting: int = field(default=1024, metadata={"help": "Texts that may wait for a batch."})
    max_body_bytes: int = field(default=1_000_000, metadata={"help": "Largest request."})
    max_texts: int = field(default=256, metadata={"help": "Most texts of a request."})
    max_characters: int = field(default=5000, metadata={"help": "Longest text."})
    max_hypotheses: int = field(default=8, metadata={"help": "Most translations of a text."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ServeArguments, arguments, "serve FOLDER [--flags]")
    if len(words) != 1:
        raise ValueError(f"Name the folder (or Hub name) of one model before the flags, got {len(words)} names.")
    try:
        import uvicorn

        from vanilla_transformer.serving.service import Limits, create_service, translate_with
    except ImportError as error:
        raise OSError(
            f"Serving is not installed ({error}). Install it with `pip install 'vanilla-transformer[serve]'`."
        ) from error
    limits = Limits(**{one.name: getattr(options, one.name) for one in fields(Limits)})
    translate = (
        pipeline("translation", model=words[0])
        if options.backend is None
        else TranslationPipeline(words[0], backend=options.backend)
    )
    service = create_service(translate_with(translate), limits)
    if options.page:
        service = _with_page(service, translate, words[0])
    uvicorn.run(service, host=options.host, port=options.port, log_level="info")


def _with_page(service: Any, translate: TranslationPipeline, name: str) -> Any:
    """The page has a picture of the attention where the model shows it, which those for CTranslate2 do not."""
    try:
        from vanilla_transformer.serving.page import add_page
    except ImportError as error:
        raise OSError(
            f"The page is not installed ({error}). Install it with `pip install 'vanilla-transformer[page]'`."
        ) from error
    draw = None
    if isinstance(translate.model, VanillaTransformerForConditionalGeneration):
        draw = partial(_draw, translate)
    return add_page(service, Path(name).name, draw)


def _draw(translate: TranslationPipeline, text: str, picture: Path) -> Path:
    return plot_attention(translate.model, translate.tokenizer, text, picture)
