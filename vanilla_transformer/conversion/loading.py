"""Models of transformers to convert from: of the right type and whole, or an error that says what is wrong."""

from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel

Model = TypeVar("Model", bound=PreTrainedModel)


def load_model(kind: type[Model], name: str | Path, **options: Any) -> Model:
    """
    A model in float32, for inference.

    Args:
        kind: Its class.
        name: A folder, or a name on the Hub.
        options: As `from_pretrained` takes them.

    Raises:
        ValueError: the model is of another type.
        OSError: there is no such model, or its weights are cut off or damaged.
    """
    config, wanted = AutoConfig.from_pretrained(name), kind.config_class.model_type
    if config.model_type != wanted:
        raise ValueError(f"{name} must be a model of the type {wanted!r}, got one of the type {config.model_type!r}.")
    try:
        return kind.from_pretrained(name, dtype=torch.float32, **options).eval()
    except SafetensorError as error:
        raise OSError(
            f"The weights of {name} are cut off or damaged ({error}). Copy or download them again."
        ) from error
