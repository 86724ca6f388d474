"""Serve a model over HTTP."""

import ipaddress
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.documents import DocumentTranslator, parse_document
from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.inference.engine.engine import Engine
from vanilla_transformer.inference.loading import load_pipeline
from vanilla_transformer.serving.limits import Limits
from vanilla_transformer.serving.request_body import LANGUAGES, RERANKING, RETURNED, RISK, SEARCHES, SOFT_TERMS
from vanilla_transformer.text.inline_terms import knows_inline_terms
from vanilla_transformer.text.languages import Direction, find_languages
from vanilla_transformer.training.environment import limit_onednn_cache

from .arguments import PRECISION_HELP, parse, read_keys, require_one_model
from .language_arguments import DEFAULT_LANGUAGE, language_settings
from .model_arguments import FurtherModelArguments, further_models


@dataclass
class ServeArguments(FurtherModelArguments, Limits):
    """Flags of `serve`: the address, the models, the precision, access and the limits of the service."""

    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on; 0.0.0.0 for all interfaces."})
    port: int = field(default=8000, metadata={"help": "Port to listen on."})
    backend: str | None = field(
        default=None, metadata={"help": "`ctranslate2` for a model converted to CTranslate2; by default PyTorch."}
    )
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    api_key_file: str | None = field(
        default=None,
        metadata={"help": "File with API keys, one per line; requests need one: `Authorization: Bearer KEY`."},
    )
    page: bool = field(default=False, metadata={"help": "Serve a web page at / to try the model."})
    metrics: bool = field(default=False, metadata={"help": "Export metrics for Prometheus at /metrics."})
    source_language: str | None = field(
        default=None,
        metadata={
            "help": "Code of the language of requests that name none: for models that translate from several, and for "
            "abbreviations, which end no sentence (default: en)."
        },
    )
    target_language: str | None = field(
        default=None,
        metadata={"help": "Likewise the language of their translations, for models that translate into several."},
    )
    direction: str | None = field(
        default=None,
        metadata={"help": "Languages of a model with one direction, such as en-de, for clients of LibreTranslate."},
    )
    docs: bool = field(default=False, metadata={"help": "Describe the service at /docs and /openapi.json."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ServeArguments, arguments, "serve MODEL [--flags]")
    name = require_one_model(words)
    keys = [] if options.api_key_file is None else read_keys(options.api_key_file)
    with requires_extra("serve", "Serving"):
        from vanilla_transformer.serving.page import add_page
        from vanilla_transformer.serving.server import bind, run_server
        from vanilla_transformer.serving.service import count_tokens_with, create_service, translate_with
    with bind(options.host, options.port) as listener:
        limit_onednn_cache()
        # This thread ends, and OpenMP's threads for it end too. If it had more threads than cores, they would sleep
        # instead of spinning, and a request would take three times as long.
        with ThreadPoolExecutor(1) as loading:
            load = partial(load_pipeline, name, options.backend, options.precision, **further_models(options))
            translate = loading.submit(load).result()
        languages = language_settings(translate.tokenizer, options)
        spoken = options.source_language or DEFAULT_LANGUAGE
        known = [*known_entries(translate), *_tokenizer_options(translate.tokenizer)]
        service = create_service(
            translate_with(translate, DocumentTranslator(translate, spoken), languages, spoken),
            options,
            count_tokens_with(translate.tokenizer),
            api_keys=keys,
            metrics=options.metrics,
            docs=options.docs,
            known=known,
            check_document=parse_document,
            directions=find_directions(translate.tokenizer, options.direction),
        )
        if options.page:
            add_page(service, Path(name).name, known, _page_directions(translate, options.direction), languages)
        host, port = listener.getsockname()[:2]
        if not keys and not _is_loopback(host):
            print("warning: Other machines can use this service without a key. See --api_key_file.", file=sys.stderr)
        print(f"Serving {name} at http://{f'[{host}]' if ':' in host else host}:{port} (Ctrl-C stops it).", flush=True)
        run_server(service, listener, options)


def find_directions(tokenizer: Any, given: str | None) -> list[Direction]:
    """Return from and to which languages a model translates, as far as that is known.

    Raises:
        ValueError: `given` is no direction, or the model names its languages itself.
    """
    languages = find_languages(tokenizer)
    if given is None:
        return [] if languages is None else languages.possible_directions
    source, _, target = given.partition("-")
    if languages is not None or not source or not target:
        rule = "such as en-de, for a model that does not name its languages itself"
        raise ValueError(f"`direction` must be the codes of two languages, {rule}, got {given!r}.")
    return [Direction(source, target)]


def _page_directions(translate: TranslationPipeline, given: str | None) -> list[Direction]:
    """Return the directions among which visitors of the page choose, without a source if the model asks for none."""
    languages = find_languages(translate.tokenizer)
    targets = () if languages is None else languages.targets
    return find_directions(translate.tokenizer, given) or [Direction(None, target) for target in targets]


def engine_options(model: Any) -> list[str]:
    """Return the options of requests that an engine of a model follows."""
    needed = {"return_alignments": "alignment_heads", "return_confidence": "confidence"}
    has = {name: bool(getattr(getattr(model, "config", None), entry, None)) for name, entry in needed.items()}
    names = [*RETURNED, "do_sample", "glossary", "constraints", "target_prefix", *SEARCHES]
    return [name for name in names if has.get(name, True)] if Engine.supports(model) else []


def _tokenizer_options(tokenizer: Any) -> list[str]:
    """Return the options of requests that a tokenizer has tokens for."""
    languages = [] if find_languages(tokenizer) is None else LANGUAGES
    return [*([SOFT_TERMS] if knows_inline_terms(tokenizer) else []), *languages]


def known_entries(translate: TranslationPipeline) -> list[str]:
    """Return the entries of requests that a service accepts for its models."""
    names = engine_options(translate.model)
    if names and translate.reranks:
        names = [name for name in names if name not in ("do_sample", "alternatives")] + [*RERANKING]
    elif names:
        names += RISK
    return [*names, "split_sentences", "format"]


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.split("%")[0]).is_loopback
