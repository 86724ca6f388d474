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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"reference/python.md": python_page, "reference/recipe_keys.md": recipe_keys_page}
    for path, write in (pages | {"reference/commands.md": commands_page}).items():
        files.append(File.generated(config, path, content=write()))
    for path, source in ELSEWHERE.items():
        files.append(File.generated(config, path, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links that leave `docs/` lead to the repository."""
    folder = ROOT if page.file.src_uri in ELSEWHERE else (ROOT / "docs" / page.file.src_uri).parent

    def resolve(match: re.Match[str]) -> str:
        path, anchor = match["path"], match["anchor"] or ""
        target = Path(os.path.normpath(folder / path))
        if not target.exists():
            return match[0]  # mkdocs reports it
        if target.is_relative_to(ROOT / "docs"):
            return f"]({os.path.relpath(target, (ROOT / 'docs' / page.file.src_uri).parent)}{anchor})"
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.extra['repository']}/{kind}/main/{target.relative_to(ROOT)}{anchor})"

    return re.sub(r"\]\((?!https?:|#|mailto:)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)", resolve, markdown)


def python_page() -> str:
    """Return the reference of every public name of the package."""
    import vanilla_transformer

    names = {name: getattr(vanilla_transformer, name) for name in vanilla_transformer.__all__}
    entries = [f"::: {value.__module__}.{value.__qualname__}" for value in names.values()]
    return (
        "\n\n".join(["# Python reference", "Every name can be imported from `vanilla_transformer`.", *entries]) + "\n"
    )


def recipe_keys_page() -> str:
    """Return all recipe keys, by section, from their declarations."""
    from vanilla_transformer.extensions.distillation.distillation_arguments import DISTILLATION, DistillationArguments
    from vanilla_transformer.training import recipe as arguments

    text = [
        "---\nsearch:\n  boost: 3\n---",  # a search for a key finds this page first
        "# Recipe keys",
        "Each key of a [recipe](../train_on_your_own_data.md#write-a-recipe) is a flag of `train`, too. In "
        "the YAML file it stands at the top level or in the section under which this page lists it. Lengths "
        "are in tokens and include EOS, unless the key says otherwise.",
    ]
    for section, parts in arguments.SECTIONS.items():
        text += [f"## {section}", *(_definition(*item) for part in parts for item in part.model_fields.items())]
    text += [f"## {DISTILLATION}", "Keys of `vanilla-transformer distill` alone."]
    text += [_definition(*item) for item in DistillationArguments.model_fields.items()]
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


def _definition(name: str, field: Any) -> str:
    """Return a recipe key, its explanation and its default as an entry of a list of definitions."""
    default = "" if field.default in (None, "") else f" Default: `{field.default}`."
    return f"`{name}`\n:   {field.description}{default}"
