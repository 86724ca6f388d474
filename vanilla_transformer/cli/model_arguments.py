"""Flags that say how a model is loaded for translation."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from .arguments import PRECISION_HELP, WORKERS_HELP, parse_workers

if TYPE_CHECKING:
    from vanilla_transformer import TranslationPipeline


@dataclass
class EnsembleArguments:
    """Flags of an ensemble."""

    ensemble: list[str] | None = field(
        default=None,
        metadata={"help": "Further models with the same vocabulary: probabilities are the mean of all models'."},
    )
    ensemble_weights: list[float] | None = field(
        default=None, metadata={"help": "With --ensemble: a positive number for each model, the first one included."}
    )


@dataclass
class FurtherModelArguments(EnsembleArguments):
    """Flags of reranking."""

    rerank_reverse: str | None = field(
        default=None,
        metadata={"help": "Model of the other direction, by which the n-best list of --num_beams is reranked."},
    )


def further_models(options: FurtherModelArguments) -> dict[str, Any]:
    """Return the arguments of the pipeline that the flags give."""
    given = {each.name: getattr(options, each.name) for each in fields(FurtherModelArguments)}
    return {name: value for name, value in given.items() if value is not None}


def model_names(first: str, options: FurtherModelArguments) -> list[str]:
    """Return the names of all models that decide about translations."""
    return [first, *(options.ensemble or []), *filter(None, [options.rerank_reverse])]


@dataclass
class ModelArguments(FurtherModelArguments):
    """Flags of the model."""

    backend: str | None = field(
        default=None, metadata={"help": "`ctranslate2` for a model converted to CTranslate2; by default PyTorch."}
    )
    device: str | None = field(
        default=None, metadata={"help": "cpu, cuda, cuda:1, …; by default the first accelerator, or the CPU."}
    )
    dtype: str | None = field(
        default=None,
        metadata={"help": "Type of the weights: float32, float16 or bfloat16; by default as saved."},
    )
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    workers: str = field(default="1", metadata={"help": WORKERS_HELP})
    threads: int | None = field(
        default=None, metadata={"help": "Threads that compute, in each worker at most; by default one per core."}
    )


@contextmanager
def open_model(name: str, options: ModelArguments, num_beams: int | None) -> Iterator["TranslationPipeline"]:
    """Yield the pipeline of a model as the flags say.

    Raises:
        ValueError: a flag has an invalid value, or does not fit another one or the machine.
        OSError: there is no such model, or it is damaged.
    """
    workers = parse_workers(options.workers)
    if options.threads is not None:
        _set_threads(options.threads, options.backend)
    from vanilla_transformer.decoding.engine_workers import open_pipeline

    loading = {name: getattr(options, name) for name in ("backend", "device", "dtype")}
    with open_pipeline(name, workers, options.precision, num_beams, **loading, **further_models(options)) as translate:
        yield translate


def _set_threads(threads: int, backend: str | None) -> None:
    import torch

    from vanilla_transformer.device_utils import check_threads

    check_threads(threads)
    if backend is not None:
        hint = f"Set OMP_NUM_THREADS={threads} in the environment."
        raise ValueError(f"`threads` is for PyTorch, but `backend` is {backend!r}. {hint}")
    torch.set_num_threads(threads)
