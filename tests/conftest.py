"""A model and a tokenizer small enough to be built anew for every test."""

import datasets
import pytest
import torch

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
    paper_generation_config,
)

torch.set_num_threads(1)  # models this small gain nothing from more, and beside other processes lose a lot

_SENTENCES = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "Ein Mann schläft.",
    "Zwei Hunde laufen über das grüne Gras.",
]


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory):
    """What tests tokenise is not kept in the user's cache, nor by the processes that they start."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_DATASETS_CACHE", str(folder))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
        yield


@pytest.fixture
def tiny_config() -> VanillaTransformerConfig:
    return VanillaTransformerConfig(
        vocab_size=300,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        init_std=0.5,  # wide enough for different inputs to give different outputs
    )


@pytest.fixture
def tiny_model(tiny_config) -> VanillaTransformerForConditionalGeneration:
    """Random weights, and the paper's decoding with 4 tokens beyond the source."""
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(tiny_config).eval()
    model.generation_config = paper_generation_config(0, 2, 1, max_new_tokens_beyond_source=4)
    return model


@pytest.fixture(scope="session")
def tiny_tokenizer() -> VanillaTransformerTokenizer:
    return VanillaTransformerTokenizer.train_from_iterator(_SENTENCES * 2, vocab_size=300)
