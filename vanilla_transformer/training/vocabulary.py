"""Give a model the vocabulary of another tokenizer: known entries keep their vectors, new ones get means of them."""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.tokenizer_training import special_token_ids
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.text.languages import similar_tags
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer


def replace_vocabulary(
    model: VanillaTransformerForConditionalGeneration, old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase
) -> VanillaTransformerForConditionalGeneration:
    """Return a model for the entries of `new`, whose other weights are the model's.

    An entry that `old` has too keeps its vectors, in the embeddings and in the output projection, and its bias. Others
    get the mean over the pieces into which `old` splits them, and entries without pieces the mean over all. The tag of
    a new language gets the mean over the tags of the others, if there are any.

    Raises:
        ValueError: the model has a vocabulary for each language.
    """
    if model.config.decoder_vocab_size != model.config.vocab_size:
        raise ValueError(
            "The vocabulary must be joint to be changed, but the model has one for each language. Set "
            "`init_vocabulary` to keep."
        )
    config = copy.deepcopy(model.config)
    config.vocab_size = config.decoder_vocab_size = len(new)
    known, special = old.get_vocab(), special_token_ids(new)
    tokens = new.convert_ids_to_tokens(range(len(new)))
    sources = [[known[token]] if token in known else _pieces(token, old, new) for token in tokens]
    if not known.items() <= new.get_vocab().items():  # not the same entries and further ones
        for name, token_id in special.items():
            former = getattr(model.config, name)
            if token_id is not None and former is not None:
                sources[token_id] = [former]
            setattr(config, name, token_id)
    changed = type(model)(config)
    entries = model.config.vocab_size
    weights = {
        name: _gather(tensor, sources) if tensor.shape[0] == entries and _is_of_vocabulary(name) else tensor
        for name, tensor in model.state_dict().items()
    }
    changed.load_state_dict(weights)
    changed.generation_config = copy.deepcopy(model.generation_config)
    changed.generation_config.update(**{name: getattr(config, name) for name in special})
    return changed.eval()


def _is_of_vocabulary(name: str) -> bool:
    return "embed_tokens" in name or name.startswith("lm_head")


def _gather(tensor: Tensor, sources: list[list[int]]) -> Tensor:
    """Return the mean over rows of `tensor` for each list of rows; over all rows for an empty list."""
    mean = tensor.mean(dim=0)
    return torch.stack([tensor[rows].mean(dim=0) if rows else mean for rows in sources])


def _pieces(token: str, old: Any, new: Any) -> list[int]:
    """Return the entries of `old` that a token of `new` is made from: its pieces, or the tags of other languages."""
    tags = similar_tags(old, token)
    if tags:
        return tags
    if isinstance(old, VanillaTransformerTokenizer) and isinstance(new, VanillaTransformerTokenizer):
        return [piece.id for piece in old.backend_tokenizer.model.tokenize(token)]
    text = new.convert_tokens_to_string([token])
    return old(text, add_special_tokens=False)["input_ids"] if "\N{REPLACEMENT CHARACTER}" not in text else []


__all__ = ["replace_vocabulary"]
