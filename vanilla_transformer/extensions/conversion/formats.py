"""How a format of another toolkit is declared, and the one way in which a model is converted.

A new format is a module with its options, its fields and a `Format`, a table of `weight_names`, and
an entry of `READERS`.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.user_input.reasons import Reasons

from .common import (
    PARSER_ERRORS,
    ForeignWeights,
    build_model,
    check_supported,
    load_model,
    rename,
)
from .weight_names import Names

# From sentences to token ids, or of both sides to texts
Translator = Callable[[Sequence[str]], list[Any]]
Options = Mapping[str, Any]


class ConvertedModel(NamedTuple):
    """A model of another toolkit as one of this package.

    Attributes:
        original: The model before its conversion, or a translator that runs it, to compare with.
            None if neither can run here.
    """

    model: VanillaTransformerForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    original: PreTrainedModel | Translator | None = None


class Checkpoint(NamedTuple):
    """The contents of a model of another toolkit.

    Attributes:
        options, weights: By the names of the toolkit.
        tokens: Tokens of source and target, in the order of their ids.
        build_tokenizer: Returns the tokenizer of both languages. It is called once the options are
            known to have a counterpart.
        original: The model itself, if the toolkit is transformers.
    """

    options: Options
    weights: Mapping[str, torch.Tensor | np.ndarray]
    tokens: tuple[Sequence[str], Sequence[str]] = ((), ())
    build_tokenizer: Callable[[], PreTrainedTokenizerBase] | None = None
    original: PreTrainedModel | None = None


class Format(NamedTuple):
    """A format of another toolkit.

    Attributes:
        toolkit: Its name, for errors.
        read: Returns a checkpoint, given its path or name and perhaps two languages.
        reasons: Returns why this package might not represent a checkpoint, and whether each
            applies.
        fields: Returns the fields of our configuration.
        search: Returns the settings by which the toolkit translates.
        find: Returns the tensor for one of our parameters, given its name, its initial value and
            the weights.
        unused: A regular expression of the names of weights that our model does not need.
        build_original: Returns what the converted model is compared with.
    """

    toolkit: str
    read: Callable[..., Checkpoint]
    reasons: Callable[[Checkpoint], dict[str, bool]]
    fields: Callable[[Checkpoint], Options]
    search: Callable[[Checkpoint, VanillaTransformerConfig], GenerationConfig]
    find: Callable[
        [Checkpoint, VanillaTransformerConfig, str, torch.Tensor, ForeignWeights], torch.Tensor
    ]
    unused: str = ""
    build_original: Callable[
        [Checkpoint, VanillaTransformerForConditionalGeneration], PreTrainedModel | None
    ] = lambda checkpoint, model: checkpoint.original


def convert(form: Format, source: str | Path, **languages: Sequence[str]) -> ConvertedModel:
    """Return a model of another toolkit, given its path or name, as one of this package."""
    checkpoint = form.read(source, **languages)
    model = convert_checkpoint(form, checkpoint)
    assert checkpoint.build_tokenizer is not None
    original = form.build_original(checkpoint, model)
    return ConvertedModel(model, checkpoint.build_tokenizer(), original)


def convert_checkpoint(
    form: Format, checkpoint: Checkpoint
) -> VanillaTransformerForConditionalGeneration:
    """Return the model of a checkpoint, or refuse it with all reasons that its options and its
    weights give.
    """
    with Reasons() as reasons:
        with reasons.collect():
            check_supported("This package", form.reasons(checkpoint))
        # Options without a counterpart may declare no model whose weights can be looked at.
        unknown = PARSER_ERRORS if reasons else ()
        with suppress(*unknown), reasons.collect():
            config = VanillaTransformerConfig(**form.fields(checkpoint))
            find = partial(form.find, checkpoint, config)
            model = build_model(config, checkpoint.weights, find, form.unused)
            model.generation_config = form.search(checkpoint, config)
    return model


def find_renamed(
    names: Names,
    checkpoint: Checkpoint,
    config: VanillaTransformerConfig,
    name: str,
    initial: torch.Tensor,
    weights: ForeignWeights,
) -> torch.Tensor:
    """Return the tensor that a toolkit has by another name, see [`rename`]."""
    return weights.first(rename(name, names))


def special_ids(config: VanillaTransformerConfig) -> dict[str, int | None]:
    """Return the ids of special tokens, for a generation config."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return {name: getattr(config, name) for name in names}


# --- Models of transformers -----------------------------------------------------------------------


def read_library_model(
    model_class: type[PreTrainedModel],
    load_tokenizer: Callable[[str | Path], PreTrainedTokenizerBase],
    name: str | Path,
) -> Checkpoint:
    """Read a model of transformers: a folder, or a name on the Hub."""
    original = load_model(model_class, name)
    build_tokenizer = partial(load_tokenizer, name)
    return library_checkpoint(original)._replace(build_tokenizer=build_tokenizer)


def library_checkpoint(original: PreTrainedModel) -> Checkpoint:
    """Return a model of transformers as a checkpoint. Its options have all of their names."""
    config = original.config
    aliases = {name: getattr(config, name) for name in config.attribute_map}
    weights = {}
    for name, tensor in original.state_dict().items():
        weights[name.removeprefix("model.")] = tensor
    return Checkpoint({**vars(config), **aliases}, weights, original=original)


def library_search(checkpoint: Checkpoint, config: VanillaTransformerConfig) -> GenerationConfig:
    """Return a copy of the settings by which a model of transformers translates."""
    assert checkpoint.original is not None
    return copy.deepcopy(checkpoint.original.generation_config)
