"""Open the pipeline of a model in this process, or in several ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .loading import load_pipeline
from .translation_pipeline import TranslationPipeline


@contextmanager
def open_pipeline(
    name: str | Path,
    workers: int = 1,
    precision: str | None = None,
    **loading: Any,
) -> Iterator[TranslationPipeline]:
    """
    Yield the pipeline of a model as [`load_pipeline`] returns it, or one that translates by several
    processes.

        >>> with open_pipeline("runs/mine", workers=4) as translate:
        ...     answers = translate(sentences)

    Args:
        workers: The number of processes.
        loading: `device`, `dtype` and further models, see [`load_pipeline`].
    """
    if workers == 1:
        yield load_pipeline(name, precision=precision, **loading)
    else:
        from vanilla_transformer.extensions.scale_out import open_workers

        with open_workers(name, workers, precision, **loading) as translate:
            yield translate
