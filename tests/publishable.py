"""Model folders that can be published."""

from pathlib import Path

from vanilla_transformer.publishing.card import read_facts, render_card

CARDS = Path(__file__).parents[1] / "model_card"


def add_card(folder, location=None):
    """Write the card of a model folder, as `render-card` does, and return the folder."""
    card = render_card(
        folder, read_facts(CARDS / "demo.yaml"), CARDS / "template.md", version="1.2.3", location=location
    )
    card.save(folder / "README.md")
    return folder
