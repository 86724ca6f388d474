"""The tokenizer of a run: loaded where one is named, trained on the corpus where not, and checked either way."""

from collections.abc import Iterable

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer


def prepare_tokenizer(
    texts: Iterable[str], vocab_size: int, name: str | None = None, model: str = "bpe"
) -> PreTrainedTokenizerBase:
    """
    Loads the tokenizer `name`, or trains a joint one of the given model (bpe, unigram or wordpiece) on `texts`, the
    sentences of both sides.

    Raises:
        ValueError: the tokenizer lacks a padding or an EOS token, or there is no such model.
        OSError: there is no such tokenizer.
    """
    if name is None:
        return VanillaTransformerTokenizer.train_from_iterator(texts, vocab_size=vocab_size, model=model)
    tokenizer = AutoTokenizer.from_pretrained(name)
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"The tokenizer {name} must have a `{token}`, it has none. Add one with "
                f"`tokenizer.add_special_tokens({{'{token}': '<…>'}})` and save it."
            )
    return tokenizer


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
