"""Model folders that are fit to be published."""

from pathlib import Path

from vanilla_transformer.publishing.card import read_facts, render_card

CARDS = Path(__file__).parents[1] / "model_card"


def add_card(folder, location=None):
    """Renders the card of `folder` in it, as `render-card` does."""
    card = render_card(
        folder, read_facts(CARDS / "demo.yaml"), CARDS / "template.md", version="1.2.3", location=location
    )
    card.save(folder / "README.md")
    return folder
