"""Keep some layers of a model, with which a student starts from its teacher."""

import copy
import re
from collections.abc import Mapping, Sequence

from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

_LAYER = re.compile(r"(model\.(encoder|decoder)\.layers\.)(\d+)(\..+)")


def keep_layers(
    model: VanillaTransformerForConditionalGeneration, kept: Mapping[str, Sequence[int] | None]
) -> VanillaTransformerForConditionalGeneration:
    """Return a model with some of the layers, and all other weights.

    Args:
        kept: The layers of `"encoder"` and `"decoder"` to keep, from 0 and in this order; None for all.

    Raises:
        ValueError: the model has no such layer, or its layers are of several types.
    """
    numbers = {name: list(layers) for name, layers in kept.items() if layers is not None}
    if not numbers:
        return model
    config = copy.deepcopy(model.config)
    if isinstance(config, VanillaTransformerLongConfig):
        raise ValueError("Layers can be kept of models with full attention only. Leave `init_decoder_layers` out.")
    for name, layers in numbers.items():
        count = getattr(config, f"{name}_layers")
        wrong = next((layer for layer in layers if not 0 <= layer < count), None)
        if wrong is not None:
            rule = f"must name layers from 0 to {count - 1} of the model that `init_from` names"
            raise ValueError(f"`init_{name}_layers` {rule}, got {wrong}.")
        setattr(config, f"{name}_layers", len(layers))
    if "decoder" in numbers and hasattr(config, "alignment_heads"):
        del config.alignment_heads  # which name heads by layers that may be gone
    smaller = type(model)(config)
    weights = model.state_dict()
    smaller.load_state_dict({name: weights[_former_name(name, numbers)] for name in smaller.state_dict()})
    smaller.generation_config = copy.deepcopy(model.generation_config)
    return smaller.train(model.training)


def _former_name(name: str, numbers: Mapping[str, Sequence[int]]) -> str:
    """Return the name of a weight in the model with all layers."""
    found = _LAYER.fullmatch(name)
    if found is None or found[2] not in numbers:
        return name
    return f"{found[1]}{numbers[found[2]][int(found[3])]}{found[4]}"
