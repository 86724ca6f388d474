"""
Makes this package's classes known to the Auto classes and to `pipeline`: at once where those are imported already,
otherwise when they are, so that importing this package takes hardly longer than importing transformers.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def register() -> None:
    """Registers each class as soon as the module of transformers that must know it is there."""
    for theirs, ours, registration in (
        (
            "transformers.models.auto.configuration_auto",
            [
                "configuration_vanilla_transformer",
                "configuration_vanilla_transformer_decoder",
                "configuration_vanilla_transformer_encoder",
                "configuration_vanilla_transformer_long",
            ],
            _register_configurations,
        ),
        (
            "transformers.models.auto.modeling_auto",
            [
                "modeling_vanilla_transformer",
                "modeling_vanilla_transformer_decoder",
                "modeling_vanilla_transformer_encoder",
                "modeling_vanilla_transformer_long",
            ],
            _register_models,
        ),
        ("transformers.models.auto.tokenization_auto", ["tokenization_vanilla_transformer"], _register_tokenizer),
        ("transformers.pipelines", ["pipeline_vanilla_transformer"], _register_pipeline),
    ):
        names = [f"{__package__}.{name}" for name in ours]
        _Registration(theirs, names, registration).attempt_when_possible()


def _configurations() -> list[Any]:
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
    from .configuration_vanilla_transformer_encoder import VanillaTransformerEncoderConfig
    from .configuration_vanilla_transformer_long import (
        VanillaTransformerLongConfig,
        VanillaTransformerLongDecoderConfig,
    )

    return [
        VanillaTransformerConfig,
        VanillaTransformerDecoderConfig,
        VanillaTransformerEncoderConfig,
        VanillaTransformerLongConfig,
        VanillaTransformerLongDecoderConfig,
    ]


def _register_configurations() -> None:
    from transformers import AutoConfig

    for config in _configurations():
        AutoConfig.register(config.model_type, config, exist_ok=True)


def _register_models() -> None:
    import transformers

    from . import (
        modeling_vanilla_transformer,
        modeling_vanilla_transformer_decoder,
        modeling_vanilla_transformer_encoder,
        modeling_vanilla_transformer_long,
    )

    # The same classes, by the same names, that a checkpoint brings along for those who do not have this package.
    modules = (
        modeling_vanilla_transformer,
        modeling_vanilla_transformer_decoder,
        modeling_vanilla_transformer_encoder,
        modeling_vanilla_transformer_long,
    )
    for config in _configurations():
        for auto_class, path in config.remote_code["auto_map"].items():
            if auto_class != "AutoConfig":
                name = path.split(".")[1]
                model = next(getattr(module, name) for module in modules if hasattr(module, name))
                getattr(transformers, auto_class).register(config, model, exist_ok=True)


def _register_tokenizer() -> None:
    from transformers import AutoTokenizer

    from .tokenization_vanilla_transformer import VanillaTransformerTokenizer

    for config in _configurations():
        AutoTokenizer.register(config, fast_tokenizer_class=VanillaTransformerTokenizer, exist_ok=True)


def _register_pipeline() -> None:
    from .pipeline_vanilla_transformer import register_translation_pipeline

    register_translation_pipeline()


class _Registration:
    """
    What is to be done once `theirs`, a module of transformers, is imported; and, where that happens while some of
    `ours` are being imported, once they are, too.
    """

    def __init__(self, theirs: str, ours: Sequence[str], registration: Callable[[], None]):
        self.theirs, self.ours, self.registration = theirs, ours, registration
        self.done = False

    def attempt_when_possible(self) -> None:
        self.attempt()
        for name in (self.theirs, *self.ours):
            if name not in sys.modules:
                sys.meta_path.insert(0, _Follower(name, self.attempt))

    def attempt(self) -> None:
        begun = [sys.modules[name] for name in self.ours if name in sys.modules]
        unfinished = any(not hasattr(module, "__all__") for module in begun)  # its last name
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
