"""Train the tokenizer of a run on its text, or load the one that its recipe names, and check it."""

from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer.file_utils import cached_folder
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .prepare_data import Texts
from .tokenized_corpus import hash_json, hash_tokenizer

_FORMAT = 1  # of a cached tokenizer; another number invalidates all older entries
_MIN_FREQUENCY = 2  # rarer pairs are not merged


def load_or_train_tokenizer(texts: Texts, name: str | Path | None = None) -> PreTrainedTokenizerBase:
    """
    Load the tokenizer that the recipe names, or train a joint one on its text.

    A trained tokenizer is cached by its text and options, so all processes and later runs share it.

    Args:
        name (`str`): Used instead of the recipe's `tokenizer`.

    Raises:
        ValueError: the tokenizer lacks a padding or an EOS token, processes with different files have trained
            different ones, or `VanillaTransformerTokenizer.train_from_iterator` raises it.
        OSError: there is no such tokenizer.
    """
    name = name or texts.data.tokenizer
    if name is not None:
        return _load(name)
    tokenizer = _load(_train_cached(texts))
    _check_same_on_all_processes(tokenizer)
    return tokenizer


def _load(name: str | Path) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise OSError(f"`tokenizer` must be a folder or a Hub name of one, got {name}: {error}") from error
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"The tokenizer {name} must have a `{token}`, it has none. Add one with "
                f"`tokenizer.add_special_tokens({{'{token}': '<…>'}})` and save it."
            )
    return tokenizer


def _train_cached(texts: Texts) -> Path:
    """Return the folder of a tokenizer trained on the text; train it only if the cache does not hold it."""
    data = texts.data
    options: dict[str, Any] = {
        "vocab_size": data.vocab_size,
        "model": data.tokenizer_model,
        "min_frequency": _MIN_FREQUENCY,
    }
    key = hash_json(_FORMAT, tokenizers.__version__, texts.training.key, options)

    def write(folder: Path) -> None:
        VanillaTransformerTokenizer.train_from_iterator(texts.sentences(), **options).save_pretrained(folder)

    return cached_folder(texts.cache_dir, f"tokenizer-{key}", write)


def _check_same_on_all_processes(tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that processes which do not share their files have trained the same tokenizer."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    keys = [""] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(keys, hash_tokenizer(tokenizer))
    if len(set(keys)) > 1:
        raise ValueError(
            f"All processes must have one tokenizer, got {len(set(keys))} different ones. Give each the same "
            "text, or train a tokenizer first, with train-tokenizer, and name it by --tokenizer."
        )


def special_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    """
    Return the special tokens for a configuration.

    The decoder starts with the tokenizer's BOS token, or with padding if it has none (as in Marian).
    """
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": start,
    }
