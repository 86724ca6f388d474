"""A model and a tokenizer small enough to be built anew for every test."""

import datasets
import pytest
import torch
from accelerate.state import AcceleratorState
from transformers.utils import logging

from tests.local_hub import running_hub
from tests.publishable import add_card
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
    paper_generation_config,
)
from vanilla_transformer.training.checkpoint import save_model_folder

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


@pytest.fixture
def corpus(tmp_path):
    """Sentences of letters; the translation is in capitals."""
    sentences = [" ".join("abcde"[(number * step) % 5] for step in range(1, 3 + number % 4)) for number in range(40)]
    for name, lines in (("train", sentences), ("validation", sentences[:5])):
        (tmp_path / f"{name}.a").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.b").write_text("\n".join(lines).upper() + "\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _reset_accelerate():
    """Reset Accelerate, which keeps the first precision that a process asked for."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(autouse=True)
def _enable_progress_bars():
    """Undo what a command switched off for its whole process."""
    yield
    logging.enable_progress_bar()


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    """A complete folder: weights, configurations, tokenizer, code and card."""
    return add_card(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.fixture
def hub():
    with running_hub() as hub:
        yield hub
