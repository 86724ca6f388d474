"""The tokenizer of a run: loaded where one is named, trained on the corpus where not, and checked either way."""

from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .arguments import DataArguments
from .cache import cached, digest
from .prepare_data import cache_folder, iterate_sentences, read_training_texts
from .tokenized_corpus import tokenizer_key

_FORMAT = 1  # of a cached tokenizer; another number makes all old ones unknown
_MIN_FREQUENCY = 2  # pairs seen more rarely are not merged


def prepare_tokenizer(
    data: DataArguments, name: str | None = None, cache_dir: str | Path | None = None
) -> PreTrainedTokenizerBase:
    """
    The tokenizer of a recipe: the one that it names, or a joint one trained on its text, of which there is one for all
    processes and later starts, since it is cached by what it is made of.

    Args:
        name (`str`): In place of the recipe's `tokenizer`.
        cache_dir (`str`): In place of the recipe's `cache_dir`.

    Raises:
        ValueError: the tokenizer lacks a padding or an EOS token; or processes have trained different ones, since
            they see other files; or as `VanillaTransformerTokenizer.train_from_iterator`.
        OSError: there is no such tokenizer.
    """
    name = name or data.tokenizer
    if name is not None:
        return _load(name)
    tokenizer = _load(str(_trained(data, cache_folder(data, cache_dir))))
    _check_is_that_of_all_processes(tokenizer)
    return tokenizer


def _load(name: str) -> PreTrainedTokenizerBase:
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


def _trained(data: DataArguments, cache_dir: Path) -> Path:
    """The folder of a tokenizer trained on a recipe's text, from the cache where it is there."""
    texts, texts_key = read_training_texts(data, cache_dir)
    options: dict[str, Any] = {
        "vocab_size": data.vocab_size,
        "model": data.tokenizer_model,
        "min_frequency": _MIN_FREQUENCY,
    }
    key = digest(_FORMAT, tokenizers.__version__, texts_key, options)

    def write(folder: Path) -> None:
        VanillaTransformerTokenizer.train_from_iterator(iterate_sentences(texts), **options).save_pretrained(folder)

    return cached(cache_dir, f"tokenizer-{key}", write)


def _check_is_that_of_all_processes(tokenizer: PreTrainedTokenizerBase) -> None:
    """Where processes do not see the same files each may have trained a tokenizer of its own."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    keys = [""] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(keys, tokenizer_key(tokenizer))
    if len(set(keys)) > 1:
        raise ValueError(
            f"All processes must have one tokenizer, got {len(set(keys))} different ones. Give each the same "
            "text, or train a tokenizer first, with train-tokenizer, and name it by --tokenizer."
        )


def special_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    """
    Special tokens for a configuration. The decoder starts with the tokenizer's start symbol, or with padding where it
    has none (as Marian does).
    """
    start = tokenizer.pad_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    return {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": start,
    }


def check_tokenizer_fits(tokenizer: PreTrainedTokenizerBase, config: VanillaTransformerConfig) -> None:
    """
    Raises:
        ValueError: the tokenizer knows tokens that the model has no embedding for, or their special tokens differ.
    """
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"The tokenizer does not fit the model: it has {len(tokenizer)} entries, the model's vocabulary "
            f"{config.vocab_size}. Call `model.resize_token_embeddings({len(tokenizer)})`."
        )
    for field in ("pad_token_id", "eos_token_id"):
        if getattr(tokenizer, field) != getattr(config, field):
            raise ValueError(
                f"The tokenizer does not fit the model: its `{field}` is {getattr(tokenizer, field)}, the model's "
                f"{getattr(config, field)}. Use the tokenizer that was saved with the model."
            )
