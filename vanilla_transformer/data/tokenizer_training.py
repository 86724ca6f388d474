"""Train the tokenizer of a run on its text, or load the one that its recipe names, and check it."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer.file_utils import cached_folder, hash_file
from vanilla_transformer.text.languages import add_language_tags, find_languages
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .arguments import AGREEMENT, BOTH_TAGS, NO_TAGS, TARGET_TAGS, augmentations, tagged_sides
from .augmentation import add_augmentation_tokens
from .prepare_data import Texts
from .tokenized_corpus import hash_json, hash_tokenizer

_FORMAT = 2  # of a cached tokenizer; another number invalidates all older entries

# The function by which vocabularies were trained before the class had this method.
train_tokenizer = VanillaTransformerTokenizer.train_from_iterator


def load_or_train_tokenizer(texts: Texts, name: str | Path | None = None) -> PreTrainedTokenizerBase:
    """
    Load the tokenizer that the recipe names, or train a joint one on its text.

    A trained tokenizer is cached by its text and options, so all processes and later runs share it. The tokens of
    augmented text are added to either.

    Args:
        name (`str`): Used instead of the recipe's `tokenizer`.

    Raises:
        ValueError: the tokenizer lacks a padding or an EOS token, processes with different files have trained
            different ones, or `train_tokenizer` raises it.
        OSError: there is no such tokenizer.
    """
    name = name or texts.data.tokenizer
    tokenizer = _load(_train_cached(texts) if name is None else name)
    add_recipe_tokens(tokenizer, texts)
    if name is None:
        _check_same_on_all_processes(tokenizer)
    return tokenizer


def add_recipe_tokens(tokenizer: PreTrainedTokenizerBase, texts: Texts) -> None:
    """Add the tokens of augmented text, the tags of sources and the tags of languages that the vocabulary lacks.

    A tokenizer that has tags gets the ones of further languages, unless the recipe has another rule.

    Raises:
        ValueError: a corpus has no language to be tagged, or the tokenizer can have no tags.
    """
    add_augmentation_tokens(tokenizer, augmentations(texts.data))
    tags = [tag for tag in texts.data.source_tags or () if tag not in tokenizer.get_added_vocab()]
    if tags:
        tokenizer.add_special_tokens({"extra_special_tokens": tags}, replace_extra_special_tokens=False)
    languages, sides = find_languages(tokenizer), tagged_sides(texts.data)
    if languages is not None and texts.data.language_tags is None:
        if languages.is_forced:
            return
        sides = BOTH_TAGS if languages.sources else TARGET_TAGS
    if sides != NO_TAGS:
        add_language_tags(tokenizer, [spec.direction for spec in texts.specs], with_sources=sides == BOTH_TAGS)


def hash_data(texts: Texts) -> dict[str, str]:
    """Return hashes of the text and of the tokenizer that the recipe names, by what they are."""
    name = texts.data.tokenizer
    hashes = {"training text": texts.training.key, "validation text": hash_json(texts.validation)}
    if texts.data.train_alignments not in (None, AGREEMENT):  # which the text decides
        hashes["training alignments"] = hash_file(Path(texts.data.train_alignments))
    if name is not None and Path(name).is_dir():  # one of the Hub may be unreachable when a run resumes
        hashes["tokenizer"] = hash_tokenizer(_load(name))
    return hashes


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
    }
    versions = [tokenizers.__version__, version("sentencepiece")]
    key = hash_json(_FORMAT, versions, texts.training.key, options)

    def write(folder: Path) -> None:
        train_tokenizer(texts.sentences(), **options).save_pretrained(folder)

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
