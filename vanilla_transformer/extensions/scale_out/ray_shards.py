"""
Work on the shards of a corpus with Ray Data, by actors that each hold a model, on all machines of a
cluster.

Shards travel through Ray's object store, so that machines share no files but the model. An actor or
a machine that dies loses the shards in its hands only: Ray starts the actor again where there is
room, and repeats these shards.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vanilla_transformer.decoding.corpus_shards import Shard, progress_bar
from vanilla_transformer.errors import UserError, is_refusal
from vanilla_transformer.machine.imports import requires_extra

ShardWork = Callable[[Shard], list[str]]  # returns one result for each line
_SHARDS_PER_ACTOR = 2  # one that it works on, and one that waits


def work_by_ray(
    shards: Iterable[Shard],
    done: int,
    build: Callable[[], ShardWork],
    total: int,
    workers: int | None = None,
    threads: int = 1,
    hidden: bool = False,
) -> Iterator[tuple[Shard, list[str]]]:
    """
    Yield each shard with its results, in the order in which they are done, and show how many of all
    lines are done.

    Connects to the cluster that the environment variable `RAY_ADDRESS` names or that runs on this
    machine, or else starts one on this machine. All shards are read before work begins.

    Args:
        done: The number of lines that are in no shard.
        build: Called by each actor; returns the function that works on a shard. It is pickled.
        workers: Actors; by default one per GPU or, without GPUs, as many as the CPUs of the cluster
            allow.
        threads: CPUs of each actor.
        hidden: Show no progress bar.
    """
    with requires_extra("ray", "Ray"):
        import pyarrow
        import ray
        from ray.data import ActorPoolStrategy, DataContext
    columns = {
        "number": pyarrow.int64(),
        "start": pyarrow.int64(),
        "lines": pyarrow.list_(pyarrow.string()),
    }
    schema = pyarrow.schema(columns.items())
    is_own = not ray.is_initialized()
    if is_own:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        workers = workers or gpus or count_workers(ray.nodes(), threads)
        blocks: list[Any] = []
        for shard in shards:
            block = pyarrow.Table.from_pylist([shard._asdict()], schema)
            blocks.append(ray.put(block))
        if not blocks:
            return
        context = DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        size = min(workers, len(blocks))
        pool = ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=_SHARDS_PER_ACTOR)
        actor: Any = _Actor
        results = ray.data.from_arrow_refs(blocks).map(
            actor,
            fn_constructor_args=(build,),
            compute=pool,
            num_cpus=threads,
            num_gpus=1 if gpus else None,
        )
        with progress_bar(total, done, hidden) as bar:
            for row in results.iter_rows():
                if row["error"]:
                    raise UserError(row["error"])
                shard = Shard(row["number"], row["start"], [*row["lines"]])
                yield shard, [*row["results"]]
                bar.update(len(row["lines"]))
    finally:
        if is_own:
            ray.shutdown()


class _Actor:
    """Work on shards, one after the other."""

    def __init__(self, build: Callable[[], ShardWork]):
        self._build = build
        self._work: ShardWork | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a shard with its results, or with the mistake of the user that prevents them."""
        shard = Shard(row["number"], row["start"], [*row["lines"]])
        results: list[str] = []
        error = ""
        try:
            if self._work is None:
                self._work = self._build()
            results = self._work(shard)
        except Exception as mistake:
            if not is_refusal(mistake):
                raise
            error = str(mistake)
        return {**shard._asdict(), "results": results, "error": error}


def count_workers(nodes: Iterable[dict[str, Any]], threads: int) -> int:
    """Return how many actors with so many threads fit on the machines of a cluster."""
    cpus = [int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]]
    count = sum(number // threads for number in cpus)
    if not count:
        raise UserError(
            f"A machine of the cluster must have {threads} CPUs, but the largest one has "
            f"{max(cpus)}."
        )
    return count
