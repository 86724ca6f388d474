"""The site builds strictly: every page is in the navigation, every link and every public name
exists.
"""

import json
import re

import pytest
import yaml

from tests.docs_pages import ROOT
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.training.recipe import SECTIONS

# Words that people search: the page with a heading that has it, and others that have it.
ANSWERS = {
    "significance": ("change_the_architecture", "evaluate"),
    "seeds": ("change_the_architecture", "reproduce"),
    "subclass": ("change_the_architecture",),
    "dictionary": ("localize_software", "terms_and_markup"),
    "roll back": ("localize_software",),
    "upgrade": ("localize_software", "use_from_transformers"),
    "low-resource": ("new_language",),
}
RESOLVED = {"batch_size", "library", "generate_kwargs"}  # computed from the options


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


def test_site_documents_every_public_name_and_key(site):
    import vanilla_transformer
    from vanilla_transformer.cli import COMMANDS

    python = (site / "reference/python/index.html").read_text()
    for name in vanilla_transformer.__all__:
        assert f".{name}" in python
    commands = (site / "reference/commands/index.html").read_text()
    for name in COMMANDS:
        assert f'id="{name}"' in commands
    options = (site / "reference/options/index.html").read_text()
    for name in TranslationOptions.model_fields.keys() - RESOLVED:
        assert f"<code>{name}</code>" in options
    beams = "Beam size; 1 is greedy search. Also: flag, entry of a generation config."
    assert beams in options
    page = (site / "reference/recipe_keys/index.html").read_text()
    titles = [f'<h2 id="{section}"' for section in SECTIONS]
    assert "Width of the residual stream" in page
    assert sorted(titles, key=page.index) == titles
    for title, parts in zip(titles, SECTIONS.values(), strict=True):
        keys = page[page.index(title) :].removeprefix(title).split("<h2 id=")[0]
        for part in parts:
            assert all(f"<code>{name}</code>" in keys for name in part.model_fields)


def pages_with(sections, field, word):
    """Return the pages whose titles or texts have a word."""
    pages = set()
    for section in sections:
        if word in section[field].lower():
            pages.add(section["location"].split("/")[0])
    return pages


def test_search_leads_from_words_to_pages_that_answer(site):
    sections = json.loads((site / "search/search_index.json").read_text())["docs"]
    for word, (first, *others) in ANSWERS.items():
        assert first in pages_with(sections, "title", word)
        assert {*others} <= pages_with(sections, "text", word)


def test_site_asks_no_other_server(site):
    link = re.compile(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="(https?://[^"]+)"')
    for page in site.rglob("*.html"):
        for address in link.findall(page.read_text()):
            assert "canonical" in address, page


def test_site_and_package_name_the_same_repository():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    repository = site["extra"]["repository"]
    assert f'REPOSITORY = "{repository}"' in (ROOT / "setup.py").read_text()
