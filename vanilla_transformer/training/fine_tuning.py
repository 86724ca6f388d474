"""Change a model for fine-tuning: the recipe's dropout, parts that stay as they are, and low-rank adapters."""

import copy
import re
from collections.abc import Sequence
from typing import Any

from torch import nn

from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .checkpoint import StateDict
from .run_arguments import DROPOUTS, Recipe, given_architecture

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


# All projections of attention and feed-forward layers. peft merges no adapters of tied weights.
_TARGETS = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]


class LoraAdapters:
    """The adapters of a model. Creating them puts them into its layers and freezes everything else.

    Args:
        rank: Of each adapter; its output is scaled by 2, as if `lora_alpha` were twice the rank.

    Raises:
        OSError: peft is not installed.
    """

    def __init__(self, model: VanillaTransformerForConditionalGeneration, rank: int):
        with requires_extra("peft", "`lora_rank`"):
            from peft import LoraConfig, get_peft_model
        self._model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_TARGETS))

    def state_dict(self) -> StateDict:
        """Return the tensors of the adapters by their names in the model."""
        return {name: each.detach() for name, each in self.parameters().items()}

    def load_state_dict(self, state: StateDict) -> None:
        """Copy the tensors of [`state_dict`] into the adapters."""
        for name, parameter in self.parameters().items():
            parameter.data.copy_(state[name])

    def merge(self, state: StateDict | None = None) -> VanillaTransformerForConditionalGeneration:
        """Return a copy of the model with the adapters added to its weights, which loads without peft.

        Args:
            state: The tensors of other adapters, such as of their moving average.
        """
        model = copy.deepcopy(self._model)
        if state is not None:
            model.load_state_dict(state, strict=False)
        merged: Any = model.merge_and_unload()
        return merged

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters of the adapters by their names in the model."""
        return {name: each for name, each in self._model.named_parameters() if each.requires_grad}
