"""Texts are translated by several processes, or by all machines of a Ray cluster."""

from .engine_workers import open_workers
from .ray_shards import work_by_ray

__all__ = ["open_workers", "work_by_ray"]
