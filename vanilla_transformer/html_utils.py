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
    parts = {name: read_part(package, name) for name in ("css", "js")}
    hashes = {f"{name}_hash": hash_content(text) for name, text in parts.items()}
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    content = content.replace("<", "\\u003c")  # or a text such as `</script>` would end the data
    parts |= hashes | {"title": html.escape(title), "data": content}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], read_part(package, "html"))


def read_part(package: str, name: str) -> str:
    """Return a part of the page of a package: its `html`, `css` or `js`."""
    return resources.files(package).joinpath(f"page.{name}").read_text("utf-8")


def hash_content(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an element with this text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


__all__ = ["fill_page", "hash_content", "read_part"]
