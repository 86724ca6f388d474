"""Change a model for fine-tuning: the recipe's dropout, and parts that stay as they are."""

import copy
import re
from collections.abc import Sequence

from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .architecture_arguments import DROPOUTS
from .arguments import Recipe, given_architecture

# The parameters of each part that `freeze` may name, by expressions over their names.
_FROZEN = {
    "encoder": re.compile(r"model\.encoder\.(?!embed_)"),
    "decoder": re.compile(r"model\.decoder\.(?!embed_)"),
    "embeddings": re.compile(r".*\.embed_(tokens|positions)\."),
}


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
