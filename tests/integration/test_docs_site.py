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


def test_site_documents_every_public_name_option_and_recipe_key(site):
    import vanilla_transformer
    from vanilla_transformer.cli import COMMANDS

    python = (site / "reference/python/index.html").read_text()
    assert all(f".{name}" in python for name in vanilla_transformer.__all__)
    commands = (site / "reference/commands/index.html").read_text()
    assert all(f'id="{name}"' in commands for name in COMMANDS)
    options = (site / "reference/options/index.html").read_text()
    assert all(
        f"<code>{name}</code>" in options
        for name in TranslationOptions.model_fields.keys() - RESOLVED
    )
    assert "Beam size; 1 is greedy search. Also: flag, entry of a generation config." in options
    page = (site / "reference/recipe_keys/index.html").read_text()
    titles = [f'<h2 id="{section}"' for section in SECTIONS]
    assert "Width of the residual stream" in page and sorted(titles, key=page.index) == titles
    for title, parts in zip(titles, SECTIONS.values(), strict=True):
        keys = page[page.index(title) :].removeprefix(title).split("<h2 id=")[0]
        assert all(f"<code>{name}</code>" in keys for part in parts for name in part.model_fields)


def test_search_leads_from_words_to_the_headings_and_pages_that_answer(site):
    sections = json.loads((site / "search/search_index.json").read_text())["docs"]
    headings = {
        (word, each["location"].split("/")[0])
        for each in sections
        for word in ANSWERS
        if word in each["title"].lower()
    }
    assert {(word, pages[0]) for word, pages in ANSWERS.items()} <= headings
    texts = {
        (word, each["location"].split("/")[0])
        for each in sections
        for word in ANSWERS
        if word in each["text"].lower()
    }
    assert {(word, page) for word, pages in ANSWERS.items() for page in pages[1:]} <= texts


def test_site_asks_no_other_server(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(
            r'<(?:script|img|link|iframe)[^>]+(?:src|href)="(https?://[^"]+)"', text
        )
        assert not [address for address in loaded if "canonical" not in address], page


def test_site_and_package_name_the_same_repository():
    repository = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["extra"]["repository"]
    assert f'REPOSITORY = "{repository}"' in (ROOT / "setup.py").read_text()
