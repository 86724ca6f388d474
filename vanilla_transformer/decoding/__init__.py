"""Fast decoding and other runtimes, registered with the Hub modules when the package is imported.

Everything is imported at first use: the options of a request, which are declared here, need no torch.
"""

from typing import TYPE_CHECKING, Any

from vanilla_transformer.utils.import_utils import lazy_names

if TYPE_CHECKING:
    from .engine.engine import Engine
    from .translation_pipeline import TranslationPipeline
else:
    _LAZY = {"Engine": ".engine.engine", "TranslationPipeline": ".translation_pipeline"}
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)


def register() -> None:
    """Let the engine search for `generate()`, and the task `"translation"` its pipeline."""
    from vanilla_transformer.generation_vanilla_transformer import PaperGenerationMixin
    from vanilla_transformer.modeling_vanilla_transformer_decoder import VanillaTransformerForCausalLM

    from .transformers_internals import restore_translation_task

    PaperGenerationMixin.fast_search = staticmethod(_find_search)
    VanillaTransformerForCausalLM.fast_search = staticmethod(_find_prompt_search)
    restore_translation_task()


def _find_search(*arguments: Any) -> dict[str, Any] | None:
    from .engine.custom_generate import find_search

    return find_search(*arguments)


def _find_prompt_search(*arguments: Any) -> dict[str, Any] | None:
    from .engine.custom_generate import find_prompt_search

    return find_prompt_search(*arguments)


__all__ = ["Engine", "TranslationPipeline", "register"]
