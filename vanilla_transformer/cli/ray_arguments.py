"""Flags of a Ray cluster that works on a file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .output import open_bar

if TYPE_CHECKING:
    from vanilla_transformer.decoding.corpus_shards import Shard


@dataclass
class RayArguments:
    """Flags of a Ray cluster."""

    engine: str | None = field(
        default=None, metadata={"help": "`ray` to work on all machines of a Ray cluster; by default this process."}
    )
    ray_workers: int | None = field(
        default=None,
        metadata={"help": "With `--engine ray`: processes with a model each; by default one per GPU or thread."},
    )
    ray_threads: int = field(default=1, metadata={"help": "With `--engine ray`: threads of each process."})


def check_engine(options: Any) -> None:
    """Check the flags of the cluster.

    Raises:
        ValueError: a value is out of range, or a flag does not fit another one.
    """
    if options.engine not in (None, "ray"):
        raise ValueError(f"`engine` must be 'ray' or left out, got {options.engine!r}.")
    if options.engine is None and (options.ray_workers is not None or options.ray_threads != 1):
        raise ValueError("--ray_workers and --ray_threads are for a cluster. Add --engine ray or leave them out.")
    for name in ("ray_workers", "ray_threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"`{name}` must be 1 or more, got {value}.")
    if options.engine == "ray" and options.output is None:
        raise ValueError("--engine ray writes a file, of which finished parts are kept. Give its --output.")


def work_by_ray(
    shards: Iterable["Shard"], done: int, build: Callable, total: int, options: Any, hidden: bool = False
) -> Iterator[tuple["Shard", list[str]]]:
    """Yield each shard with its results, and show how many of all lines are done.

    Args:
        build: See [`map_shards`].
    """
    from vanilla_transformer.decoding.ray_shards import map_shards

    with open_bar(total, done, hidden) as bar:
        for shard, results in map_shards(shards, build, options.ray_workers, options.ray_threads):
            yield shard, results
            bar.update(len(shard.lines))


__all__ = ["RayArguments", "check_engine", "work_by_ray"]
