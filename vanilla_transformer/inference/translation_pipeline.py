"""The translation pipeline of the package: the engine, batches in threads, and other runtimes than torch."""

from collections.abc import Callable
from typing import Any

from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline as CarriedTranslationPipeline

from .ctranslate2 import load_ctranslate2
from .engine import Engine
from .engine_pool import EnginePool
from .parallel_batches import map_batches


class TranslationPipeline(CarriedTranslationPipeline):
    """
    Translate raw text as the pipeline that checkpoints carry does, with several batches at once on a CPU.

        >>> translate = pipeline("translation", model=folder)
        >>> translate("A man is sleeping.")
        [{'translation_text': 'Ein Mann schläft.'}]

    See [`pipeline_vanilla_transformer.TranslationPipeline`] for texts, batches and further arguments.

    With a `precision`, with `compile=True`, or if the cache has compiled steps of the model, an [`Engine`] decodes
    greedy and beam search. It has as many slots as it needs, whatever `batch_size` is.

    Args:
        backend (`str`, *optional*): `"ctranslate2"` if `model` is a folder that was converted for CTranslate2.
        precision (`str`, *optional*): `"float32"` (exact), `"bfloat16"` (faster where the processor multiplies it),
            `"int8"` (by torchao) or `"auto"` (the fastest that was measured to be accurate enough), see [`Engine`].
            Requests that the engine does not decode, such as sampling, raise a `ValueError`.
        compile (`bool` or `str`): See [`Engine`].

    Raises:
        ValueError: The backend, the precision or `compile` is unknown.
        OSError: The folder is not one for the backend, or the backend is not installed.
    """

    # Each takes (folder, tokenizer, device) and returns (model, tokenizer).
    backends: dict[str, Callable[..., tuple[Any, Any]]] = {"ctranslate2": load_ctranslate2}
    map_batches = staticmethod(map_batches)

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        backend: str | None = None,
        precision: str | None = None,
        compile: bool | str = "auto",
        **kwargs: Any,
    ):
        self._engines = EnginePool(precision, compile)
        if backend is not None:
            if backend not in self.backends:
                known = ", ".join(["None", *map(repr, self.backends)])
                raise ValueError(f"`backend` must be one of {known}, got {backend!r}.")
            model, tokenizer = self.backends[backend](model, tokenizer, kwargs.get("device"))
            kwargs["device"] = model.device
        super().__init__(model, tokenizer, **kwargs)

    def _generate(self, sentences: list[str], batch_size: int, options: dict, report: Callable) -> list[list[str]]:
        engine = self._engines.find(self.model, options)
        if engine is None:
            return super()._generate(sentences, batch_size, options, report)
        return self._generate_by(engine, sentences, self._num_return_sequences(options), report)

    def _generate_by(self, engine: Engine, sentences: list[str], count: int, report: Callable) -> list[list[str]]:
        """Return the `count` best translations of each sentence, in the given order. The longest ones enter first."""
        encoded = self._encode(sentences)
        order = sorted(range(len(sentences)), key=lambda index: len(encoded[index]), reverse=True)
        tokens = dict[int, list[list[int]]]()
        for position, hypotheses in engine.translate_stream((encoded[index] for index in order), count):
            tokens[order[position]] = [hypothesis.tokens for hypothesis in hypotheses]
            report(1)
        texts = self.postprocess([each for index in range(len(sentences)) for each in tokens[index]])
        return [texts[start : start + count] for start in range(0, len(texts), count)]


__all__ = ["TranslationPipeline"]
