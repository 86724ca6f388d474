"""
Work on the shards of a corpus with Ray, by actors that each hold a model, on all machines of a
cluster.

An actor has two shards at a time, and gets the next one when it has finished one: a cluster holds
as little of a large corpus as of a small one. Where it sees the folder of the run, on a disk that
all machines share, it writes the file of its shard. From elsewhere the results travel back. An
actor or a machine that dies loses the shards in its hands only: Ray starts the actor again where
there is room, and repeats these shards.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from vanilla_transformer.decoding.corpus_shards import CorpusShards, Shard, ShardWork, progress_bar
from vanilla_transformer.errors import LostProcessError, UserError, is_refusal
from vanilla_transformer.machine.imports import requires_extra

_SHARDS_PER_ACTOR = 2  # one that it works on, and one that waits
_RETRIES = 3  # of a shard whose actor dies; a shard that kills each one ends the run


def work_by_ray(
    shards: Iterator[Shard],
    store: CorpusShards,
    build: Callable[[], ShardWork],
    workers: int | None = None,
    threads: int = 1,
    hidden: bool = False,
) -> Iterator[tuple[Shard, Sequence[str] | None]]:
    """
    Yield each shard with its results, or with None if its actor has written them, in the order in
    which they are done, and show how many of all lines are done.

    Connects to the cluster that the environment variable `RAY_ADDRESS` names or that runs on this
    machine, or else starts one on this machine.

    Args:
        build: Called by each actor; returns the function that works on a part of a shard. It is
            pickled.
        workers: Actors; by default one per GPU or, without GPUs, as many as the CPUs of the cluster
            allow.
        threads: CPUs of each actor.
        hidden: Show no progress bar.
    """
    with requires_extra("ray", "Ray"):
        import ray
    is_own = not ray.is_initialized()
    if is_own:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    actors = list[Any]()
    try:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        workers = workers or gpus or count_workers(ray.nodes(), threads)
        options = {"num_cpus": threads, "num_gpus": int(gpus > 0)}
        options |= {"max_restarts": -1, "max_task_retries": _RETRIES}
        actor_class: Any = ray.remote(**options)(_Actor)
        store_of_actors = copy(store)
        store_of_actors.folder = store.folder.absolute()
        spare = deque[Any]()  # actors that may get one more shard
        tasks = dict[Any, tuple[Any, Shard]]()
        shard = next(shards, None)
        with progress_bar(store.total or None, store.finished_lines, hidden) as bar:
            while tasks or shard is not None:
                if shard is not None and (spare or len(actors) < workers):
                    if len(actors) < workers:
                        actor = actor_class.remote(build, store_of_actors, store.identity())
                        actors.append(actor)
                        spare.extend([actor] * (_SHARDS_PER_ACTOR - 1))
                    else:
                        actor = spare.popleft()
                    tasks[actor.work.remote(shard)] = actor, shard
                    shard = next(shards, None)
                    continue
                (task,), _ = ray.wait([*tasks])
                actor, finished = tasks.pop(task)
                yield finished, _get_results(task, finished)
                bar.update(len(finished.lines))
                spare.append(actor)
                busy_actors = [busy for busy, _ in tasks.values()]
                if shard is None and actor not in busy_actors:
                    ray.kill(actor)  # and one that has lost its machine may start in its place
    finally:
        for actor in actors:
            ray.kill(actor)
        if is_own:
            ray.shutdown()


def _get_results(task: Any, shard: Shard) -> Sequence[str] | None:
    """Return the results of an actor, or raise the mistake of the user that prevents them."""
    import ray

    try:
        return ray.get(task)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception) and is_refusal(cause):
            raise UserError(str(cause)) from error
        if not isinstance(error, ray.exceptions.RayActorError):
            raise
        raise LostProcessError(
            f"{shard} must leave their worker alive, but {_RETRIES + 1} were killed. If memory is "
            "short, use fewer workers. --resume continues."
        ) from error


class _Actor:
    """Work on shards, one after the other."""

    def __init__(
        self, build: Callable[[], ShardWork], store: CorpusShards, identity: tuple[int, int]
    ):
        self._build, self._store, self._identity = build, store, identity
        self._work: ShardWork | None = None

    def work(self, shard: Shard) -> list[str] | None:
        """Return the results of a shard, or write them where the folder of the run is seen."""
        if self._work is None:
            self._work = self._build()
        results = list[str]()
        for unit in shard.units(self._store.unit_lines):
            results += self._work(unit)
        try:
            is_shared = self._store.identity() == self._identity
        except OSError:
            is_shared = False
        if not is_shared:
            return results
        self._store.write(shard, results)
        return None


def count_workers(nodes: Sequence[dict[str, Any]], threads: int) -> int:
    """Return how many actors with so many threads fit on the machines of a cluster."""
    cpus = [int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]]
    count = sum(number // threads for number in cpus)
    if not count:
        raise UserError(
            f"A machine of the cluster must have {threads} CPUs, but the largest one has "
            f"{max(cpus)}."
        )
    return count
