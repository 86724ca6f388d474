"""Fast decoding, quantization and other runtimes, registered with the Hub modules when the package is imported."""

from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin
from vanilla_transformer.modeling_vanilla_transformer_decoder import VanillaTransformerForCausalLM

from .engine.engine import Engine
from .engine.engine_search import find_prompt_search, find_search
from .quantization import VanillaTransformerInt8Config
from .transformers_internals import restore_translation_task
from .translation_pipeline import TranslationPipeline


def register() -> None:
    """Let the engine search for `generate()`, and the task `"translation"` its pipeline."""
    PaperGenerationMixin.fast_search = staticmethod(find_search)
    VanillaTransformerForCausalLM.fast_search = staticmethod(find_prompt_search)
    restore_translation_task()


__all__ = ["Engine", "TranslationPipeline", "VanillaTransformerInt8Config", "register"]
