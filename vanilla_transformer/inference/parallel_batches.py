"""
Decode several batches of a pipeline at once, in threads.

On a CPU the small operations of one decoding step do not keep all cores busy.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin, closest

from .weight_packing import packed_weights

_MAX_BATCHES_AT_ONCE = 4  # more gain nothing: each step needs Python, one thread at a time


def map_batches(
    model: Any, generate_kwargs: Mapping[str, Any], generate: Callable[[Any], torch.Tensor], batches: Sequence[Any]
) -> Iterator[torch.Tensor]:
    """
    Yield `generate(batch)` for each batch, in order, with the weights packed once for all of them.

    Batches share torch's threads. They run one after the other if they share a state besides the model: random
    numbers, or objects in `generate_kwargs`.
    """
    if len(batches) <= 1 or not isinstance(model, nn.Module):
        yield from map(generate, batches)
        return
    with packed_weights(model):
        at_once = _batches_at_once(model, generate_kwargs, len(batches))
        yield from _map_in_threads(generate, batches, at_once) if at_once > 1 else map(generate, batches)


def _batches_at_once(model: nn.Module, generate_kwargs: Mapping[str, Any], batches: int) -> int:
    if not isinstance(model, PaperGenerationMixin) or model.device.type != "cpu":
        return 1
    config = generate_kwargs.get("generation_config") or model.generation_config
    values = [value for name, value in generate_kwargs.items() if name != "generation_config"]
    if not all(map(_is_plain, values)) or closest([generate_kwargs, vars(config)], "do_sample"):
        return 1
    return min(batches, torch.get_num_threads(), _MAX_BATCHES_AT_ONCE)


def _is_plain(value: Any) -> bool:
    """Tell whether a value consists of numbers and strings only, which threads can share."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _map_in_threads(function: Callable[[Any], Any], items: Iterable[Any], threads: int) -> Iterator[Any]:
    """Map in several threads, which divide torch's own among them."""
    cores = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, "batch", torch.set_num_threads, (cores // threads,)) as pool:
            yield from pool.map(function, items)
    finally:
        torch.set_num_threads(cores)  # threads that start later inherit the last value set


__all__ = ["map_batches"]
