"""Low-rank adapters (Hu et al., 2021), by peft."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import nn

from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

from .checkpoint import StateDict

# All projections of attention and feed-forward layers. peft merges no adapters of tied weights.
_TARGETS = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]


class LoraAdapters:
    """The adapters of a model. Creating them puts them into its layers and freezes everything else.

    Args:
        rank: Rank of each adapter; its output is scaled by 2, as if `lora_alpha` were twice the
            rank.
    """

    def __init__(self, model: VanillaTransformerForConditionalGeneration, rank: int):
        with requires_extra("peft", "`lora_rank`"):
            from peft import LoraConfig, get_peft_model
        self._model = get_peft_model(
            model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=_TARGETS)
        )

    def state_dict(self) -> StateDict:
        """Return the tensors of the adapters by their names in the model."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: StateDict) -> None:
        for name, parameter in self.named_parameters():
            parameter.data.copy_(state[name])

    def merge(self, state: StateDict | None = None) -> VanillaTransformerForConditionalGeneration:
        """Return a copy of the model with the adapters added to its weights, which loads without
        peft.

        Args:
            state: The tensors of other adapters, such as of their moving average.
        """
        model = copy.deepcopy(self._model)
        if state is not None:
            model.load_state_dict(state, strict=False)
        merged: Any = model.merge_and_unload()
        return merged

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of the adapters with their names in the model."""
        return (
            (name, parameter)
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad
        )
