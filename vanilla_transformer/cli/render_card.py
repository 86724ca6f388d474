"""Write the model card of a trained folder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import vanilla_transformer

from .arguments import parse
from .resources import resource


@dataclass
class CardArguments:
    """What the card says beyond what training recorded."""

    facts: str = field(metadata={"help": "YAML file of facts, such as model_card/multi30k_en_de.yaml."})
    template: str | None = field(default=None, metadata={"help": "Jinja template, in place of the package's own."})
    repo_id: str | None = field(default=None, metadata={"help": "Where others will find the model: user/name."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(CardArguments, arguments, "render_card FOLDER --facts FILE.yaml [--flags]")
    if len(words) != 1:
        raise ValueError(f"Name the folder of one model before the flags, got {len(words)} names.")
    from vanilla_transformer.publishing.card import read_facts, render_card

    template = options.template or resource("model_card", "template.md")
    facts, version = read_facts(options.facts), vanilla_transformer.__version__
    card = render_card(words[0], facts, template, version, location=options.repo_id)
    path = Path(words[0]) / "README.md"
    card.save(path)
    print(f"The card is in {path}.")
