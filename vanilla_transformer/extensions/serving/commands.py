"""Serve one model or several over HTTP."""

import ipaddress
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator

from vanilla_transformer.cli.flags import (
    DEFAULT_LANGUAGE,
    PRECISION_HELP,
    FurtherModelArguments,
    LanguageArguments,
    ThreadArguments,
    further_models,
    language_settings,
    parse,
    read_keys,
)
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.files.outputs import lock_folder
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.languages import (
    NO_DIRECTION,
    Direction,
    find_direction,
    find_languages,
)
from vanilla_transformer.text.translation_warnings import WarningLimits
from vanilla_transformer.user_input.schemas import ARGUMENT, INPUT, Input

from .limits import Limit, Limits

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

    from .models import LoadedModel, ServedModel

# Flags that say something of one model only.
_OF_ONE_MODEL = (
    *("ensemble", "ensemble_weights", "rerank_reverse", "rerank_quality"),
    *("source_language", "target_language", "direction"),
)
# A browser leaves out the usual port.
_ORIGIN = re.compile(
    r"(?!https://.*:443$|http://.*:80$)[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?"
)

_HOST = re.compile(r"(\*\.)?[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
# The last one is what releases of Starlette before 1.0 make of all addresses of IPv6, which no page
# can have as name.
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "[")


class ServeArguments(FurtherModelArguments, ThreadArguments, Limits):
    """Flags of the service and its models."""

    name: Annotated[str, ARGUMENT, INPUT] = Field(
        "", title="MODEL", description="Folder of a model, or its name on the Hugging Face Hub."
    )
    model: list[str] | None = Field(
        None,
        description="Instead of MODEL, one of several models, each with its languages and its "
        "folder, such as en-de=runs/en-de; repeat the flag for each. They are loaded when a "
        "request needs them.",
    )
    max_loaded: Limit | None = Field(
        None,
        description="With --model: maximum number of models in memory; the least recently used one "
        "makes room. By default all.",
    )
    glossary: list[str] | None = Field(
        None,
        description="File of terms and their translations for all requests, as `translate "
        "--glossary` reads it: in the default languages of the service or, with --model, such as "
        "en-de=terms.tsv.",
    )
    memory: list[str] | None = Field(
        None,
        description="Files with translations of sentences for all requests, as `translate "
        "--memory` reads them: in the default languages of the service or, with --model, such as "
        "en-de=memory.tmx.",
    )
    suggestions: str | None = Field(
        None,
        description="Folder in which corrections that clients suggest are stored. Later requests "
        "with the same API key get them.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all interfaces.")
    port: int = Field(8000, description="Port to listen on.")
    precision: str | None = Field(None, description=PRECISION_HELP)
    api_key_file: Input | None = Field(
        None,
        description=(
            "File with API keys, one per line; requests need one: `Authorization: Bearer KEY`."
        ),
    )
    cors: list[str] | None = Field(
        None,
        description="Origins whose pages may use the service in a browser, such as "
        "https://example.org; '*' for all (default: only the service's own page).",
    )
    hosts: list[str] | None = Field(
        None,
        description="Further names by which requests address the service, such as "
        "translate.example.org, besides localhost and --host; '*' for all, as it is with --host "
        "0.0.0.0.",
    )
    page: bool = Field(True, description="Serve a web page at / to try the models.")
    metrics: bool = Field(False, description="Export metrics for Prometheus at /metrics.")
    source_language: str | None = Field(
        None,
        description="Code of the language of requests that name none: for models that translate "
        "from several, and for abbreviations, which end no sentence (default: en).",
    )
    target_language: str | None = Field(
        None,
        description=(
            "Likewise the language of their translations, for models that translate into several."
        ),
    )
    direction: str | None = Field(
        None,
        description="Languages of a model with one direction, such as en-de, for clients of "
        "LibreTranslate and for documents; by default the ones with which it was trained, if its "
        "recipe named them.",
    )
    docs: bool = Field(True, description="Describe the service at /docs and /openapi.json.")

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, hosts: list[str]) -> list[str]:
        for host in hosts or []:
            if host != "*" and _HOST.fullmatch(host) is None:
                requirement = (
                    "names such as translate.example.org or *.example.org, or addresses, "
                    "without a port"
                )
                raise UserError(f"`hosts` must be {requirement}; or '*'. Got {host!r}.")
        return hosts

    @field_validator("cors")
    @classmethod
    def _check_origins(cls, origins: list[str]) -> list[str]:
        for origin in origins or []:
            if origin != "*" and _ORIGIN.fullmatch(origin) is None:
                parts = (
                    "a scheme and a host in lower case, and a port unless it is the usual "
                    "one, without a path"
                )
                raise UserError(
                    f"`cors` must be origins such as https://example.org: {parts}; or '*'. Got "
                    f"{origin!r}."
                )
        return origins


def serve_command(arguments: Sequence[str]) -> None:
    options = parse(ServeArguments, arguments)
    folders = parse_models(options)
    keys = [] if options.api_key_file is None else read_keys(options.api_key_file)
    with requires_extra("serve", "Serving"):
        import sentencex  # noqa: F401  # splits texts of the page and of LibreTranslate's clients

        from .language_detection import find_detector
        from .models import Models, hash_models
        from .page import add_page
        from .server import bind, run_server
        from .service import create_service_of

    detect = find_detector()
    folder = options.suggestions
    locked = nullcontext() if folder is None else lock_folder(folder)
    with bind(options.host, options.port) as listener, locked:
        models, page = _several_models(folders, options) if folders else _one_model(options)
        suggestions = None
        if folder is not None:
            from vanilla_transformer.extensions.memory.suggestions import Suggestions

            suggestions = Suggestions(folder)
            if not all(model.directions for model in models):
                raise UserError(
                    "`suggestions` must be for a model whose languages are known, got one without. "
                    "Name them by --direction."
                )
        service = create_service_of(
            Models(models),
            options,
            api_keys=keys,
            metrics=options.metrics,
            docs=options.docs,
            documents=True,
            detect=detect,
            cors=options.cors or [],
            hosts=find_hosts(options, listener.getsockname()[0]),
            suggestions=suggestions,
        )
        ThreadPoolExecutor(1, thread_name_prefix="hash").submit(hash_models, models)
        if options.page:
            add_page(service, **page)
        host, port = listener.getsockname()[:2]
        if not keys and not ipaddress.ip_address(host.split("%")[0]).is_loopback:
            print(
                "warning: Other machines can use this service without a key. See --api_key_file.",
                file=sys.stderr,
            )
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        served = options.name or ", ".join(map(str, folders))
        print(f"Serving {served} at {address} (Ctrl-C stops it).", flush=True)
        run_server(service, listener, options)


def find_hosts(options: ServeArguments, address: str) -> list[str]:
    """Return the names by which requests may address the service, given the address to which it is
    bound.

    On all interfaces, other machines may know this one by any name.
    """
    host = ipaddress.ip_address(address.split("%")[0])
    if host.is_unspecified and options.hosts is None:
        return ["*"]
    bound = [f"[{name}]" if ":" in name else name for name in (options.host, address)]
    return [*_LOOPBACK, *bound, *(options.hosts or [])]


def parse_models(options: ServeArguments) -> dict[Direction, str]:
    """Return the folders of models by their languages, none if there is one MODEL."""
    if options.model is None:
        if options.max_loaded is not None:
            raise UserError(
                "`max_loaded` is for several models. Name them by --model, or leave it out."
            )
        if not options.name:
            raise UserError(
                "Name one MODEL (its folder or Hub name), or several by --model, got none."
            )
        return {}
    if options.name:
        raise UserError(
            f"Name one MODEL or several by --model, got {options.name!r} and --model "
            f"{options.model[0]}."
        )
    for name in _OF_ONE_MODEL:
        if getattr(options, name):
            raise UserError(f"`{name}` is for one MODEL. Leave it out with --model.")
    folders: dict[Direction, str] = {}
    for model in options.model:
        name, _, folder = model.partition("=")
        direction = _parse_direction(name)
        if direction is None or not folder:
            raise UserError(
                f"`model` must be languages and a folder, such as en-de=runs/en-de, got {model!r}."
            )
        if not Path(folder).is_dir():
            reason = (
                f"There is no folder {folder}. `model` must be the folder of a model, got "
                f"{model!r}."
            )
            raise MissingFileError(reason)
        if direction in folders:
            raise UserError(f"Each `model` must have other languages, got {direction} twice.")
        folders[direction] = folder
    return folders


def _parse_direction(name: str) -> Direction | None:
    """Return a direction such as en-de, or None for another name."""
    source, _, target = name.partition("-")
    return Direction(source, target) if source and target else None


def _one_model(options: ServeArguments) -> tuple[list["ServedModel"], dict[str, Any]]:
    """Load the only model, and return it and the arguments of its page."""
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.text.glossary import read_glossary

    from .models import ServedModel

    load = partial(load_pipeline, options.name, options.precision, **further_models(options))
    # This thread ends, and OpenMP's threads for it end too. If it had more threads than cores, they
    # would sleep instead of spinning, and a request would take three times as long.
    with ThreadPoolExecutor(1) as loading:
        translate = loading.submit(load).result()
    settings = language_settings(translate.tokenizer, options)
    languages, flag = find_languages(translate.tokenizer), options.direction
    direction = NO_DIRECTION if flag is None else _parse_direction(flag)
    if direction is None or (flag is not None and languages is not None):
        example = "such as en-de, for a model without tokens for languages"
        raise UserError(f"`direction` must be the codes of two languages, {example}, got {flag!r}.")
    if languages is not None:
        directions = languages.possible_directions
        default = languages.complete(settings.get("src_lang"), settings.get("tgt_lang"))
        # Without a source if the model asks for none.
        choices = directions or [Direction(None, target) for target in languages.targets]
    else:
        known = find_direction(translate.tokenizer, *direction)
        choices = directions = [known] if all(known) else []
        default = known if all(known) else NO_DIRECTION
    glossary, files = None, options.glossary or []
    lacks_language = languages is not None and "tgt_lang" not in settings
    if len(files) > 1 or (files and lacks_language):
        requirement = (
            "must be one file and, for a model of several languages, given with --target_language"
        )
        raise UserError(
            f"`glossary` {requirement}, got {', '.join(files)}. Serve several models by --model."
        )
    if options.memory and lacks_language:
        requirement = "given with --target_language for a model of several languages"
        raise UserError(f"`memory` must be {requirement}, got it without.")
    source = default.source or options.source_language
    target = default.target or options.target_language
    if files:
        glossary = read_glossary(files[0], source or DEFAULT_LANGUAGE, target)
    memory = _read_memory(options.memory, Direction(source, target))
    spoken = options.source_language or default.source
    wrap = partial(
        _wrap,
        languages=settings,
        spoken=spoken,
        direction=default,
        options=options,
        glossary=glossary,
        memory=memory,
    )

    def load_again() -> "LoadedModel":
        new = load()
        if languages is None:
            find_direction(new.tokenizer, *default)  # refuses another one
        return wrap(new)

    folder = Path(options.name).name
    served = ServedModel(
        flag or folder,
        options,
        load_again,
        wrap(translate),
        directions,
        default=default,
        folder=options.name,
    )
    return [served], {"title": folder, "directions": choices, "default": settings}


def _several_models(
    folders: Mapping[Direction, str], options: ServeArguments
) -> tuple[list["ServedModel"], dict[str, Any]]:
    """Return models that are loaded when requests need them, and the arguments of their page."""
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.text.glossary import read_glossary

    from .models import ModelLoader, ServedModel

    def load(direction: Direction, folder: str) -> "LoadedModel":
        translate = load_pipeline(folder, options.precision, normalize=options.normalize)
        # This refuses a model of other languages.
        find_direction(translate.tokenizer, *direction)
        languages = {}
        if find_languages(translate.tokenizer) is not None:
            flags = LanguageArguments(
                source_language=direction.source, target_language=direction.target
            )
            languages = language_settings(translate.tokenizer, flags)
        of_direction = glossaries.get(direction), memories.get(direction)
        return _wrap(translate, languages, direction.source, direction, options, *of_direction)

    glossaries = {}
    for direction, files in _files_of_models(options, "glossary", folders).items():
        glossaries[direction] = read_glossary(files[-1], *direction)
    memories = {}
    for direction, files in _files_of_models(options, "memory", folders).items():
        memories[direction] = _read_memory(files, direction)
    loader = ModelLoader(options.max_loaded)
    models = []
    for direction, folder in folders.items():
        load_model = partial(load, direction, folder)
        name = str(direction)
        models.append(
            ServedModel(name, options, load_model, None, [direction], loader, folder=folder)
        )
    return models, {"title": "vanilla-transformer"}


def _files_of_models(
    options: ServeArguments, flag: str, folders: Mapping[Direction, str]
) -> dict[Direction, list[str]]:
    """Return the files that a flag gives to several models, by their languages."""
    files = dict[Direction, list[str]]()
    for assignment in getattr(options, flag) or []:
        name, _, file = assignment.partition("=")
        direction = _parse_direction(name)
        if direction is None or direction not in folders or not file:
            requirement = "the languages of a --model and a file, such as en-de=terms.tsv"
            raise UserError(f"With --model, `{flag}` must be {requirement}, got {assignment!r}.")
        files.setdefault(direction, []).append(file)
    return files


def _read_memory(files: Sequence[str] | None, direction: Direction) -> object:
    if not files:
        return None
    from vanilla_transformer.extensions.memory.memory import as_memory

    return as_memory(files, direction)


def _wrap(
    translate: "TranslationPipeline",
    languages: Mapping[str, str],
    spoken: str | None,
    direction: Direction,
    options: ServeArguments,
    glossary: Any,
    memory: object,
) -> "LoadedModel":
    """Return a model for the service.

    Args:
        languages: `src_lang` and `tgt_lang` of requests that do not give them.
        spoken: Language of texts that are split into sentences, if it is known.
    """
    from vanilla_transformer.extensions.documents import DocumentTranslator

    from .features import find_term_mode, known_options
    from .models import LoadedModel
    from .service import count_tokens_with, translate_with

    documents = DocumentTranslator(translate, spoken, direction)
    known = known_options(translate)
    if glossary is not None:
        find_term_mode(None, known)  # refuses a model that knows no terms
    usual_languages = Direction(languages.get("src_lang"), languages.get("tgt_lang"))
    warning_limits = WarningLimits()
    if options.suggestions is not None:  # which are checked
        warning_limits = WarningLimits.from_config(translate.model.config)
    return LoadedModel(
        translate_with(translate, documents, usual_languages, spoken, glossary),
        count_tokens_with(translate.tokenizer),
        known,
        lambda: translate.is_compiled,
        documents,
        memory,
        warning_limits,
    )
