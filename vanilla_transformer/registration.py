"""
Makes this package's classes known to the Auto classes and to `pipeline`: at once where those are imported already,
otherwise when they are, so that importing this package takes hardly longer than importing transformers.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def register() -> None:
    """Registers each class as soon as the module of transformers that must know it is there."""
    for theirs, ours, registration in (
        ("transformers.models.auto.configuration_auto", "configuration", _register_configuration),
        ("transformers.models.auto.modeling_auto", "modeling", _register_models),
        ("transformers.models.auto.tokenization_auto", "tokenization", _register_tokenizer),
        ("transformers.pipelines", "pipeline", _register_pipeline),
    ):
        _Registration(theirs, f"{__package__}.{ours}_vanilla_transformer", registration).attempt_when_possible()


def _register_configuration() -> None:
    from transformers import AutoConfig

    from .configuration_vanilla_transformer import VanillaTransformerConfig

    AutoConfig.register(VanillaTransformerConfig.model_type, VanillaTransformerConfig, exist_ok=True)


def _register_models() -> None:
    from transformers import AutoModel, AutoModelForSeq2SeqLM

    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel

    AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, VanillaTransformerForConditionalGeneration, exist_ok=True)


def _register_tokenizer() -> None:
    from transformers import AutoTokenizer

    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

    AutoTokenizer.register(VanillaTransformerConfig, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)


def _register_pipeline() -> None:
    from .pipeline_vanilla_transformer import register_translation_pipeline

    register_translation_pipeline()


class _Registration:
    """
    What is to be done once `theirs`, a module of transformers, is imported; and, where that happens while `ours` is
    being imported, once that is, too.
    """

    def __init__(self, theirs: str, ours: str, registration: Callable[[], None]):
        self.theirs, self.ours, self.registration = theirs, ours, registration
        self.done = False

    def attempt_when_possible(self) -> None:
        self.attempt()
        for name in (self.theirs, self.ours):
            if name not in sys.modules:
                sys.meta_path.insert(0, _Follower(name, self.attempt))

    def attempt(self) -> None:
        unfinished = self.ours in sys.modules and not hasattr(sys.modules[self.ours], "__all__")  # its last name
        if self.done or unfinished or self.theirs not in sys.modules:
            return
        self.done = True
        self.registration()


class _Follower(MetaPathFinder, Loader):
    """Imports one module as it is imported otherwise, and then calls a function, once."""

    def __init__(self, name: str, then: Callable[[], None]):
        self.name, self.then = name, then
        self.loader: Loader | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        assert self.loader is not None and module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then()
