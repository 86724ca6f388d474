"""Take over the settings of `accelerate launch`: processes, sharding, precision and compilation.

`accelerate launch` passes the file that `accelerate config` writes, and its own flags, in environment variables, which
Accelerate's own plugins read here. Training uses the plugins no further: `distributed.py` says why.
"""

import os

from accelerate.utils import (
    DynamoBackend,
    FullyShardedDataParallelPlugin,
    TorchDynamoPlugin,
    get_cpu_distributed_information,
    parse_choice_from_env,
    parse_flag_from_env,
)

from vanilla_transformer.errors import UserError

from .distributed import AUTO
from .run_arguments import Recipe

_LAUNCHER = "the configuration of accelerate launch"
# Settings that training has no counterpart of: their variable, and what to do.
_REFUSED = {
    "DeepSpeed": ("DEEPSPEED", "Choose FSDP2, which shards as ZeRO does: FSDP with `fsdp_version: 2`."),
    "Megatron-LM": ("MEGATRON_LM", "Choose FSDP with `fsdp_version: 2`."),
    "tensor, context or sequence parallelism": (
        "PARALLELISM_CONFIG",
        "Leave `parallelism_config` out; FSDP shards over all processes.",
    ),
}


def add_launcher(recipe: Recipe) -> Recipe:
    """Return a recipe with the settings of `accelerate launch`, and what they imply."""
    _check_settings()
    options, plugin = recipe.optimization, _read_fsdp()
    given = options.mixed_precision if "mixed_precision" in recipe.given else None
    precision = _merge_precision(given, _read_mixed_precision()) or options.mixed_precision
    compiled, sharded = _merge_compile(options.compile), options.fsdp or plugin is not None
    recipe = recipe.replace("optimization", mixed_precision=precision, compile=compiled, fsdp=sharded)
    if (tokens := recipe.data.tokens_per_step) is None:
        return recipe
    batches = count_processes() * options.gradient_accumulation_steps
    return recipe.replace("data", max_tokens=_divide_tokens(tokens, batches))


def count_processes() -> int:
    """Return the number of processes of this run, as torchrun, `accelerate launch` or mpirun gives it."""
    return int(get_cpu_distributed_information().world_size)  # variables that are the same with GPUs


def _divide_tokens(tokens: int, batches_per_step: int) -> int:
    """Return the tokens of a batch, of which a step of the whole run has `batches_per_step`."""
    if tokens < batches_per_step:
        raise UserError(
            f"`tokens_per_step` must be at least the number of batches of a step, processes × "
            f"gradient_accumulation_steps = {batches_per_step}, got {tokens}. Raise it."
        )
    return tokens // batches_per_step


def _check_settings() -> None:
    """Refuse settings that training cannot follow."""
    for what, (name, advice) in _REFUSED.items():
        if parse_flag_from_env(f"ACCELERATE_USE_{name}"):
            raise UserError(f"Training does not use {what}, which {_LAUNCHER} asks for. {advice}")
    # Without mpirun, `accelerate launch` starts only one of several CPU processes.
    by_mpi = any(name.endswith(("WORLD_SIZE", "LOCALNRANKS", "_SIZE")) and "MPI" in name for name in os.environ)
    started_alone = {"KMP_AFFINITY", "MASTER_PORT"} <= os.environ.keys() and "RANK" not in os.environ
    if parse_flag_from_env("ACCELERATE_USE_CPU") and started_alone and not by_mpi:
        raise UserError(
            "Several processes on CPUs must be started by torchrun or mpirun, but accelerate launch has started one. "
            "Use `torchrun --nproc_per_node N scripts/train.py …`, or one process."
        )


def _read_fsdp() -> FullyShardedDataParallelPlugin | None:
    """Return Accelerate's plugin for FSDP2 with the settings of the launcher, or None without FSDP."""
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return None
    from torch.distributed.fsdp import CPUOffloadPolicy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    version, policy = os.environ.get("FSDP_VERSION", "1"), os.environ.get("FSDP_AUTO_WRAP_POLICY")
    if version != "2":
        advice = "Set `fsdp_version: 2`, or convert the file with `accelerate to-fsdp2`."
        raise _other_sharding(f"fsdp_version={version}", advice)
    try:
        plugin = FullyShardedDataParallelPlugin()
    except (ImportError, RuntimeError, ValueError) as error:
        raise UserError(
            f"FSDP cannot be used as {_LAUNCHER} asks for it: {error}. See `accelerate config`."
        ) from error
    if isinstance(plugin.cpu_offload, CPUOffloadPolicy):
        raise _other_sharding("fsdp_offload_params=true", "Set `fsdp_offload_params: false`.")
    if plugin.activation_checkpointing:
        advice = "Set `fsdp_activation_checkpointing: false`, and lower `max_tokens`."
        raise _other_sharding("fsdp_activation_checkpointing=true", advice)
    if policy is not None and plugin.auto_wrap_policy is not transformer_auto_wrap_policy:
        advice = "Set `fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP`."
        raise _other_sharding(f"fsdp_auto_wrap_policy={policy}", advice)
    return plugin


def _other_sharding(found: str, advice: str) -> ValueError:
    return UserError(f"Training shards with FSDP2, one group per layer, but {_LAUNCHER} has {found}. {advice}")


def _read_mixed_precision() -> str | None:
    value = parse_choice_from_env("ACCELERATE_MIXED_PRECISION", "no")
    if value not in ("no", "bf16", "fp16"):
        raise UserError(f"`mixed_precision` must be no, bf16 or fp16, but {_LAUNCHER} has {value}.")
    return None if value == "no" else value


def _merge_compile(ours: bool | None) -> bool | None:
    """Return whether to compile, as the recipe or the launcher says; None is auto."""
    backend = TorchDynamoPlugin().backend
    found = f"{_LAUNCHER} has dynamo_backend={backend.value.lower()}"
    if backend not in (DynamoBackend.NO, DynamoBackend.INDUCTOR):
        raise UserError(f"Training compiles with inductor, but {found}. Set `dynamo_backend` to inductor or no.")
    if backend == DynamoBackend.NO:
        return ours
    if ours is False:
        raise UserError(f"`compile` is false in the recipe, but {found}. Give it once, or the same.")
    return True


def _merge_precision(ours: str | None, theirs: str | None) -> str | None:
    """Return the precision that is given; None is none."""
    if ours not in (None, AUTO, theirs) and theirs is not None:
        raise UserError(
            f"`mixed_precision` is {ours} in the recipe, but {theirs} in {_LAUNCHER}. Give it once, or the same."
        )
    return theirs or ours
