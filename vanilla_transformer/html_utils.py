"""Web pages in one file, with their data, style and script."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any


def fill_page(package: str, title: str, data: Mapping[str, Any]) -> str:
    """Return the page that `page.html`, `page.css` and `page.js` of a package make together.

    Args:
        package: The name of the package, such as `__package__`.
        data: What the script reads as JSON from the element `data`.
    """
    parts = {name: resources.files(package).joinpath(f"page.{name}").read_text("utf-8") for name in ("css", "js")}
    hashes = {f"{name}_hash": _hash(text) for name, text in parts.items()}
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    content = content.replace("<", "\\u003c")  # or a text such as `</script>` would end the data
    parts |= hashes | {"title": html.escape(title), "data": content}
    page = resources.files(package).joinpath("page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)


def _hash(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an element with this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


__all__ = ["fill_page"]
