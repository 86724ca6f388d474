"""
How an engine uses each type of device.

A GPU runs a step of many sentences in about the time of a step of few, and launches and plans cost
more than padding. So it gets more slots than a CPU, of few sizes. Tests let a CPU stand in for a
GPU by replacing its profile.
"""

import math
from typing import NamedTuple

import torch

_SPARE_ON_GPU = 0.5  # of the memory that is free or holds such buffers
_MEMORY_OF_ALL_SLOTS = 2**33  # free bytes with which a GPU gets all its slots
_LEAST_GREEDY_SLOTS, _LEAST_BEAM_SLOTS = 64, 32  # of a GPU


class DeviceProfile(NamedTuple):
    """
    How an engine uses one type of device.

    Attributes:
        captures_steps: Steps are CUDA graphs. Otherwise they are compiled packages.
        greedy_slots, beam_slots: Sentences that a pipeline decodes at once, at most.
        few_slots: Numbers of slots for few sentences.
        steps_between_looks: Steps between two looks of the host at `done`; a look at another device
            takes time.
        pads_prefill: Batches of sources are padded, so that they have few shapes.
        most_wide_rows: Tokens that a step reads at most, of all slots, if it reads several of a
            slot.
        spare_bytes: Bytes of buffers that are kept for other sizes; None for a share of the free
            memory.
    """

    captures_steps: bool
    greedy_slots: int
    beam_slots: int
    few_slots: tuple[int, ...]
    steps_between_looks: int
    pads_prefill: bool
    most_wide_rows: int
    spare_bytes: int | None


GPU = DeviceProfile(
    captures_steps=True,
    greedy_slots=512,
    beam_slots=128,
    few_slots=(1, 8, 64, 512),  # each has its own CUDA graphs
    steps_between_looks=4,
    pads_prefill=True,
    most_wide_rows=1024,
    spare_bytes=None,  # steps would be captured again with other buffers
)
CPU = DeviceProfile(
    captures_steps=False,
    greedy_slots=128,
    beam_slots=64,
    few_slots=(1, 2, 4, 8, 16, 24, 32, 48, 64, 96),
    steps_between_looks=1,
    pads_prefill=False,
    most_wide_rows=64,
    spare_bytes=2**25,
)
PROFILES = {"cpu": CPU}


def profile_of(device: torch.device) -> DeviceProfile:
    """Return the profile of a device."""
    return PROFILES.get(device.type, GPU)


def free_memory(device: torch.device) -> float:
    """Return the bytes that tensors on a GPU may still take; infinity for other devices."""
    if device.type != "cuda":
        return math.inf
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + cached


def spare_memory(device: torch.device, spare: int) -> float:
    """Return the bytes that buffers of other sizes may take, given the bytes that they take."""
    fixed = profile_of(device).spare_bytes
    return (free_memory(device) + spare) * _SPARE_ON_GPU if fixed is None else fixed


def usual_slots(beams: int, device: torch.device) -> int:
    """Return the number of slots of a pipeline's engines: on a GPU with little free memory, fewer
    than usual.
    """
    profile = profile_of(device)
    slots, least = profile.beam_slots, _LEAST_BEAM_SLOTS
    if beams == 1:
        slots, least = profile.greedy_slots, _LEAST_GREEDY_SLOTS
    free = free_memory(device)
    while slots > least and free < _MEMORY_OF_ALL_SLOTS:
        slots, free = slots // 2, free * 2
    return slots
