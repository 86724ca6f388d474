"""Take over the settings of `accelerate launch`: sharding, precision and compilation.

`accelerate launch` passes the file that `accelerate config` writes, and its own flags, in environment variables.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from accelerate.utils import get_cpu_distributed_information

from vanilla_transformer.data.arguments import DataArguments

from .arguments import Recipe
from .mixed_precision import AUTO

logger = logging.getLogger(__name__)

# Tokens: kernels for GPUs read eight values of two bytes at a time.
_UNIT_COMPILED = 8
_LAUNCHER = "the configuration of accelerate launch"
# Settings of FSDP that would change how the model is sharded: the only value that works, and what to do.
_FSDP_SETTINGS = {
    "VERSION": ("2", "Set `fsdp_version: 2`, or convert the file with `accelerate to-fsdp2`."),
    "OFFLOAD_PARAMS": ("false", "Set `fsdp_offload_params: false`."),
    "ACTIVATION_CHECKPOINTING": ("false", "Set `fsdp_activation_checkpointing: false`, and lower `max_tokens`."),
    "AUTO_WRAP_POLICY": ("transformer_based_wrap", "Set `fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP`."),
}
_FSDP_DEFAULTS = {"VERSION": "1", "AUTO_WRAP_POLICY": "transformer_based_wrap"}  # of `accelerate launch`; else false


@dataclass(frozen=True)
class LauncherSettings:
    """The settings of `accelerate launch`; None or False where it has none.

    Attributes:
        plan: How the processes share the model, in words.
    """

    plan: str | None = None
    fsdp: bool = False
    reshard_after_forward: bool = True
    sharded_checkpoints: bool = False
    compile: bool = False
    mixed_precision: str | None = None
    max_grad_norm: float | None = None
    gradient_accumulation_steps: int | None = None


def apply_launcher(recipe: Recipe, environment: Mapping[str, str] = os.environ) -> Recipe:
    """Return the recipe with the settings of `accelerate launch` where the recipe has none, and what they imply.

    Raises:
        ValueError: a setting cannot work, or the recipe has another one; the text names both and what to do.
    """
    settings = read_launcher_settings(environment)
    options = recipe.optimization
    changes: dict[str, Any] = {
        "mixed_precision": _merge_precision(options.mixed_precision, settings.mixed_precision),
        "max_grad_norm": _merge("max_grad_norm", options.max_grad_norm, settings.max_grad_norm),
        "gradient_accumulation_steps": _merge(
            "gradient_accumulation_steps",
            None if options.gradient_accumulation_steps == 1 else options.gradient_accumulation_steps,
            settings.gradient_accumulation_steps,
        )
        or 1,
        "fsdp": options.fsdp or settings.fsdp,
        "fsdp_reshard_after_forward": options.fsdp_reshard_after_forward and settings.reshard_after_forward,
        "compile": options.compile or settings.compile,
    }
    sharded = recipe.output.sharded_checkpoints or settings.sharded_checkpoints
    if settings.plan is not None and environment.get("RANK", "0") == "0":
        logger.info("As accelerate launch asks: %s.", settings.plan)
    batches = count_processes() * changes["gradient_accumulation_steps"]
    unit = recipe.data.pad_to_multiple_of or (_UNIT_COMPILED if changes["compile"] else 1)
    return replace(
        recipe,
        data=replace(recipe.data, pad_to_multiple_of=unit, max_tokens=_find_max_tokens(recipe.data, batches)),
        optimization=replace(options, **changes),
        output=replace(recipe.output, sharded_checkpoints=sharded),
    )


def count_processes() -> int:
    """Return the number of processes of this run, as torchrun, `accelerate launch` or mpirun gives it."""
    return int(get_cpu_distributed_information().world_size)  # variables that are the same with GPUs


def _find_max_tokens(data: DataArguments, batches_per_step: int) -> int:
    if data.tokens_per_step is None:
        return data.max_tokens
    if data.tokens_per_step < batches_per_step:
        raise ValueError(
            f"`tokens_per_step` must be at least the number of batches of a step, processes × "
            f"gradient_accumulation_steps = {batches_per_step}, got {data.tokens_per_step}. Raise it."
        )
    return data.tokens_per_step // batches_per_step


def read_launcher_settings(environment: Mapping[str, str]) -> LauncherSettings:
    """Read the variables of `accelerate launch`.

    Raises:
        ValueError: training cannot do what they ask for.
    """
    _check_processes(environment)
    common: dict[str, Any] = {
        "compile": _read_compile(environment),
        "mixed_precision": _read_mixed_precision(environment),
    }
    if _is_true(environment, "ACCELERATE_USE_MEGATRON_LM"):
        raise ValueError(
            f"Training does not use Megatron-LM, which {_LAUNCHER} asks for. Choose FSDP with `fsdp_version: 2`."
        )
    if _is_true(environment, "ACCELERATE_USE_PARALLELISM_CONFIG"):
        raise ValueError(
            f"Training has no tensor, context or sequence parallelism, which {_LAUNCHER} asks for with "
            "`parallelism_config`. Leave it out; FSDP shards over all processes."
        )
    if _is_true(environment, "ACCELERATE_USE_FSDP"):
        return LauncherSettings(**common, **_read_fsdp(environment))
    if _is_true(environment, "ACCELERATE_USE_DEEPSPEED"):
        return LauncherSettings(**common, **_read_deepspeed(environment))
    return LauncherSettings(**common)


def _read_fsdp(environment: Mapping[str, str]) -> dict[str, Any]:
    for name, (works, advice) in _FSDP_SETTINGS.items():
        value = environment.get(f"FSDP_{name}", _FSDP_DEFAULTS.get(name, "false"))
        if value.lower() != works:
            raise ValueError(
                f"Training shards with FSDP2, one group per layer, but {_LAUNCHER} has "
                f"fsdp_{name.lower()}={value}. {advice}"
            )
    reshard = environment.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower()
    if reshard not in ("true", "false"):
        raise ValueError(f"`fsdp_reshard_after_forward` must be true or false with FSDP2, got {reshard}.")
    sharded = "SHARDED" in environment.get("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT").upper()
    return {
        "plan": f"FSDP2, parameters {'resharded' if reshard == 'true' else 'kept'} after the forward pass, "
        f"{'sharded' if sharded else 'full'} optimizer state in checkpoints",
        "fsdp": True,
        "reshard_after_forward": reshard == "true",
        "sharded_checkpoints": sharded,
    }


def _read_deepspeed(environment: Mapping[str, str]) -> dict[str, Any]:
    """Map ZeRO to FSDP2, which shards the same: stage 3 everything, stage 2 all but parameters in use.

    Stage 1 would keep full gradients; with FSDP2 they are sharded, too. Stage 0 is DDP.
    """
    prefix = "ACCELERATE_DEEPSPEED_"
    if environment.get(f"{prefix}CONFIG_FILE", "none").lower() != "none":
        raise ValueError(
            "Training does not read DeepSpeed's own files, but `deepspeed_config_file` is "
            f"{environment[f'{prefix}CONFIG_FILE']}. Give `zero_stage` in {_LAUNCHER} instead."
        )
    for name in ("OFFLOAD_OPTIMIZER_DEVICE", "OFFLOAD_PARAM_DEVICE"):
        device = environment.get(f"{prefix}{name}", "none")
        if device != "none":
            raise ValueError(
                f"Training keeps its state on the devices, but {_LAUNCHER} has {name.lower()}={device}. Set it to "
                "none, and take stage 3 or more processes if memory is short."
            )
    stage = environment.get(f"{prefix}ZERO_STAGE", "2")
    if stage not in ("0", "1", "2", "3"):
        raise ValueError(f"`zero_stage` must be 0, 1, 2 or 3, got {stage}.")
    plan = "DDP" if stage == "0" else f"FSDP2, parameters {'resharded' if stage == '3' else 'kept'} after the forward"
    clipping = environment.get("ACCELERATE_GRADIENT_CLIPPING", "none")
    steps = environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "none")
    return {
        "plan": f"DeepSpeed's ZeRO stage {stage}, for which training uses PyTorch's own {plan}"
        + (" pass" if stage != "0" else ""),
        "fsdp": stage != "0",
        "reshard_after_forward": stage == "3",
        "max_grad_norm": None if clipping in ("none", "auto") else float(clipping),
        "gradient_accumulation_steps": None if steps in ("none", "auto", "1") else int(steps),
    }


def _read_mixed_precision(environment: Mapping[str, str]) -> str | None:
    value = environment.get("ACCELERATE_MIXED_PRECISION", "no")
    if value == "fp8":  # for which Accelerate has its own options, and libraries that training does not use
        raise ValueError(
            f"`mixed_precision` fp8 must be in the recipe, but it is in {_LAUNCHER}. Move it: `mixed_precision: fp8`."
        )
    if value not in ("no", "bf16", "fp16"):
        raise ValueError(f"`mixed_precision` must be no, bf16 or fp16, but {_LAUNCHER} has {value}.")
    return None if value == "no" else value


def _read_compile(environment: Mapping[str, str]) -> bool:
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    if backend not in ("no", "inductor"):
        raise ValueError(f"Training compiles with inductor, but {_LAUNCHER} has dynamo_backend={backend}. Take that.")
    return backend == "inductor"


def _check_processes(environment: Mapping[str, str]) -> None:
    """Refuse several CPU processes of which `accelerate launch` has started only one, as it does without mpirun."""
    by_mpi = any(name.endswith(("WORLD_SIZE", "LOCALNRANKS", "_SIZE")) and "MPI" in name for name in environment)
    if (
        _is_true(environment, "ACCELERATE_USE_CPU")
        and "KMP_AFFINITY" in environment
        and "MASTER_PORT" in environment
        and not by_mpi
        and "RANK" not in environment
    ):
        raise ValueError(
            "Several processes on CPUs must be started by torchrun or mpirun, but accelerate launch has started one. "
            "Use `torchrun --nproc_per_node N scripts/train.py …`, or one process."
        )


def _is_true(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "false").lower() in ("1", "true")


def _merge_precision(ours: str | None, theirs: str | None) -> str:
    if ours == AUTO and theirs is not None:
        return theirs
    return _merge("mixed_precision", ours, theirs) or "no"


def _merge(name: str, ours: Any, theirs: Any) -> Any:
    """Return the value that is given; None is none."""
    if ours is not None and theirs is not None and ours != theirs:
        raise ValueError(f"`{name}` is {ours} in the recipe, but {theirs} in {_LAUNCHER}. Give it once, or the same.")
    return theirs if ours is None else ours
