"""The processes of a run: create the accelerator, connect them, decide together, shard a model,
report a lost one.
"""

import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedDataParallelKwargs, parse_flag_from_env, patch_environment
from torch.distributed import PrefixStore, Store
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor

from vanilla_transformer.errors import LostProcessError, UserError
from vanilla_transformer.machine.compiler import find_compiler
from vanilla_transformer.machine.cores import multiplies

from .loss import ModelWithLoss
from .run_arguments import Recipe

logger = logging.getLogger(__name__)

AUTO = "auto"  # the value of `mixed_precision` for the fastest precision of the device
_REFUSAL = "refusal"  # the key of the message of a process that has ended by a user's mistake
_stores = list[Store]()  # of the attempts of this process
_START_TIMEOUT = timedelta(minutes=10)
_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_BETWEEN_MESSAGES = 60.0
_WITHOUT_LIMIT = timedelta(days=10_000)
# Variables that a launcher sets
_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
# Parts of the messages of gloo and NCCL, which do not always have a type.
_OF_BACKENDS = ("/gloo/", "NCCL error", "NCCL communicator", "WorkNCCL")
# NCCL's names for mistakes of this process, such as a GPU that another process has already.
_OWN_MISTAKES = ("ncclInvalidUsage", "ncclInvalidArgument", "ncclUnhandledCudaError")


def is_main_process() -> bool:
    """Return whether this is the main one of the processes that `torchrun` started, before they
    know each other.
    """
    return os.environ.get("RANK", "0") == "0"


# Set by `accelerate launch`. Training shards by itself (see `shard_model`), so Accelerate must not.
_WITHOUT_PLUGINS = {"ACCELERATE_USE_FSDP": "false"}


def create_accelerator(recipe: Recipe) -> Accelerator:
    """Create Accelerate's view of devices, processes, precision, compilation and trackers."""
    options, output = recipe.optimization, recipe.output
    on_cpu = not torch.accelerator.is_available()
    if options.mixed_precision == "fp16" and on_cpu:  # Accelerate would silently train in float32
        raise UserError("`mixed_precision` fp16 needs a GPU, got a CPU. Use bf16, or leave it out.")
    if options.compile and find_compiler() is None:
        raise UserError(
            "`compile` needs a C++ compiler, and there is none. Install g++, or leave `compile` "
            "out."
        )
    if options.fsdp and "RANK" not in os.environ:
        raise UserError(
            "`fsdp` needs several processes, got one that was not launched by torchrun. Start "
            "training with `torchrun --nproc_per_node 2 scripts/train.py …`, or leave `fsdp` out."
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
    batches = accelerator.num_processes * options.gradient_accumulation_steps
    total = recipe.data.tokens_per_step
    if total is not None and recipe.data.max_tokens != total // batches:
        raise UserError(
            "A recipe with `tokens_per_step` must be read in each process of the run, got one "
            f"that was read before {accelerator.num_processes} processes started. Call "
            "`parse_recipe` in the function that trains."
        )
    return accelerator


def resolve_mixed_precision(name: str | None, process: PartialState) -> str | None:
    """Return the mixed precision for Accelerate on the device of a process, and log what `"auto"`
    is.

    `"auto"` is bf16 where the device has instructions for it, and no, which is float32, elsewhere.
    A warning is logged for bf16 on a processor that emulates it.
    """
    fast = multiplies("bfloat16", process.device)
    if name == AUTO:
        name = "bf16" if fast else "no"
        choice = "bf16: this device has" if fast else "no (float32): this device does not have"
        if process.is_main_process:
            logger.info("`mixed_precision` auto is %s instructions for bf16.", choice)
    elif name == "bf16" and process.device.type == "cpu" and not fast and process.is_main_process:
        logger.warning(
            "This processor has no instructions for bf16 and emulates it, many times more slowly "
            "than float32. Use `mixed_precision: auto`, which is float32 here."
        )
    return name


def connect_processes() -> None:
    """Create the process group of a process that `torchrun`, `accelerate launch` or variables like
    theirs describe.

    Tensors of a GPU travel by the GPU's backend, NCCL, and tensors of the CPU by gloo. Accelerate
    would connect GPUs alone, so that each message between hosts would wait in the queues of the
    GPUs.

    Both launchers keep one store for all attempts, so a process that is started again can read the
    address of a dead one there (pytorch/pytorch#135712). Each attempt therefore gets a part of the
    store for itself.
    """
    if not os.environ.keys() >= _VARIABLES or torch.distributed.is_initialized():
        return
    # A build of PyTorch for CUDA names its accelerator also on a machine without a GPU, unless it
    # is to check.
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    backend = torch.distributed.get_default_backend_for_device(device)
    options: dict[str, Any] = {}
    if device.type != "cpu":
        backend = f"cpu:gloo,{device.type}:{backend}"
        # As Accelerate chooses it. NCCL connects at once, and reports a mistake here.
        index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
        options["device_id"] = torch.device(device.type, index)
    store, rank, world_size = next(rendezvous("env://", timeout=_START_TIMEOUT))
    part = PrefixStore(agree_on_attempt(store, rank, world_size), store)
    _stores.append(part)
    torch.distributed.init_process_group(
        backend, store=part, rank=rank, world_size=world_size, **options
    )


def agree_on_attempt(store: Store, rank: int, world_size: int) -> str:
    """Return a name that all processes of this attempt have in common and no earlier attempt had.

    The number of restarts is not such a name, since each node counts its own. An earlier attempt
    may have ended anywhere in this function, so each process deletes its remains, and the main
    process repeats the name until all have read it.
    """
    if rank != 0:
        store.delete_key(f"attempt/{rank}")
        attempt = store.get(f"attempt/{rank}").decode()
        store.set(f"{attempt}/{rank}", "joined")
        return attempt
    attempt = uuid.uuid4().hex
    deadline = time.monotonic() + _START_TIMEOUT.total_seconds()
    while missing := [
        other for other in range(1, world_size) if not store.check([f"{attempt}/{other}"])
    ]:
        if time.monotonic() > deadline:
            raise LostProcessError(
                f"All {world_size} processes must start within "
                f"{_START_TIMEOUT.total_seconds() / 60:.0f} minutes, but {len(missing)} did not, "
                f"the first of them process {missing[0]}. Look at its messages and its node."
            )
        for other in missing:
            store.set(f"attempt/{other}", attempt)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return attempt


@contextmanager
def report_lost_processes() -> Iterator[None]:
    """Turn the failure of an exchange with another process of the run, at any place in the block,
    into one line. If the other process has ended by a user's mistake, it is the line of that one.
    """
    try:
        yield
    except UserError as error:
        _tell_others(str(error))
        raise
    except RuntimeError as error:
        text = str(error).strip()
        if not (
            isinstance(error, torch.distributed.DistError)
            or any(part in text for part in _OF_BACKENDS)
        ):
            raise
        process = f"Process {os.environ.get('RANK', '0')}"
        reason = text.splitlines()[-1].strip()
        if any(name in text for name in _OWN_MISTAKES):
            raise LostProcessError(
                f"{process} must have a GPU that no other process uses, but NCCL cannot use it: "
                f"{reason}. Start at most as many processes as there are free GPUs."
            ) from error
        refusal = _find_refusal()
        if refusal is not None:
            raise UserError(refusal) from error
        raise LostProcessError(
            f"{process} lost the connection to another process of the run, which was killed or has "
            "failed: look at its messages. The same command resumes from the last checkpoint."
        ) from error


def _tell_others(refusal: str) -> None:
    """Store why this process ends, for the ones that lose the connection to it."""
    for store in _stores[-1:]:
        with suppress(RuntimeError):  # the store may be lost, too
            store.set(_REFUSAL, refusal)


def _find_refusal() -> str | None:
    """Return why another process has ended, if it could tell."""
    for store in _stores[-1:]:
        with suppress(RuntimeError):
            if store.check([_REFUSAL]):
                return store.get(_REFUSAL).decode()
    return None


def sum_over_processes(
    accelerator: Accelerator, values: Sequence[float] | torch.Tensor
) -> torch.Tensor:
    """Sum each value over all processes, in float64 on the CPU. All processes must call it
    together.

    The hosts exchange the values by gloo (see `connect_processes`), and none waits for the queue of
    its GPU.
    """
    return accelerator.reduce(
        torch.as_tensor(values, dtype=torch.float64, device="cpu"), reduction="sum"
    )


def wait_for_processes(accelerator: Accelerator) -> None:
    """Wait until all processes call this.

    Accelerate's barrier would wait for the queues of their GPUs, too.
    """
    sum_over_processes(accelerator, [0.0])


@contextmanager
def first_of_each_node(accelerator: Accelerator) -> Iterator[None]:
    """Run the block in the first process of each node, then in the others, which find the cache
    filled and checked.

    They wait as long as it lives, whatever the time-out of the other exchanges, and one of each
    node says so every minute. All processes must call it together.
    """
    if accelerator.num_processes == 1:
        yield
        return
    group = torch.distributed.new_group(backend="gloo", timeout=_WITHOUT_LIMIT)
    if accelerator.is_local_main_process:
        yield
    started, minutes = time.monotonic(), 0
    work = torch.distributed.barrier(group, async_op=True)
    while not work.is_completed():
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        is_late = time.monotonic() - started > (minutes + 1) * _SECONDS_BETWEEN_MESSAGES
        if is_late and accelerator.local_process_index <= 1:
            minutes += 1
            logger.warning(
                "Process %d waits for the first process of each node, which still prepares the "
                "text (%d min).",
                accelerator.process_index,
                minutes,
            )
    work.wait()
    if not accelerator.is_local_main_process:
        yield


def broadcast_decision(accelerator: Accelerator, decision: bool) -> bool:
    """Return the main process's decision in every process: clocks and disks of the others may
    differ.
    """
    if accelerator.num_processes == 1:
        return decision
    return bool(sum_over_processes(accelerator, [decision and accelerator.is_main_process])[0])


# Why not by Accelerate's FSDP plugin, from which only the settings are read (`launcher.py`): its
# state uses the plugin for processes on accelerators alone and trains those on a CPU unsharded
# (`AcceleratorState`, accelerate 1.15), so that no test without GPUs would see it. Its casts of
# parameters have changed between releases, once without effect (huggingface/accelerate#3979,
# #3985). `fully_shard`, which the plugin calls as well, does the same on every device.
def shard_model(
    model_with_loss: ModelWithLoss,
    num_processes: int,
    mixed_precision: str | None = None,
) -> None:
    """Shard parameters, gradients and optimizer state over all processes, in place.

    Each layer is a group that is gathered while it computes. The root group, with the tied
    embeddings, stays gathered from the forward pass to the end of the backward pass. The layer of a
    [`LossTerm`] is in it: the term may use its weights after the layer.

    With bf16 the shards stay float32, in which gradients are summed over processes and the
    optimizer computes. The gathered parameters and what passes between layers are bfloat16; within
    them autocast applies, as with DDP.

    Each layer is gathered again for the backward pass, unless the file of `accelerate launch` says
    to keep it.

    Args:
        mixed_precision: Accelerate's, of which bf16 counts.
    """
    model = model_with_loss.model.model
    mesh = init_device_mesh(model.device.type, (num_processes,))
    policy = MixedPrecisionPolicy()
    reshard = parse_flag_from_env("FSDP_RESHARD_AFTER_FORWARD", True)
    if mixed_precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        if layer not in model_with_loss.layers_of_terms:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    # A batch keeps its types: weights of links are float32.
    fully_shard(model_with_loss, mesh=mesh, mp_policy=replace(policy, cast_forward_inputs=False))


@contextmanager
def skip_gradient_sync(
    accelerator: Accelerator, wrapped_model: torch.nn.Module, skip: bool
) -> Iterator[None]:
    """Skip the all-reduce (DDP) or reduce-scatter (FSDP2) of gradients until the last micro-batch
    of a step.

    With FSDP2, the layers that a backward pass has gathered stay gathered for the next micro-batch.
    """
    if isinstance(wrapped_model, FSDPModule):
        wrapped_model.set_requires_gradient_sync(not skip)
        wrapped_model.set_reshard_after_backward(not skip)
    with accelerator.no_sync(wrapped_model) if skip else nullcontext():
        yield


def send_as_bfloat16(
    group: torch.distributed.ProcessGroup, bucket: torch.distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Sum gradients over processes in bfloat16, half of the bytes.

    By its own name DDP would refuse the hook of PyTorch on a CPU, where gloo sums bfloat16, too.
    """
    return bf16_compress_hook(group, bucket)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor. All processes must call it together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(full: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Place `full` on the device of `example`, and shard it as `example` is sharded."""
    if not isinstance(example, DTensor):
        return full.to(example.device)
    return distribute_tensor(full.to(example.device), example.device_mesh, example.placements)
