"""Create the accelerator and the model of a recipe."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedDataParallelKwargs, patch_environment, set_seed
from torch import nn
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.device_utils import total_memory
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.user_input import least_parameters

from .averaging import load_weights
from .checkpoint import load_model_weights
from .compilation import check_compiler
from .fine_tuning import freeze, prepare_initial_model
from .mixed_precision import resolve_mixed_precision
from .process_group import connect_processes
from .run_arguments import PADDING, LongArguments, Recipe

ModelClass = type[VanillaTransformerForConditionalGeneration]
BYTES_PER_PARAMETER = 16  # weight, gradient and Adam's two moments in float32
# Tokens. SDPA needs less memory for longer sources: plain products store a score for each pair of positions.
_LONGEST_EAGER_SOURCE = 512
_UNIT_COMPILED = 8  # tokens: kernels for GPUs read eight values of two bytes at a time

# Set by `accelerate launch`. Training shards by itself (see `shard_model`), so Accelerate must not.
_WITHOUT_PLUGINS = {"ACCELERATE_USE_FSDP": "false"}


def create_accelerator(recipe: Recipe) -> Accelerator:
    """Create Accelerate's view of devices, processes, precision, compilation and trackers.

    Raises:
        ValueError: the recipe asks for fp16 on a CPU, for `fsdp` without several processes, or for `compile` without
            a compiler; or it was read for another number of processes.
    """
    options, output = recipe.optimization, recipe.output
    on_cpu = _on_cpu()
    if options.mixed_precision == "fp16" and on_cpu:  # Accelerate would silently train in float32
        raise ValueError("`mixed_precision` fp16 needs a GPU, got a CPU. Use bf16, or leave it out.")
    if options.compile:
        check_compiler()
    if options.fsdp and "RANK" not in os.environ:
        raise ValueError(
            "`fsdp` needs several processes, got one that was not launched by torchrun. Start training with "
            "`torchrun --nproc_per_node 2 scripts/train.py …`, or leave `fsdp` out."
        )
    connect_processes()
    with patch_environment(**_WITHOUT_PLUGINS):
        process = PartialState(cpu=on_cpu)  # with the device of this process
        accelerator = Accelerator(
            cpu=on_cpu,  # without it Accelerate ignores the other CPU processes of `torchrun`
            mixed_precision=resolve_mixed_precision(options.mixed_precision, process),
            log_with=output.report_to.split(",") if output.report_to else None,
            project_dir=output.output_dir,
            # Gradients are reduced where they are, without a copy.
            kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
        )
    batches, total = accelerator.num_processes * options.gradient_accumulation_steps, recipe.data.tokens_per_step
    if total is not None and recipe.data.max_tokens != total // batches:
        raise ValueError(
            f"A recipe with `tokens_per_step` must be read in each process of the run, got one that was read before "
            f"{accelerator.num_processes} processes started. Call `parse_recipe` in the function that trains."
        )
    return accelerator


def choose_padding(given: int | None, before: Mapping[str, Any], compiled: bool) -> int:
    """Return the number whose multiples are the lengths of batches: the given one, or else that of the run to resume.

    A new run without one has 8 tokens if it is compiled, otherwise 1.

    Args:
        given: `pad_to_multiple_of` of the recipe.
        before: The flat recipe of the run to resume, as its checkpoint holds it; empty without one.
        compiled: Whether the layers are compiled.
    """
    return given or before.get(PADDING) or (_UNIT_COMPILED if compiled else 1)


def create_model(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int,
    checkpoint: Path | None = None,
    initial: VanillaTransformerForConditionalGeneration | None = None,
    mixed_precision: str | None = None,
    model_class: ModelClass = VanillaTransformerForConditionalGeneration,
) -> VanillaTransformerForConditionalGeneration:
    """Create the recipe's model.

    Args:
        max_source_length: The longest source of the training text, in tokens.
        checkpoint: Load the weights of this folder.
        initial: The model that `init_from` names. Otherwise a model for the vocabulary of `tokenizer`, with the
            paper's decoding, has weights that are drawn from the recipe's seed.
        mixed_precision: The accelerator's, by which the fastest attention is chosen.
        model_class: Class of a new model without fields of long models.
    """
    set_seed(recipe.optimization.seed)
    try:
        if initial is not None:
            model = prepare_initial_model(initial, recipe, max_source_length)
        else:
            model = _create_random_model(recipe, tokenizer, max_source_length, model_class)
    except RuntimeError as error:  # torch has no other type for a CPU without memory
        raise ValueError(
            f"The model must fit into memory, but does not: {error} Lower `d_model`, the numbers of layers or "
            "`vocab_size`."
        ) from error
    attention = recipe.optimization.attn_implementation or _default_attention(mixed_precision, max_source_length)
    if attention is not None:
        _set_attention(model, attention)
    if _on_cpu():
        replace_dropout(model)
    if checkpoint is not None and recipe.fine_tuning.lora_rank is None:  # whose checkpoints have merged weights
        load_weights(model, load_model_weights(checkpoint))
    freeze(model, recipe.fine_tuning.freeze or ())
    return model


def _on_cpu() -> bool:
    return not torch.accelerator.is_available()


def _set_attention(model: VanillaTransformerForConditionalGeneration, attention: str) -> None:
    """Choose the attention implementation.

    Raises:
        ValueError: the implementation is unknown or not installed, or cannot train this model.
    """
    if "flash" in attention:
        raise ValueError(
            f"`attn_implementation` {attention} cannot train an encoder-decoder: transformers removes the source's "
            "padding from the targets, too. Use sdpa."
        )
    try:
        model.set_attn_implementation(attention)
    except (ImportError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"`attn_implementation` {attention} cannot be used: {reason} Use sdpa.") from error


def _default_attention(mixed_precision: str | None, max_source_length: int) -> str | None:
    """Return "eager" where its plain products are faster than SDPA: for sentences in bf16 on a CPU."""
    return "eager" if _on_cpu() and mixed_precision == "bf16" and max_source_length <= _LONGEST_EAGER_SOURCE else None


def _create_random_model(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, max_source_length: int, model_class: ModelClass
) -> VanillaTransformerForConditionalGeneration:
    """Create the recipe's model with random weights, for the vocabulary of `tokenizer`."""
    from vanilla_transformer.data.tokenizer_training import special_token_ids

    fields: dict[str, Any] = asdict(recipe.model) | special_token_ids(tokenizer)
    fields |= {"vocab_size": len(tokenizer), "max_source_length": max_source_length}
    if not recipe.optimization.fsdp:  # which divides the state by the number of processes
        _check_memory(least_parameters(SimpleNamespace(**fields)))
    return _create_model(fields, recipe.long, model_class)


def _check_memory(parameters: int) -> None:
    """Refuse a model whose weights, gradients and moments of Adam do not fit, before they are allocated.

    Args:
        parameters: Their number, at least.
    """
    needed, found = BYTES_PER_PARAMETER * parameters, total_memory(PartialState().device)
    if found is not None and needed > found:
        raise ValueError(
            f"The model must fit into memory, but its training needs {needed / 2**30:,.1f} GiB or more, and there are "
            f"{found / 2**30:,.1f} GiB. Lower `d_model`, the numbers of layers or `vocab_size`."
        )


def _create_model(
    fields: dict[str, Any], long: Any, model_class: ModelClass
) -> VanillaTransformerForConditionalGeneration:
    if long == LongArguments():
        return model_class(model_class.config_class(**fields))
    fields |= asdict(long)
    from vanilla_transformer.configuration_vanilla_transformer_long import VanillaTransformerLongConfig
    from vanilla_transformer.modeling_vanilla_transformer_long import VanillaTransformerLongForConditionalGeneration

    return VanillaTransformerLongForConditionalGeneration(VanillaTransformerLongConfig(**fields))


class CPUDropout(nn.Dropout):
    """
    Dropout (section 5.4 of "Attention Is All You Need") with 16 random bits for each feature.

    `nn.Dropout` draws one random number for each feature, one after another. With it a training step of a small model
    takes 11 % longer in float32 and 31 % longer in bf16. Here each draw of 64 bits decides about four features. The
    probability is rounded to a multiple of 2⁻¹⁶, and the features that are kept are scaled accordingly.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not (self.training and self.p) or hidden_states.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(hidden_states)
        features, dropped = hidden_states.numel(), min(round(self.p * 2**16), 2**16 - 1)
        draws = torch.empty(-(-features // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        kept = draws[:features].view(hidden_states.shape) >= dropped - 2**15
        return hidden_states * kept.to(hidden_states.dtype).mul_(2**16 / (2**16 - dropped))


def replace_dropout(model: nn.Module) -> None:
    """Replace every `nn.Dropout` of a model by a `CPUDropout`."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, CPUDropout(child.p).train(child.training))
