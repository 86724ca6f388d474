"""Create the model of a recipe, with random weights or from another model."""

import copy
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import set_seed
from torch import nn
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.compatibility_vanilla_transformer import classes_by_name
from vanilla_transformer.errors import UserError
from vanilla_transformer.loading.model_names import least_parameters
from vanilla_transformer.machine.memory import total_memory
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.user_input.reasons import first_line

from .averaging import load_weights
from .checkpoint import load_model_weights
from .run_arguments import DROPOUTS, LongArguments, Recipe, given_architecture

ModelClass = type[VanillaTransformerForConditionalGeneration]
BYTES_PER_PARAMETER = 16  # weight, gradient and Adam's two moments in float32
# Tokens. SDPA needs less memory for longer sources: plain products store a score for each pair of
# positions.
_LONGEST_EAGER_SOURCE = 512
# The parameters of each part that `freeze` may name, by expressions over their names.
_FROZEN = {
    "encoder": re.compile(r"model\.encoder\.(?!embed_)"),
    "decoder": re.compile(r"model\.decoder\.(?!embed_)"),
    "embeddings": re.compile(r".*\.embed_(tokens|positions)\."),
}


def create_model(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int,
    checkpoint: Path | None = None,
    initial: VanillaTransformerForConditionalGeneration | None = None,
    mixed_precision: str | None = None,
    model_class: ModelClass | None = None,
) -> VanillaTransformerForConditionalGeneration:
    """Create the recipe's model.

    Args:
        max_source_length: The longest source of the training text, in tokens.
        checkpoint: Load the weights of this folder.
        initial: The model that `init_from` names. Otherwise a model for the vocabulary of
            `tokenizer`, with the paper's decoding, has weights that are drawn from the recipe's
            seed.
        mixed_precision: The accelerator's, by which the fastest attention is chosen.
        model_class: Class of the model; by default the one that the recipe names.
    """
    if model_class is None and (name := recipe.classes.model_class) is not None:
        known = classes_by_name(VanillaTransformerForConditionalGeneration)
        if name not in known:
            requirement = f"`model_class` must be one of {', '.join(known)}"
            raise UserError(f"{requirement}, got {name!r}. Does `user_module` define it?")
        model_class = known[name]
    set_seed(recipe.optimization.seed)
    try:
        if initial is not None:
            model = _prepare_initial_model(
                initial, recipe, max_source_length, model_class or type(initial)
            )
        else:
            model = _create_random_model(recipe, tokenizer, max_source_length, model_class)
    except RuntimeError as error:  # torch has no other type for a CPU without memory
        raise UserError(
            f"The model must fit into memory, but does not: {error} Lower `d_model`, the numbers "
            "of layers or `vocab_size`."
        ) from error
    on_cpu = not torch.accelerator.is_available()
    attention = recipe.optimization.attn_implementation
    if on_cpu and mixed_precision == "bf16" and max_source_length <= _LONGEST_EAGER_SOURCE:
        attention = attention or "eager"  # whose plain products are faster there than SDPA
    if attention is not None and "flash" in attention:
        raise UserError(
            f"`attn_implementation` {attention} cannot train an encoder-decoder: transformers "
            "removes the source's padding from the targets, too. Use sdpa."
        )
    if attention is not None:
        try:
            model.set_attn_implementation(attention)
        except (ImportError, ValueError) as error:
            reason = first_line(error)
            raise UserError(
                f"`attn_implementation` {attention} cannot be used: {reason} Use sdpa."
            ) from error
    if on_cpu:
        replace_dropout(model)
    # Checkpoints of LoRA have merged weights.
    if checkpoint is not None and recipe.fine_tuning.lora_rank is None:
        load_weights(model, load_model_weights(checkpoint))
    # Embeddings include an output projection that is tied to them.
    for name, parameter in model.named_parameters():
        if any(_FROZEN[part].match(name) for part in recipe.fine_tuning.freeze or ()):
            parameter.requires_grad_(False)
    return model


def _prepare_initial_model(
    initial: VanillaTransformerForConditionalGeneration,
    recipe: Recipe,
    max_source_length: int,
    model_class: ModelClass,
) -> VanillaTransformerForConditionalGeneration:
    """Return a model with the same weights and the recipe's dropout.

    Weights that only its class has are random.
    """
    if issubclass(type(initial), model_class):
        model_class = type(initial)
    elif not issubclass(model_class, type(initial)):
        requirement = (
            f"`model_class` must derive from {type(initial).__name__}, the class of the model "
            "that `init_from` names"
        )
        raise UserError(f"{requirement}, got {model_class.__name__}.")
    for name, value in given_architecture(recipe).items():
        former = getattr(initial.config, name, getattr(LongArguments(), name, None))
        if value != former:
            raise UserError(
                f"`{name}` must be the value of the model that `init_from` names, {former!r}, got "
                f"{value!r}. Leave it out of the recipe."
            )
    config = copy.deepcopy(initial.config)
    for name in DROPOUTS:
        setattr(config, name, getattr(recipe.model, name))
    config.max_source_length = max(max_source_length, config.max_source_length or 0)
    model = model_class(config)
    model.load_state_dict(initial.state_dict(), strict=model_class is type(initial))
    model.generation_config = copy.deepcopy(initial.generation_config)
    return model


def _create_random_model(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int,
    model_class: ModelClass | None,
) -> VanillaTransformerForConditionalGeneration:
    """Create the recipe's model with random weights, for the vocabulary of `tokenizer`."""
    fields: dict[str, Any] = {**vars(recipe.model)} | special_token_ids(tokenizer)
    fields |= {"vocab_size": len(tokenizer), "max_source_length": max_source_length}
    # Before the model is allocated; FSDP divides the state by the number of processes.
    needed = BYTES_PER_PARAMETER * least_parameters(SimpleNamespace(**fields))
    memory = total_memory(PartialState().device)
    if not recipe.optimization.fsdp and memory is not None and needed > memory:
        raise UserError(
            f"The model must fit into memory, but its training needs {needed / 2**30:,.1f} GiB or "
            f"more, and there are {memory / 2**30:,.1f} GiB. Lower `d_model`, the numbers of "
            "layers or `vocab_size`."
        )
    if recipe.long == LongArguments():
        model_class = model_class or VanillaTransformerForConditionalGeneration
        return model_class(model_class.config_class(**fields))
    from vanilla_transformer.modeling_vanilla_transformer_long import (
        VanillaTransformerLongForConditionalGeneration,
    )

    model_class = model_class or VanillaTransformerLongForConditionalGeneration
    if not issubclass(model_class, VanillaTransformerLongForConditionalGeneration):
        requirement = (
            "`model_class` must derive from "
            f"{VanillaTransformerLongForConditionalGeneration.__name__}"
        )
        raise UserError(f"{requirement} with the keys of long models, got {model_class.__name__}.")
    return model_class(model_class.config_class(**fields | vars(recipe.long)))


class CPUDropout(nn.Dropout):
    """
    Dropout (section 5.4 of "Attention Is All You Need") with 16 random bits for each feature.

    `nn.Dropout` draws one random number for each feature, one after another. With it a training
    step of a small model takes 11 % longer in float32 and 31 % longer in bf16. Here each draw of 64
    bits decides about four features. The probability is rounded to a multiple of 2⁻¹⁶, and the
    features that are kept are scaled accordingly.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if (
            not (self.training and self.p)
            or hidden_states.device.type != "cpu"
            or torch.compiler.is_compiling()
        ):
            return super().forward(hidden_states)
        features = hidden_states.numel()
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        draws = (
            torch.empty(-(-features // 4), dtype=torch.int64)
            .random_(-(2**63), None)
            .view(torch.int16)
        )
        kept = draws[:features].view(hidden_states.shape) >= dropped - 2**15
        return hidden_states * kept.to(hidden_states.dtype).mul_(2**16 / (2**16 - dropped))


def replace_dropout(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, CPUDropout(child.p).train(child.training))


def special_token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
    """
    Return the special tokens for a configuration.

    The decoder starts with the tokenizer's BOS token, or with padding if it has none (as in
    Marian).
    """
    padding, begin = tokenizer.pad_token_id, tokenizer.bos_token_id
    start = padding if begin is None else begin
    return {
        "pad_token_id": padding,
        "bos_token_id": begin,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": start,
    }
