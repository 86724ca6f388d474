"""Recipes, card templates and the parts of web pages, which are installed with the package, and
labels of metrics.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import is_pipe

_PACKAGE = Path(__file__).parents[1]


def resource_folder(name: str) -> Path:
    """Return the folder `recipes` or `model_card`: inside an installed wheel, or at the root of the
    repository.
    """
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def find_recipe(name_or_path: str) -> Path:
    """Return the path of a recipe given by the name of a packaged one, such as "small", or by its
    path.
    """
    return _find(name_or_path, "recipes", "recipe")


def describe_recipes() -> dict[str, str]:
    """Return the first sentence of the comment of each packaged recipe, by its name."""
    descriptions = {}
    for path in sorted(resource_folder("recipes").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()
        comment_lines = takewhile(lambda line: line.startswith("#"), lines)
        comment = " ".join(line[1:].strip() for line in comment_lines)
        descriptions[path.stem] = re.split(r"[.:] ", comment)[0].rstrip(".")
    return descriptions


def find_facts(name_or_path: str) -> Path:
    """Return the path of a file of facts by the name of a packaged one, such as "wmt14_en_de", or
    by its path.
    """
    return _find(name_or_path, "model_card", "file of facts")


def _find(name_or_path: str, folder: str, kind: str) -> Path:
    path = Path(name_or_path)
    is_path = path.name != name_or_path or path.suffix in (".yaml", ".yml")
    if is_path or path.is_file() or is_pipe(path):
        return path
    files = sorted(resource_folder(folder).glob("*.yaml"))
    packaged = {file.stem: file for file in files}
    if name_or_path not in packaged:
        names = ", ".join(packaged)
        problem = f"There is no {kind} {name_or_path!r}"
        raise UserError(f"{problem}. Name a YAML file, or one of {names}.")
    return packaged[name_or_path]


def fill_page(package: str, title: str, data: Mapping[str, Any]) -> str:
    """Return the page that `page.html`, `page.css` and `page.js` of a package make together.

    Args:
        package: The name of the package, such as `__package__`.
        data: What the script reads as JSON from the element `data`.
    """
    parts = {name: read_part(package, name) for name in ("css", "js")}
    hashes = {f"{name}_hash": hash_content(text) for name, text in parts.items()}
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Otherwise a text such as `</script>` would end the data.
    content = content.replace("<", "\\u003c")
    parts |= hashes | {"title": html.escape(title), "data": content}
    template = read_part(package, "html")
    return re.sub(r"\{\{(\w+)\}\}", lambda field: parts[field[1]], template)


def read_part(package: str, name: str) -> str:
    """Return a part of the page of a package: its `html`, `css` or `js`."""
    return resources.files(package).joinpath(f"page.{name}").read_text("utf-8")


def hash_content(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an element with this text."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
