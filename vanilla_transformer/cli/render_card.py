"""Write the model card of a trained model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import vanilla_transformer
from vanilla_transformer.resources import find_facts, resource_folder

from .arguments import parse, require_one_model


@dataclass
class CardArguments:
    """Flags of `render-card`."""

    facts: str = field(metadata={"help": "YAML file of facts, or the name of a packaged one, such as multi30k_en_de."})
    template: str | None = field(default=None, metadata={"help": "Jinja template; by default the package's own."})
    repo_id: str | None = field(default=None, metadata={"help": "Hub name to show in the usage examples: user/name."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        CardArguments, arguments, "render-card FOLDER --facts FILE.yaml [--flags]", {"FOLDER": "Folder of the model."}
    )
    folder = Path(require_one_model(words))
    from vanilla_transformer.publishing.card import read_facts, render_card

    template = options.template or resource_folder("model_card") / "template.md"
    facts, version = read_facts(find_facts(options.facts)), vanilla_transformer.__version__
    card = render_card(folder, facts, template, version, location=options.repo_id)
    card.save(folder / "README.md")
    print(f"The card is in {folder / 'README.md'}.")
