"""The web page to try the models."""

from collections.abc import Mapping, Sequence

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from vanilla_transformer.files.formats import DOCUMENT_ENDINGS
from vanilla_transformer.files.resources import fill_page
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.translation_warnings import WARNINGS

from .language_detection import language_name
from .models import Models
from .service import OF_PAGES

_NUM_HYPOTHESES = 4
# Of each text, where the model knows them
_OPTIONS = ("return_scores", "return_alignments", "return_warnings", "split_sentences")
_SHOWN_LIMITS = (
    "max_texts",
    "max_characters",
    "max_tokens",
    "max_body_bytes",
    "max_document_bytes",
)


def add_page(
    service: FastAPI,
    title: str,
    directions: Sequence[Direction] | None = None,
    default: Mapping[str, str] | None = None,
) -> FastAPI:
    """Add a page at `/` that translates texts and documents.

    The page makes the same requests as other clients, so it has the limits of the service. If the
    service has API keys, visitors enter one of them. The options that a model knows decide whether
    the page shows scores, alignments and the upload of documents; with models that are loaded
    later, the page asks for them when it needs them.

    Args:
        service: An application of [`create_service`] or [`create_service_of`].
        title: Heading of the page, such as the name of the model.
        directions: Languages from and to which the service translates, among which visitors choose;
            by default the ones of its models. A direction without a source means that the model
            does not ask for it.
        default: The `src_lang` and `tgt_lang` that are chosen at first.
    """
    models: Models = service.state.models
    first, *others = models
    limits, loaded = first.limits, first if first.is_loaded and not others else None
    directions = models.directions if directions is None else directions
    targets = list(dict.fromkeys(str(direction.target) for direction in directions))
    by_source: dict[str, list[str]] = {}
    for source, target in directions:
        by_source.setdefault(source or "", []).append(str(target))
    targets_of = dict[str, list[str]]()
    for source, known_targets in by_source.items():
        # Two hundred languages have forty thousand directions: all others go without saying.
        if known_targets != [code for code in targets if code != source]:
            targets_of[source] = known_targets
    model_names = dict[str, str]()
    if loaded is None:
        for model in models:
            for direction in model.directions:
                model_names[str(direction)] = model.name
    has_documents = loaded is None or "format" in loaded.known
    codes = (*filter(None, by_source), *targets)
    settings = {
        "models": model_names,
        "features": list(loaded.known) if loaded else None,
        "options": _OPTIONS,
        "warnings": WARNINGS,
        "num_hypotheses": min(_NUM_HYPOTHESES, limits.max_hypotheses),
        "endings": DOCUMENT_ENDINGS if has_documents else {},
        "needs_key": bool(service.state.api_keys),
        "suggestions": service.state.suggestions is not None,
        "default": dict(default or {}),
        "limits": {name: getattr(limits, name) for name in _SHOWN_LIMITS},
        "names": {code: language_name(code) for code in codes},
        "sources": list(by_source),
        "targets": targets,
        "targets_of": targets_of,
    }
    page = fill_page(str(__package__), title, settings)

    @service.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page, headers=OF_PAGES)

    return service
