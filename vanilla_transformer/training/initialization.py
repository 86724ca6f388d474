"""Start a run from another model: change its layers and its vocabulary, and choose the
tokenizer.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.data.texts import Texts
from vanilla_transformer.data.tokenizer_training import (
    add_recipe_tokens,
    extend_tokenizer,
    hash_tokenizer,
    load_or_train_tokenizer,
)
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.text.languages import find_languages, set_languages, similar_tags
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

from .model_creation import special_token_ids
from .run_arguments import EXTEND, KEEP, REPLACE, Recipe

# A model to start from, and its tokenizer.
InitialModel = tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerBase]
_LAYER = re.compile(r"(model\.(encoder|decoder)\.layers\.)(\d+)(\..+)")


def load_initial_model(recipe: Recipe, texts: Texts, checkpoint: Path | None) -> InitialModel:
    """Return the model that `init_from` names, with the vocabulary that the recipe wants.

    A run resumes without that model, because its checkpoint has all of it, except with LoRA.
    """
    options, size = recipe.fine_tuning, recipe.data.vocab_size
    name = options.init_from
    assert name is not None
    if checkpoint is None or options.lora_rank is not None:
        model, tokenizer = load_converted_model(name)
        model = keep_layers(
            model, {"encoder": options.init_encoder_layers, "decoder": options.init_decoder_layers}
        )
        if (
            "vocab_size" in recipe.given
            and options.init_vocabulary == KEEP
            and size != len(tokenizer)
        ):
            requirement = (
                "`vocab_size` must be the value of the model that `init_from` names, "
                f"{len(tokenizer)}"
            )
            raise UserError(f"{requirement}, got {size}. Leave it out, or set `init_vocabulary`.")
    else:
        model, tokenizer = load_converted_model(checkpoint)
    languages = find_languages(tokenizer)
    if languages is not None and languages.is_forced:
        if any(None in spec.direction for spec in texts.specs):
            raise UserError(
                f"`source_language` and `target_language` must be given for {name}, in the codes "
                "of its tokenizer, such as eng_Latn for NLLB."
            )
        set_languages(model, tokenizer, *texts.specs[0].direction)  # the folder's default
    changed = copy.deepcopy(tokenizer)
    if checkpoint is not None or options.init_vocabulary == REPLACE:
        changed = load_or_train_tokenizer(texts, checkpoint)
    else:
        if options.init_vocabulary == EXTEND:
            changed = extend_tokenizer(tokenizer, texts.sentences(), size)
        add_recipe_tokens(changed, texts)
    if hash_tokenizer(changed) == hash_tokenizer(tokenizer):
        return model, changed
    before, after = (
        [*tags.targets, *tags.sources] if tags else []
        for tags in (languages, find_languages(changed))
    )
    frozen = "embeddings" in (options.freeze or ())
    new = [code for code in after if code not in before]
    if new and (frozen or options.lora_rank is not None):
        option = "freeze: embeddings" if frozen else "lora_rank"
        raise UserError(
            f"`{option}` leaves the tag of the new language {new[0]} untrained. Take it out of the "
            "recipe."
        )
    return replace_vocabulary(model, tokenizer, changed), changed


def load_converted_model(name: str | Path) -> InitialModel:
    """Load a model in float32 and its tokenizer: one of this package, or one that is converted."""
    config = load_config(name)
    if isinstance(config, VanillaTransformerConfig):
        model = load_pretrained(AutoModelForSeq2SeqLM, name, dtype=torch.float32)
        return model, load_tokenizer(name)
    from vanilla_transformer.extensions.conversion.from_transformers import load_converted

    return load_converted(name, config)


def keep_layers(
    model: VanillaTransformerForConditionalGeneration, kept: Mapping[str, Sequence[int] | None]
) -> VanillaTransformerForConditionalGeneration:
    """Return a model with some of the layers, and all other weights.

    Args:
        kept: The layers of `"encoder"` and `"decoder"` to keep, from 0 and in this order; None for
            all.
    """
    numbers = {name: list(layers) for name, layers in kept.items() if layers is not None}
    if not numbers:
        return model
    config = copy.deepcopy(model.config)
    if isinstance(config, VanillaTransformerLongConfig):
        raise UserError(
            "Layers can be kept of models with full attention only. Leave `init_decoder_layers` "
            "out."
        )
    for name, layers in numbers.items():
        count = getattr(config, f"{name}_layers")
        wrong = next((layer for layer in layers if not 0 <= layer < count), None)
        if wrong is not None:
            requirement = (
                f"must name layers from 0 to {count - 1} of the model that `init_from` names"
            )
            raise UserError(f"`init_{name}_layers` {requirement}, got {wrong}.")
        setattr(config, f"{name}_layers", len(layers))
    if "decoder" in numbers and hasattr(config, "alignment_heads"):
        del config.alignment_heads  # which name heads by layers that may be gone
    smaller = type(model)(config)
    weights, kept_weights = model.state_dict(), {}
    for name in smaller.state_dict():
        layer = _LAYER.fullmatch(name)
        former = (
            f"{layer[1]}{numbers[layer[2]][int(layer[3])]}{layer[4]}"
            if layer and layer[2] in numbers
            else name
        )
        kept_weights[name] = weights[former]
    smaller.load_state_dict(kept_weights)
    smaller.generation_config = copy.deepcopy(model.generation_config)
    return smaller.train(model.training)


def replace_vocabulary(
    model: VanillaTransformerForConditionalGeneration,
    old: PreTrainedTokenizerBase,
    new: PreTrainedTokenizerBase,
) -> VanillaTransformerForConditionalGeneration:
    """Return a model for the entries of `new`, whose other weights are the model's.

    An entry that `old` has too keeps its vectors, in the embeddings and in the output projection,
    and its bias. Others get the mean over the pieces into which `old` splits them, and entries
    without pieces the mean over all. The tag of a new language gets the mean over the tags of the
    others, if there are any.
    """
    if model.config.decoder_vocab_size != model.config.vocab_size:
        raise UserError(
            "The vocabulary must be joint to be changed, but the model has one for each language. "
            "Set `init_vocabulary` to keep."
        )
    config = copy.deepcopy(model.config)
    config.vocab_size = config.decoder_vocab_size = len(new)
    known = old.get_vocab()
    vocabulary = new.get_vocab()
    special = special_token_ids(new)
    # `convert_ids_to_tokens` may name added tokens otherwise.
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    sources = [[known[token]] if token in known else _pieces(token, old, new) for token in tokens]
    if not known.items() <= vocabulary.items():  # not the same entries and further ones
        for name, token_id in special.items():
            former = getattr(model.config, name)
            if token_id is not None and former is not None:
                sources[token_id] = [former]
            setattr(config, name, token_id)
    changed = type(model)(config)
    weights = model.state_dict()
    for name, tensor in weights.items():
        if tensor.shape[0] == model.config.vocab_size and (
            "embed_tokens" in name or name.startswith("lm_head")
        ):
            mean = tensor.mean(dim=0)
            weights[name] = torch.stack(
                [tensor[rows].mean(dim=0) if rows else mean for rows in sources]
            )
    changed.load_state_dict(weights)
    changed.generation_config = copy.deepcopy(model.generation_config)
    changed.generation_config.update(**{name: getattr(config, name) for name in special})
    return changed.eval()


def _pieces(token: str, old: Any, new: Any) -> list[int]:
    """Return the entries of `old` that a token of `new` is made from: its pieces, or the tags of
    other languages.
    """
    tags = similar_tags(old, token)
    if tags:
        return tags
    both = (old, new)
    if all(
        isinstance(tokenizer, VanillaTransformerTokenizer) and tokenizer.unk_token is None
        for tokenizer in both
    ):  # of bytes
        return [piece.id for piece in old.backend_tokenizer.model.tokenize(token)]
    text = new.convert_tokens_to_string([token])
    return (
        old(text, add_special_tokens=False)["input_ids"]
        if "\N{REPLACEMENT CHARACTER}" not in text
        else []
    )
