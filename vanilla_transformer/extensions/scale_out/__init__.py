"""Texts are translated by several processes, or by all machines of a Ray cluster."""

from .engine_workers import check_workers, open_workers
from .ray_shards import work_by_ray
from .worker_choice import measure_workers, threads_to_compile

__all__ = ["check_workers", "measure_workers", "open_workers", "threads_to_compile", "work_by_ray"]
