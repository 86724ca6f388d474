"""Model folders that can be published, and changes to them."""

import json
import shutil
from pathlib import Path

import torch

from tests import tiny
from vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks
from vanilla_transformer.publishing.card import render_card
from vanilla_transformer.publishing.facts import read_facts

CARDS = Path(__file__).parents[1] / "model_card"


def add_card(folder, location=None):
    """Write the card of a model folder, as `render-card` does, and return the folder."""
    card = render_card(
        folder,
        read_facts(CARDS / "demo.yaml"),
        CARDS / "template.md",
        version="1.2.3",
        location=location,
    )
    card.save(folder / "README.md")
    return folder


def write_workplace(folder, repetitions):
    """Write what most commands need: a tiny model with its card, parallel text with three lines for
    each repetition, and the facts of a card.
    """
    add_card(save_model_folder(tiny.tiny_model(), tiny.tiny_tokenizer(), folder / "model"))
    (folder / "a.en").write_text("a b c\nb c d e\nc d\n" * repetitions)
    (folder / "a.de").write_text("A B C\nB C D E\nC D\n" * repetitions)
    shutil.copy(CARDS / "demo.yaml", folder / "facts.yaml")


def change_json(path, **values):
    """Set entries of a JSON file, which need not exist."""
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))


def failed(folder, **options):
    """Return the problems of a folder, by the names of the checks that fail."""
    return {
        result.name: result.detail
        for result in checks.failed_checks(checks.check_folder(folder, **options))
    }


def tiny_classifier():
    torch.manual_seed(0)
    return VanillaTransformerForSequenceClassification(tiny.tiny_encoder_config()).eval()


# How to build a model of each family, and its task.
FAMILIES = {
    "decoder-only": (tiny.tiny_causal_lm, "text-generation"),
    "encoder-only": (tiny.tiny_masked_lm, "fill-mask"),
    "classifier": (tiny_classifier, "text-classification"),
    "long": (tiny.tiny_long_model, "translation"),
    "long decoder-only": (tiny.tiny_long_causal_lm, "text-generation"),
}


def family_folder(family, parent):
    """Save a model of a family of `FAMILIES` with its card."""
    build, _ = FAMILIES[family]
    return add_card(save_model_folder(build(), tiny.tiny_tokenizer(), parent / "model"))
