"""The translation pipeline of the package: batches in threads, and other runtimes than torch."""

from collections.abc import Callable
from typing import Any

from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedTranslationPipeline

from .ctranslate2 import load_ctranslate2
from .parallel_batches import map_batches


class TranslationPipeline(CarriedTranslationPipeline):
    """
    Translate raw text as the pipeline that checkpoints carry does, with several batches at once on a CPU.

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    See [`pipeline_vanilla_transformer.TranslationPipeline`] for texts, batches and further arguments.

    Args:
        backend (`str`, *optional*): `"ctranslate2"` if `model` is a folder that was converted for CTranslate2.

    Raises:
        ValueError: The backend is unknown.
        OSError: The folder is not one for the backend, or the backend is not installed.
    """

    # Each takes (folder, tokenizer, device) and returns (model, tokenizer).
    backends: dict[str, Callable[..., tuple[Any, Any]]] = {"ctranslate2": load_ctranslate2}
    map_batches = staticmethod(map_batches)

    def __init__(self, model: Any, tokenizer: Any = None, *, backend: str | None = None, **kwargs: Any):
        if backend is not None:
            if backend not in self.backends:
                known = ", ".join(["None", *map(repr, self.backends)])
                raise ValueError(f"`backend` must be one of {known}, got {backend!r}.")
            model, tokenizer = self.backends[backend](model, tokenizer, kwargs.get("device"))
            kwargs["device"] = model.device
        super().__init__(model, tokenizer, **kwargs)


__all__ = ["TranslationPipeline"]
