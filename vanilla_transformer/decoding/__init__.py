"""Fast decoding, and the pipeline of the package.

Everything is imported at first use: the options of a request, which are declared here, need no
torch.
"""

from typing import TYPE_CHECKING

from vanilla_transformer.machine.imports import lazy_names

if TYPE_CHECKING:
    from .engine.engine import Engine
    from .translation_pipeline import TranslationPipeline
else:
    _LAZY = {"Engine": ".engine.engine", "TranslationPipeline": ".translation_pipeline"}
    __getattr__, __dir__ = lazy_names(__name__, _LAZY)

__all__ = ["Engine", "TranslationPipeline"]
