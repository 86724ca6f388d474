"""
Compiled steps of the engine, kept on disk.

A step is compiled ahead of time, by `torch.export` and AOTInductor, into a package with its weights, laid out for the
processor. Packages are machine code. So they are kept in a cache folder of the user, `VANILLA_TRANSFORMER_CACHE` or
`$HF_HOME/vanilla_transformer`, and never in a model folder, which someone else may have written. The name of a package
is a hash of all that it depends on: a package of other weights, another version of torch or another processor is not
found, and one that is damaged is compiled again.
"""

import hashlib
import inspect
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers.utils import logging

from vanilla_transformer.file_utils import cached_folder, find_damage
from vanilla_transformer.generation_vanilla_transformer import length_penalty
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerDecoderLayer

from .finished_hypotheses import pick
from .static_decoder import StaticDecoder
from .static_search import SearchStep
from .top_k import top_continuations

logger = logging.get_logger(__name__)
Step = Callable[..., Any]
_PACKAGE = "step.pt2"
# An object of each module with code of a step.
_CODE = (SearchStep, StaticDecoder, VanillaTransformerDecoderLayer, length_penalty, pick, top_continuations)


class CompiledSteps:
    """
    The step of an engine and its compiled forms, one for each size of its arguments.

    Args:
        step: Maps `(state, memory)` to nothing and updates them.
        compile: See [`Engine`].

    Raises:
        ValueError: `compile` is not one of the three values.
    """

    def __init__(self, step: nn.Module, compile: bool | str):
        check_compile(compile)
        self.step = step
        self._compile = compile if next(step.parameters()).device.type == "cpu" else False
        self._forms: dict[tuple[int, ...], Step] = {}

    def find(self, arguments: Any) -> Step:
        """Return the step for arguments of these sizes: a compiled one, if there is one or it is to be made now."""
        if not self._compile:
            return self.step
        size = tuple(arguments[0].ancestors.shape)
        if size not in self._forms:
            self._forms[size] = self._load(arguments) or self.step
        return self._forms[size]

    def _load(self, arguments: Any) -> Step | None:
        name = f"{self.identity}-{'x'.join(map(str, arguments[0].ancestors.shape))}"
        folder = cache_folder() / name
        if not folder.is_dir() or find_damage(folder) is not None:
            if self._compile is not True:
                return None
            if find_compiler() is None:
                logger.warning_once("There is no C++ compiler, so decoding is not compiled. Install g++.")
                return None
            cached_folder(cache_folder(), name, lambda new: compile_step(self.step, arguments, new / _PACKAGE))
        package = torch._inductor.aoti_load_package(str(folder / _PACKAGE))
        return lambda *new: package(pytree.tree_leaves(new))

    def are_cached(self) -> bool:
        """Tell whether the cache has compiled forms of this step, for arguments of any size."""
        return bool(self._compile) and cache_is_used() and any(cache_folder().glob(f"{self.identity}-*"))

    @property
    def identity(self) -> str:
        """A hash of all that compiled steps depend on, besides the sizes of their arguments."""
        if not hasattr(self, "_identity"):
            digest = hashlib.sha256()
            for part in _parts(self.step):
                digest.update(part)
            self._identity = digest.hexdigest()[:32]
        return self._identity


def check_compile(compile: bool | str) -> None:
    """Check a value of `compile`.

    Raises:
        ValueError: It is not one of the three values.
    """
    if compile not in (True, False, "auto"):
        raise ValueError(f"`compile` must be True, False or 'auto', got {compile!r}.")


def find_compiler() -> str | None:
    """Return the path of the C++ compiler, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def cache_is_used() -> bool:
    """Tell whether the cache has compiled forms of any step. In contrast to the identity of a step, this is cheap."""
    return cache_folder().is_dir() and any(cache_folder().iterdir())


def cache_folder() -> Path:
    """Return the folder of compiled steps."""
    root = os.environ.get("VANILLA_TRANSFORMER_CACHE") or Path(HF_HOME) / "vanilla_transformer"
    return Path(root).expanduser() / "compiled_steps"


def compile_step(step: nn.Module, arguments: Any, path: Path) -> None:
    """Compile a step for arguments of these sizes into a package."""
    leaves, structure = pytree.tree_flatten(arguments)
    with torch.no_grad():
        program = torch.export.export(_FlatStep(step, structure), (leaves,), strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs={"freezing": True})


class _FlatStep(nn.Module):
    """A step whose argument is one list of tensors: packages know no other types."""

    def __init__(self, step: nn.Module, structure: Any):
        super().__init__()
        self.step, self.structure = step, structure

    def forward(self, leaves: list[Tensor]) -> tuple[()]:
        return self.step(*pytree.tree_unflatten(leaves, self.structure))


def _parts(step: Any) -> Iterator[Any]:
    """Yield what the code of a compiled step depends on, as bytes."""
    sources = [Path(inspect.getfile(each)).read_text(encoding="utf-8") for each in _CODE]
    facts = torch.__version__, torch.backends.cpu.get_cpu_capability(), _processor()
    settings = torch.get_num_threads(), step.options, str(step), os.environ.get("CXX")
    yield repr((*sources, *facts, *settings)).encode()
    for name, weight in step.state_dict(keep_vars=True).items():
        yield f"{name} {weight.dtype} {tuple(weight.shape)}".encode()
        yield weight.detach().contiguous().view(torch.uint8).numpy()


def _processor() -> str:
    """Return the name and the instruction sets of the processor."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return platform.platform() + platform.processor()
    lines = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))


__all__ = ["CompiledSteps", "cache_folder", "cache_is_used", "check_compile", "compile_step", "find_compiler"]
