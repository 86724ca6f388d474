"""Hooks of mkdocs: pages that are generated from the code, and links out of `docs/`."""

import io
import os
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# Pages whose text is elsewhere in the repository.
ELSEWHERE = {"migration.md": "MIGRATION.md", "changelog.md": "CHANGELOG.md"}
# On the home page, if `make site` builds the page of `examples/browser` beside it.
TRANSLATOR = """Write a short English sentence. A model of 10 MB translates it into German, in this
page.

<iframe class="translator" src="translator/index.html"
  title="Translate English to German"></iframe>"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"python": python_page, "recipe_keys": recipe_keys_page, "options": options_page}
    for name, write in (pages | {"commands": commands_page}).items():
        files.append(File.generated(config, f"reference/{name}.md", content=write()))
    for path, source in ELSEWHERE.items():
        files.append(
            File.generated(config, path, content=(ROOT / source).read_text(encoding="utf-8"))
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave `docs/` lead to the repository, and put the translator on the home
    page.
    """
    folder = ROOT if page.file.src_uri in ELSEWHERE else (ROOT / "docs" / page.file.src_uri).parent

    def resolve(match: re.Match[str]) -> str:
        path, anchor = match["path"], match["anchor"] or ""
        target = Path(os.path.normpath(folder / path))
        if not target.exists():
            return match[0]  # mkdocs reports it
        if target.is_relative_to(ROOT / "docs"):
            return (
                f"]({os.path.relpath(target, (ROOT / 'docs' / page.file.src_uri).parent)}{anchor})"
            )
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.extra['repository']}/{kind}/main/{target.relative_to(ROOT)}{anchor})"

    if page.is_homepage and os.environ.get("TRANSLATOR"):
        markdown = markdown.replace("<!-- translator -->", TRANSLATOR)
    return re.sub(
        r"\]\((?!https?:|#|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)", resolve, markdown
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let names of files and calls in tables break after a slash, a dot or an underscore."""
    border = re.compile(r"([/.]|(?<=[A-Za-z0-9])_)(?=[A-Za-z0-9])(?!py\b)")

    def allow_breaks(name: re.Match[str]) -> str:
        return border.sub(r"\1<wbr>", name[0])

    def allow_breaks_of_table(table: re.Match[str]) -> str:
        return re.sub(r"(?<=<code>)[^<]*(?=</code>)", allow_breaks, table[0])

    return re.sub(r"<table>.*?</table>", allow_breaks_of_table, html, flags=re.DOTALL)


def python_page() -> str:
    """Return the reference of every public name of the package."""
    import vanilla_transformer

    names = {name: getattr(vanilla_transformer, name) for name in vanilla_transformer.__all__}
    entries = [f"::: {value.__module__}.{value.__qualname__}" for value in names.values()]
    return (
        "\n\n".join(
            [
                "# Python reference",
                "Every name can be imported from `vanilla_transformer`.",
                *entries,
            ]
        )
        + "\n"
    )


def options_page() -> str:
    """Return all options of a translation, from their declarations, with the places that know each
    one.
    """
    from vanilla_transformer.decoding.options import CONFIG, FLAG, JSON, TranslationOptions

    doors = {FLAG: "flag", JSON: "entry of a request", CONFIG: "entry of a generation config"}
    text = [
        "---\nsearch:\n  boost: 2\n---",
        "# Options of a translation",
        "Each option is a keyword argument of the pipeline: `translate(texts, num_beams=8)`. Many "
        "are also flags of `translate`, `evaluate` and other commands, entries of a request to "
        "`serve`, or of a generation config.",
    ]
    for name, field in TranslationOptions.model_fields.items():
        places = [place for door, place in doors.items() if door in field.metadata]
        if field.description:
            description = (
                f"{field.description} Also: {', '.join(places)}." if places else field.description
            )
            text.append(_definition(name, description, field.default))
    return "\n\n".join(text) + "\n"


def recipe_keys_page() -> str:
    """Return all recipe keys, by section, from their declarations."""
    from vanilla_transformer.extensions.distillation.distillation_arguments import (
        DISTILLATION,
        DistillationArguments,
    )
    from vanilla_transformer.training import recipe as arguments

    text = [
        "---\nsearch:\n  boost: 3\n---",  # a search for a key finds this page first
        "# Recipe keys",
        "Each key of a [recipe](../train_on_your_own_data.md#write-a-recipe) is a flag of `train`, "
        "too. In the YAML file it stands at the top level or in the section under which this page "
        "lists it. Lengths are in tokens and include EOS, unless the key says otherwise.",
    ]
    for section, parts in arguments.SECTIONS.items():
        text += [
            f"## {section}",
            *(_recipe_key(*item) for part in parts for item in part.model_fields.items()),
        ]
    text += [f"## {DISTILLATION}", "Keys of `vanilla-transformer distill` alone."]
    text += [_recipe_key(*item) for item in DistillationArguments.model_fields.items()]
    return "\n\n".join(text) + "\n"


def commands_page() -> str:
    """Return the help text of every command."""
    from vanilla_transformer.cli import COMMANDS, main

    text = ["# Commands", "The help text of each command of `vanilla-transformer`."]
    for name in COMMANDS:
        shown = io.StringIO()
        with redirect_stdout(shown), suppress(SystemExit):
            main([name, "--help_all"])
        text += [f"## {name}", f"```text\n{shown.getvalue()}```"]
    return "\n\n".join(text) + "\n"


def _recipe_key(name: str, field: Any) -> str:
    return _definition(name, field.description, field.default)


def _definition(name: str, description: str, value: Any) -> str:
    """Return a name, its explanation and its default as an entry of a list of definitions."""
    default = "" if value in (None, "", []) else f" Default: `{value}`."
    return f"`{name}`\n:   {description}{default}"
