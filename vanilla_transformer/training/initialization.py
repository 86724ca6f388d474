"""Start a run from another model: its architecture, weights and tokenizer, and the parts that stay as they are."""

import copy
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.inference.languages import has_languages, set_languages
from vanilla_transformer.inference.pretrained import load_config, load_pretrained, load_tokenizer
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import DROPOUTS, Recipe, given_architecture

# The parameters of each part that `freeze` may name, by expressions over their names.
_FROZEN = {
    "encoder": re.compile(r"model\.encoder\.(?!embed_)"),
    "decoder": re.compile(r"model\.decoder\.(?!embed_)"),
    "embeddings": re.compile(r".*\.embed_(tokens|positions)\."),
}


# A model to start from, and its tokenizer.
InitialModel = tuple[VanillaTransformerForConditionalGeneration, PreTrainedTokenizerBase]
# Loads the model and the tokenizer of a folder, or of a name on the Hub, as a model of this package.
ModelLoader = Callable[[str | Path], InitialModel]


def load_own_model(name: str | Path) -> InitialModel:
    """Load a translation model of this package in float32.

    Raises:
        ValueError: the model is of another type.
        OSError: there is no such model.
    """
    config = load_config(name)
    if not isinstance(config, VanillaTransformerConfig):
        raise ValueError(
            f"`init_from` must be a translation model of this package, got one of type {config.model_type!r}. Convert "
            "it first, with vanilla-transformer convert."
        )
    return load_pretrained(AutoModelForSeq2SeqLM, name, dtype=torch.float32), load_tokenizer(name)


def load_initial_model(recipe: Recipe, checkpoint: Path | None, load_model: ModelLoader) -> InitialModel | None:
    """Return the model that `init_from` names, or None.

    A run resumes without that model, because its checkpoint has all of it, except with LoRA.

    Raises:
        ValueError: a tokenizer of many languages does not know the recipe's, or the recipe names none.
    """
    name, languages = recipe.fine_tuning.init_from, recipe.data.languages
    if name is None:
        return None
    if checkpoint is None or recipe.fine_tuning.lora_rank is not None:
        model, tokenizer = load_model(name)
    else:
        model, tokenizer = load_own_model(checkpoint)
    if has_languages(tokenizer):
        if None in languages.values():
            raise ValueError(
                f"`source_language` and `target_language` must be given for {name}, in the codes of its tokenizer, "
                "such as eng_Latn for NLLB."
            )
        set_languages(model, tokenizer, languages["source_language"], languages["target_language"])
    return model, tokenizer


def prepare_initial_model(
    initial: VanillaTransformerForConditionalGeneration, recipe: Recipe, max_source_length: int
) -> VanillaTransformerForConditionalGeneration:
    """Return a model with the same weights and the recipe's dropout.

    Args:
        max_source_length: The longest source of the training text, in tokens.

    Raises:
        ValueError: the recipe has another architecture; the text names the first key that differs.
    """
    for name, value in given_architecture(recipe).items():
        found = getattr(initial.config, name, None)
        if value != found:
            raise ValueError(
                f"`{name}` must be the value of the model that `init_from` names, {found!r}, got {value!r}. Leave it "
                "out of the recipe."
            )
    config = copy.deepcopy(initial.config)
    for name in DROPOUTS:
        setattr(config, name, getattr(recipe.model, name))
    config.max_source_length = max(max_source_length, config.max_source_length or 0)
    model = type(initial)(config)
    model.load_state_dict(initial.state_dict())
    model.generation_config = copy.deepcopy(initial.generation_config)
    return model


def freeze(model: VanillaTransformerForConditionalGeneration, parts: Sequence[str]) -> None:
    """Exclude parts of a model from training. Embeddings include an output projection that is tied to them."""
    for name, parameter in model.named_parameters():
        if any(_FROZEN[part].match(name) for part in parts):
            parameter.requires_grad_(False)
