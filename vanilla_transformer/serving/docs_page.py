"""The page at `/docs`: the description of the service as one HTML file, which loads nothing and runs no script."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from vanilla_transformer.resources import hash_content, read_part

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


__all__ = ["render_docs"]
