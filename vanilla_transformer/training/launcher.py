"""Take over the settings of `accelerate launch`: processes, sharding, precision and compilation.

`accelerate launch` passes the file that `accelerate config` writes, and its own flags, in
environment variables, which Accelerate's own plugins read here. Training uses the plugins no
further: `distributed.py` says why.
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
    "DeepSpeed": (
        "DEEPSPEED",
        "Choose FSDP2, which shards as ZeRO does: FSDP with `fsdp_version: 2`.",
    ),
    "Megatron-LM": ("MEGATRON_LM", "Choose FSDP with `fsdp_version: 2`."),
    "tensor, context or sequence parallelism": (
        "PARALLELISM_CONFIG",
        "Leave `parallelism_config` out; FSDP shards over all processes.",
    ),
}


def add_launcher(recipe: Recipe) -> Recipe:
    """Return a recipe with the settings of `accelerate launch`, and what they imply."""
    for what, (name, advice) in _REFUSED.items():
        if parse_flag_from_env(f"ACCELERATE_USE_{name}"):
            raise UserError(f"Training does not use {what}, which {_LAUNCHER} asks for. {advice}")
    # Without mpirun, `accelerate launch` starts only one of several CPU processes.
    by_mpi = any(
        name.endswith(("WORLD_SIZE", "LOCALNRANKS", "_SIZE")) and "MPI" in name
        for name in os.environ
    )
    started_alone = {
        "KMP_AFFINITY",
        "MASTER_PORT",
    } <= os.environ.keys() and "RANK" not in os.environ
    if parse_flag_from_env("ACCELERATE_USE_CPU") and started_alone and not by_mpi:
        raise UserError(
            "Several processes on CPUs must be started by torchrun or mpirun, but accelerate "
            "launch has started one. Use `torchrun --nproc_per_node N scripts/train.py …`, or one "
            "process."
        )
    options = recipe.optimization
    # In this order, since the first one refuses settings.
    sharded = _shards_by_launcher() or options.fsdp
    backend, compiled = TorchDynamoPlugin().backend, options.compile
    setting = f"{_LAUNCHER} has dynamo_backend={backend.value.lower()}"
    if backend not in (DynamoBackend.NO, DynamoBackend.INDUCTOR):
        raise UserError(
            f"Training compiles with inductor, but {setting}. Set `dynamo_backend` to "
            "inductor or no."
        )
    if backend == DynamoBackend.INDUCTOR:
        if compiled is False:
            raise UserError(
                f"`compile` is false in the recipe, but {setting}. Give it once, or the same."
            )
        compiled = True
    precision = parse_choice_from_env("ACCELERATE_MIXED_PRECISION", "no")
    if precision not in ("no", "bf16", "fp16"):
        raise UserError(
            f"`mixed_precision` must be no, bf16 or fp16, but {_LAUNCHER} has {precision}."
        )
    if precision == "no":
        precision = options.mixed_precision
    elif "mixed_precision" in recipe.given and options.mixed_precision not in (AUTO, precision):
        raise UserError(
            f"`mixed_precision` is {options.mixed_precision} in the recipe, but {precision} in "
            f"{_LAUNCHER}. Give it once, or the same."
        )
    recipe = recipe.replace(
        "optimization", fsdp=sharded, compile=compiled, mixed_precision=precision
    )
    if (tokens := recipe.data.tokens_per_step) is None:
        return recipe
    # Variables that are the same with GPUs: torchrun, `accelerate launch` and mpirun set them.
    processes = int(get_cpu_distributed_information().world_size)
    batches = processes * options.gradient_accumulation_steps
    if tokens < batches:
        raise UserError(
            "`tokens_per_step` must be at least the number of batches of a step, processes × "
            f"gradient_accumulation_steps = {batches}, got {tokens}. Raise it."
        )
    return recipe.replace("data", max_tokens=tokens // batches)


def _shards_by_launcher() -> bool:
    """Return whether the launcher asks for FSDP2, in a form that training has."""
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return False
    from torch.distributed.fsdp import CPUOffloadPolicy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    version = os.environ.get("FSDP_VERSION", "1")
    policy = os.environ.get("FSDP_AUTO_WRAP_POLICY")
    others = {}
    if version != "2":
        others[f"fsdp_version={version}"] = (
            "Set `fsdp_version: 2`, or convert the file with `accelerate to-fsdp2`."
        )
    else:
        try:
            plugin = FullyShardedDataParallelPlugin()
        except (ImportError, RuntimeError, ValueError) as error:
            raise UserError(
                f"FSDP cannot be used as {_LAUNCHER} asks for it: {error}. See `accelerate config`."
            ) from error
        if isinstance(plugin.cpu_offload, CPUOffloadPolicy):
            others["fsdp_offload_params=true"] = "Set `fsdp_offload_params: false`."
        if plugin.activation_checkpointing:
            advice = "Set `fsdp_activation_checkpointing: false`, and lower `max_tokens`."
            others["fsdp_activation_checkpointing=true"] = advice
        if policy is not None and plugin.auto_wrap_policy is not transformer_auto_wrap_policy:
            advice = "Set `fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP`."
            others[f"fsdp_auto_wrap_policy={policy}"] = advice
    for setting, advice in others.items():
        raise UserError(
            f"Training shards with FSDP2, one group per layer, but {_LAUNCHER} has {setting}. "
            f"{advice}"
        )
    return True
