"""Fast decoding, quantization and other runtimes, registered with the Hub modules when the package is imported."""

from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin
from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline

from .ctranslate2 import load_ctranslate2
from .fast_search import prepare_search
from .parallel_batches import map_batches
from .quantization import VanillaTransformerInt8Config
from .transformers_internals import restore_translation_task


def register() -> None:
    """Give `generate()` its fast search and `TranslationPipeline` its threads and backends."""
    PaperGenerationMixin.fast_search = staticmethod(prepare_search)
    TranslationPipeline.map_batches = staticmethod(map_batches)
    TranslationPipeline.backends["ctranslate2"] = load_ctranslate2
    restore_translation_task()


__all__ = ["VanillaTransformerInt8Config", "register"]
