"""The other form of a published model, as a `MarianMTModel`, on a branch of its repository."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCard

from vanilla_transformer.decoding.pretrained import load_config
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .staging import CARD_NAME

MARIAN = "marian"  # the branch, and the format


def can_be_marian(folder: Path) -> bool:
    """Return whether `MarianMTModel` can represent a model, which must be of this package's very
    class.
    """
    from vanilla_transformer.extensions.conversion.marian import marian_reasons

    config = load_config(folder)
    is_ours = config.architectures == [VanillaTransformerForConditionalGeneration.__name__]
    return is_ours and not any(marian_reasons(config).values())


def write_marian(staged: Path, folder: Path, repo_id: str, sentences: Sequence[str]) -> Path:
    """Write the model as a `MarianMTModel`, with its license and a short card that has the metadata
    of the other.
    """
    from vanilla_transformer.extensions.conversion import WRITERS

    WRITERS[MARIAN](staged, folder, sentences)
    for path in staged.glob("LICENSE"):
        shutil.copy(path, folder)
    card = ModelCard.load(staged / CARD_NAME)
    card.text = f"# {repo_id} as a MarianMTModel\n\nThe branch `main` has the card of this model.\n"
    card.save(folder / CARD_NAME)
    return folder
