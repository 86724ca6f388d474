"""Random models and sources for `generate()`, and the library's own search."""

import pytest
import torch

from tests.tiny import tiny_config
from vanilla_transformer import PaperGenerationMixin, VanillaTransformerForConditionalGeneration


def model_of(seed=0, **changes):
    torch.manual_seed(seed)
    config = tiny_config(**{"vocab_size": 40, "init_std": 0.3, "decoder_layers": 2} | changes)
    return VanillaTransformerForConditionalGeneration(config).eval()


def sources(sentences, length, vocab_size=40, left=False):
    """Return random sentences of many lengths, padded to `length`."""
    tokens = torch.randint(3, vocab_size, (sentences, length))
    for row in tokens:
        padding = int(torch.randint(0, length, ()))
        row[:padding] = 0
    return tokens if left else tokens.flip(1)


def generate_by_library(model, *args, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PaperGenerationMixin, "fast_search", None)
        return model.generate(*args, **options)
