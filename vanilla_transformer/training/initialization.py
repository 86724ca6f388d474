"""Start a run from another model: its architecture and weights, and its tokenizer or another one."""

import copy
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.data.prepare_data import Texts
from vanilla_transformer.data.tokenized_corpus import hash_tokenizer
from vanilla_transformer.data.tokenizer_extension import extend_tokenizer
from vanilla_transformer.data.tokenizer_training import add_recipe_tokens, load_or_train_tokenizer
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained, load_tokenizer
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.text.languages import Languages, find_languages, set_languages

from .arguments import Recipe
from .layer_selection import keep_layers
from .run_arguments import EXTEND, REPLACE
from .vocabulary import replace_vocabulary

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


def load_initial_model(
    recipe: Recipe, texts: Texts, checkpoint: Path | None, load_model: ModelLoader
) -> InitialModel | None:
    """Return the model that `init_from` names, with the vocabulary that the recipe wants, or None.

    A run resumes without that model, because its checkpoint has all of it, except with LoRA.

    Raises:
        ValueError: a tokenizer of many languages does not know the recipe's, or the recipe names none; or the
            vocabulary cannot change as the recipe wants.
    """
    name = recipe.fine_tuning.init_from
    if name is None:
        return None
    if checkpoint is None or recipe.fine_tuning.lora_rank is not None:
        model, tokenizer = load_model(name)
        kept = {side: getattr(recipe.fine_tuning, f"init_{side}_layers") for side in ("encoder", "decoder")}
        model = keep_layers(model, kept)
    else:
        model, tokenizer = load_own_model(checkpoint)
    languages = find_languages(tokenizer)
    if languages is not None and languages.is_forced:
        if any(None in spec.direction for spec in texts.specs):
            raise ValueError(
                f"`source_language` and `target_language` must be given for {name}, in the codes of its tokenizer, "
                "such as eng_Latn for NLLB."
            )
        set_languages(model, tokenizer, *texts.specs[0].direction)  # the folder's default
    changed = _create_tokenizer(recipe, texts, tokenizer, checkpoint)
    _check_new_tags(recipe, languages, find_languages(changed))
    if hash_tokenizer(changed) != hash_tokenizer(tokenizer):
        model = replace_vocabulary(model, tokenizer, changed)
    return model, changed


def _check_new_tags(recipe: Recipe, before: Languages | None, after: Languages | None) -> None:
    """Refuse new tags of languages where the vectors of tokens are not trained."""
    known = set() if before is None else {*before.targets, *before.sources}
    new = [] if after is None else [code for code in (*after.targets, *after.sources) if code not in known]
    frozen = "embeddings" in (recipe.fine_tuning.freeze or ())
    if new and (frozen or recipe.fine_tuning.lora_rank is not None):
        option = "freeze: embeddings" if frozen else "lora_rank"
        raise ValueError(
            f"`{option}` leaves the tag of the new language {new[0]} untrained. Take it out of the recipe."
        )


def _create_tokenizer(
    recipe: Recipe, texts: Texts, tokenizer: PreTrainedTokenizerBase, checkpoint: Path | None
) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the run, given the one of the model that it starts from."""
    if checkpoint is not None or recipe.fine_tuning.init_vocabulary == REPLACE:
        return load_or_train_tokenizer(texts, checkpoint)
    changed = copy.deepcopy(tokenizer)
    if recipe.fine_tuning.init_vocabulary == EXTEND:
        changed = extend_tokenizer(tokenizer, texts.sentences(), recipe.data.vocab_size)
    add_recipe_tokens(changed, texts)
    return changed
