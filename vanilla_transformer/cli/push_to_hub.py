"""Check a model folder and publish it on the Hugging Face Hub."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vanilla_transformer
from vanilla_transformer.resources import find_facts, resource_folder

from .arguments import parse, read_keys


@dataclass
class PushArguments:
    """Flags of `push-to-hub`."""

    facts: str | None = field(
        default=None,
        metadata={
            "help": "YAML file of facts to render the card from, or the name of a packaged one; by default the "
            "folder's own card is used."
        },
    )
    private: bool = field(default=False, metadata={"help": "Create a private repository."})
    revision: str | None = field(
        default=None, metadata={"help": "Branch to push to, created if missing; by default main."}
    )
    message: str | None = field(default=None, metadata={"help": "Commit message."})
    token_file: str | None = field(
        default=None,
        metadata={
            "help": "File with the access token; by default the variable HF_TOKEN or the token of `hf auth login`."
        },
    )
    trust_remote_code: bool = field(
        default=False,
        metadata={"help": "Run and publish the folder's own code even if it differs from this package's."},
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        PushArguments,
        arguments,
        "push-to-hub FOLDER USER/NAME [--flags]",
        {"FOLDER": "Folder of the model.", "USER/NAME": "Its place on the Hugging Face Hub."},
    )
    if len(words) != 2:
        raise ValueError(f"Name a model folder and its place on the Hub (user/name), got {len(words)} names.")
    from vanilla_transformer.publishing.checks import format_results
    from vanilla_transformer.publishing.push import push_folder

    folder, repo_id = words
    url = push_folder(
        folder,
        repo_id,
        card=None if options.facts is None else _card_renderer(folder, repo_id, options.facts),
        private=options.private,
        revision=options.revision,
        message=options.message,
        token=None if options.token_file is None else _read_token(options.token_file),
        trust_remote_code=options.trust_remote_code,
        report=lambda results: print(format_results(results)),
    )
    print(f"Published: {url}")


def _read_token(path: str) -> str:
    keys = read_keys(path)
    if len(keys) != 1:
        raise ValueError(f"{path} must hold one access token, got {len(keys)} lines.")
    return keys[0]


def _card_renderer(run: str, repo_id: str, facts_file: str) -> Callable[[Path], Any]:
    """Return a function that renders the card of a staged copy from the records of the folder `run`."""
    from vanilla_transformer.publishing.card import read_facts, render_card

    facts, template = read_facts(find_facts(facts_file)), resource_folder("model_card") / "template.md"
    return lambda staged: render_card(
        staged, facts, template, vanilla_transformer.__version__, run=run, location=repo_id
    )
