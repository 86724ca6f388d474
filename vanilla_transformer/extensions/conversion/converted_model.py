"""The model that a reader of another toolkit returns."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)

# From sentences to token ids, or of both sides to texts
Translator = Callable[[Sequence[str]], list[Any]]


class ConvertedModel(NamedTuple):
    """A model of another toolkit as one of this package.

    Attributes:
        original: The model before its conversion, or a translator that runs it, to compare with.
            None if neither can run here.
    """

    model: VanillaTransformerForConditionalGeneration
    tokenizer: Any
    original: PreTrainedModel | Translator | None = None
