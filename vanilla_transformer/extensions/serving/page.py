"""The web page to try the models, and the page that describes the service."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.translation_warnings import WARNINGS
from vanilla_transformer.utils.resources import DOCUMENT_ENDINGS, fill_page, hash_content, read_part

from .language_detection import language_name
from .models import Models

_NUM_HYPOTHESES = 4
_RETURNED = ("return_scores", "return_alignments", "return_warnings")
_SHOWN_LIMITS = ("max_texts", "max_characters", "max_tokens", "max_body_bytes")


def add_page(
    service: FastAPI,
    title: str,
    directions: Sequence[Direction] = (),
    default: Mapping[str, str] | None = None,
) -> FastAPI:
    """Add a page at `/` that translates texts and documents.

    The page makes the same requests as other clients, so it has the limits of the service. If the service has API
    keys, visitors enter one of them. The options that a model knows decide whether the page shows scores, alignments
    and the upload of documents.

    Args:
        service: An application of [`create_service`] or [`create_service_of`].
        title: Heading of the page, such as the name of the model.
        directions: Languages from and to which the service translates, among which visitors choose. A direction
            without a source means that the model does not ask for it. With several models they are the directions of
            the models.
        default: The `src_lang` and `tgt_lang` that are chosen at first.
    """
    page = fill_page(str(__package__), title, _settings(service, directions, default or {}))

    @service.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page)

    return service


def _settings(service: FastAPI, directions: Sequence[Direction], default: Mapping[str, str]) -> dict[str, Any]:
    """Return what the script of the page needs to know about the service.

    With models that are loaded later, the page asks for the features of a model when it needs them.
    """
    models: Models = service.state.models
    first, *others = models
    limits, loaded = first.limits, first if first.is_loaded and not others else None
    return {
        "models": {} if loaded else {str(each): model.name for model in models.choices for each in model.directions},
        "features": list(loaded.known) if loaded else None,
        "returned": _RETURNED,
        "warnings": WARNINGS,
        "num_hypotheses": min(_NUM_HYPOTHESES, limits.max_hypotheses),
        "endings": DOCUMENT_ENDINGS if loaded is None or "format" in loaded.known else {},
        "needs_key": bool(service.state.api_keys),
        "default": dict(default),
        "limits": {name: getattr(limits, name) for name in _SHOWN_LIMITS},
        **_languages(directions),
    }


def _languages(directions: Sequence[Direction]) -> dict[str, Any]:
    """Return the names of languages, and the targets of each source unless they are all others.

    Two hundred languages have forty thousand directions.
    """
    targets = list(dict.fromkeys(str(each.target) for each in directions))
    by_source: dict[str, list[str]] = {}
    for each in directions:
        by_source.setdefault(each.source or "", []).append(str(each.target))
    others = {source: [code for code in targets if code != source] for source in by_source}
    return {
        "names": {code: language_name(code) for code in (*filter(None, by_source), *targets)},
        "sources": list(by_source),
        "targets": targets,
        "targets_of": {source: known for source, known in by_source.items() if known != others[source]},
    }


Schema = Mapping[str, Any]
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src '{hash}'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p class="note">Tools read the same from <a href="openapi.json">openapi.json</a>.</p></header>
<main>
{sections}
</main>
</body>
</html>
"""


def render_docs(document: Mapping[str, Any]) -> str:
    """Return the page that describes a service.

    Args:
        document: Its description by OpenAPI, such as `FastAPI.openapi()`.
    """
    style = read_part(str(__package__), "css")
    paths = document["paths"].items()
    sections = [
        "\n".join(_section(method, path, operation, document))
        for path, methods in paths
        for method, operation in methods.items()
    ]
    title = escape(f"{document['info']['title']}: HTTP")
    return _PAGE.format(hash=hash_content(style), title=title, style=style, sections="\n".join(sections))


def _section(method: str, path: str, operation: Schema, document: Schema) -> Iterator[str]:
    """Yield the lines about a method of a path."""
    name = escape(f"{method.upper()} {path}")
    yield f'<section class="card"><h2><code>{name}</code></h2><p>{escape(operation.get("summary", ""))}.</p>'
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<h3>Body: <code>{escape(kind)}</code></h3>"
        for schema in content["schema"].get("anyOf", [content["schema"]]):
            yield from _entries(schema, document)
        yield from _examples(content)
    yield "<h3>Answers</h3><dl>"
    for status, answer in operation["responses"].items():
        yield f"<dt><code>{escape(status)}</code></dt><dd>{escape(answer['description'])}"
        for content in answer.get("content", {}).values():
            yield from _examples(content)
        yield "</dd>"
    yield "</dl></section>"


def _entries(schema: Schema, document: Schema) -> Iterator[str]:
    """Yield the lines of a table with the entries of an object."""
    found = _find(schema, document)
    yield f'<p class="note">{escape(found.get("description", ""))}</p>'
    yield "<table><thead><tr><th>Entry</th><th>Value</th><th>Meaning</th></tr></thead><tbody>"
    for name, entry in found["properties"].items():
        need = " (required)" if name in found.get("required", ()) else ""
        value, about = escape(_name_type(entry)), escape(entry.get("description", ""))
        yield f"<tr><td><code>{escape(name)}</code>{need}</td><td>{value}</td><td>{about}</td></tr>"
    yield "</tbody></table>"


def _examples(content: Schema) -> Iterator[str]:
    """Yield the lines of the examples of some content."""
    for name, example in content.get("examples", {}).items():
        value = example["value"]
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f'<p class="note">{escape(name)}</p><pre><code>{escape(shown)}</code></pre>'


def _find(schema: Schema, document: Schema) -> Schema:
    """Return a schema, or the one of the document to which it refers."""
    if "$ref" not in schema:
        return schema
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def _name_type(schema: Schema) -> str:
    """Return words for the values of a schema."""
    if "anyOf" in schema:
        return " or ".join(map(_name_type, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(json.dumps(each) for each in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_name_type(schema['items'])}"
    if kind == "object" and "additionalProperties" in schema:
        return f"object of {_name_type(schema['additionalProperties'])}"
    return f"{kind} of {schema['minimum']:g} or more" if "minimum" in schema else str(kind)
