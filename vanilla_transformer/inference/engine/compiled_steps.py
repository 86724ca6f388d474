"""
Compiled steps of the engine, kept on disk.

A step is compiled ahead of time, by `torch.export` and AOTInductor, into a package with its weights, laid out for the
processor. Packages are machine code. So they are kept in a cache folder of the user, `VANILLA_TRANSFORMER_CACHE` or
`$HF_HOME/vanilla_transformer`, and never in a model folder, which someone else may have written. The name of a package
is a hash of all that it depends on: a package of other weights, another version of torch or another processor is not
found, and one that is damaged is compiled again.
"""

import atexit
import inspect
import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers.generation.logits_process import TopPLogitsWarper
from transformers.utils import logging

from vanilla_transformer.file_utils import cached_folder, find_damage
from vanilla_transformer.generation_vanilla_transformer import length_penalty
from vanilla_transformer.inference.search.counter_random import gumbel_noise
from vanilla_transformer.inference.search.finished_hypotheses import pick
from vanilla_transformer.inference.search.lexical_constraints import PhraseTokens
from vanilla_transformer.inference.search.sampling import sample
from vanilla_transformer.inference.search.top_k import top_continuations
from vanilla_transformer.linear_attention import feature_map
from vanilla_transformer.lsh_attention import nearest_buckets
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerDecoderLayer
from vanilla_transformer.reversible import apply_storing_activations

from .alignment_heads import attention_weights
from .coverage import CoveragePenalty
from .ensemble import EnsembleDecoder
from .machine_cache import cache_root, identity_of
from .phrase_constraints import PhraseConstraints
from .search_state import SearchState
from .static_attention import StaticSelfAttention
from .static_decoder import StaticDecoder
from .static_linear_attention import StaticLinearAttention
from .static_lsh_attention import StaticLSHAttention
from .static_search import SearchStep
from .target_prefix import TargetPrefix

logger = logging.get_logger(__name__)
Step = Callable[..., Any]
Size = tuple[int, ...]
RoomDimensions = Sequence[dict[int, int]]
EAGER_SECONDS = 20.0  # of eager steps of one size, about as long as compiling takes, until it is compiled
# Compiling in the background takes idle time only: with a niceness of 10 instead, decoding was half as fast meanwhile.
_NICENESS = "19"
_PACKAGE = "step.pt2"
_one_at_a_time = threading.Lock()  # of compilations in the background
# An object of each module with code of a step.
_CODE: list[Any] = [SearchStep, StaticDecoder, StaticSelfAttention, StaticLinearAttention, StaticLSHAttention]
_CODE += [EnsembleDecoder, VanillaTransformerDecoderLayer, apply_storing_activations, feature_map, nearest_buckets]
_CODE += [
    SearchState,
    TargetPrefix,
    PhraseConstraints,
    length_penalty,
    pick,
    top_continuations,
    PhraseTokens,
    sample,
    gumbel_noise,
    TopPLogitsWarper,
]
_CODE += [CoveragePenalty, attention_weights]
# Read at import: an installation may replace the files while the process runs.
_SOURCES = [Path(inspect.getfile(each)).read_text(encoding="utf-8") for each in _CODE]


class CompiledSteps:
    """
    The step of an engine and its compiled forms, one for each number of slots, which serve any number of positions.

    Args:
        step: Maps `(state, memory)` to nothing and updates them.
        compile: See [`Engine`].
        room_dimensions: See [`SlotBuffers.room_dimensions`].

    Raises:
        ValueError: `compile` is not one of the three values.
    """

    def __init__(self, step: nn.Module, compile: bool | str, room_dimensions: RoomDimensions):
        check_compile(compile)
        self.step = step
        self._compile, self._room_dimensions = compile, room_dimensions
        self._forms: dict[Size, Step] = {}
        self._eager_seconds = defaultdict[Size, float](float)

    def run(self, count: int, *arguments: Any) -> None:
        """Run the step `count` times. With `"auto"`, compile a size in the background if it has run eagerly for long.

        Args:
            arguments: The state and the memory, which are updated.
        """
        step, start = self.find(arguments), time.perf_counter()
        for _ in range(count):
            step(*arguments)
        if step is self.step and self._compile == "auto":
            size = _slots_of(arguments)
            before = self._eager_seconds[size]
            self._eager_seconds[size] += time.perf_counter() - start
            if before < EAGER_SECONDS <= self._eager_seconds[size] and _has_compiler():
                threading.Thread(target=self._compile_elsewhere, args=arguments, daemon=True).start()

    def find(self, arguments: Any) -> Step:
        """Return the step for as many slots: a compiled one, if there is one or it is to be made now."""
        if not self._compile:
            return self.step
        size = _slots_of(arguments)
        if size not in self._forms:
            self._forms[size] = self._load(arguments) or self.step
        return self._forms[size]

    def _load(self, arguments: Any) -> Step | None:
        name = self._name(arguments)
        folder = cache_folder() / name
        if not folder.is_dir() or find_damage(folder) is not None:
            if self._compile is not True or not _has_compiler():
                return None
            write_package(self.step, arguments, self._room_dimensions, name)
        return _CompiledStep(folder / _PACKAGE)

    def _compile_elsewhere(self, *arguments: Any) -> None:
        """Compile the step in another process, of low priority, and use it from then on."""
        with _one_at_a_time:
            error = _run_worker(self.step, arguments, self._room_dimensions, self._name(arguments))
            compiled = None if error else self._load(arguments)
        if compiled is None:
            logger.warning_once(f"Compiling failed, so decoding is not compiled: {error}.")
        else:
            self._forms[_slots_of(arguments)] = compiled

    def _name(self, arguments: Any) -> str:
        return f"{self.identity}-{'x'.join(map(str, _slots_of(arguments)))}"

    def are_cached(self) -> bool:
        """Tell whether the cache has compiled forms of this step, for arguments of any size."""
        return bool(self._compile) and cache_is_used() and any(cache_folder().glob(f"{self.identity}-*"))

    @property
    def identity(self) -> str:
        """A hash of all that compiled steps depend on, besides the sizes of their arguments."""
        if not hasattr(self, "_identity"):
            options = getattr(self.step, "options", None)
            settings = torch.get_num_threads(), options, str(self.step), os.environ.get("CXX")
            self._identity = identity_of(self.step, *_SOURCES, *settings)
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


def _has_compiler() -> bool:
    if find_compiler() is None:
        logger.warning_once("There is no C++ compiler, so decoding is not compiled. Install g++.")
        return False
    return True


def cache_is_used() -> bool:
    """Tell whether the cache has compiled forms of any step. In contrast to the identity of a step, this is cheap."""
    return cache_folder().is_dir() and any(cache_folder().iterdir())


def cache_folder() -> Path:
    """Return the folder of compiled steps."""
    return cache_root() / "compiled_steps"


def write_package(step: nn.Module, arguments: Any, room_dimensions: RoomDimensions, name: str) -> None:
    """Compile a step into an entry of the cache, as [`compile_step`] does."""
    cached_folder(cache_folder(), name, lambda new: compile_step(step, arguments, room_dimensions, new / _PACKAGE))


def compile_step(step: nn.Module, arguments: Any, room_dimensions: RoomDimensions, path: Path) -> None:
    """Compile a step for arguments of these sizes, except for the number of positions, into a package."""
    with _tracing(step):
        program = export_step(step, arguments, room_dimensions)
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs={"freezing": True})


def export_step(
    step: nn.Module, arguments: Any, room_dimensions: RoomDimensions | None = None
) -> torch.export.ExportedProgram:
    """Export a step for arguments of these sizes as a program whose one argument is the list of their tensors.

    Args:
        room_dimensions: The program accepts any number of positions in these dimensions; see
            [`SlotBuffers.room_dimensions`].
    """
    with _tracing(step):
        leaves, structure = pytree.tree_flatten(pytree.tree_map(torch.clone, arguments))
        room: Any = torch.export.Dim("room", min=2)
        shapes = None
        if room_dimensions is not None:
            shapes = ([{dim: growth * room for dim, growth in each.items()} for each in room_dimensions],)
        return torch.export.export(_FlatStep(step, structure), (leaves,), strict=False, dynamic_shapes=shapes)


@contextmanager
def _tracing(step: nn.Module) -> Iterator[None]:
    """Turn autograd off in the way in which the step can be traced."""
    # Quantized weights cannot be traced in inference mode, and weights made in it cannot be traced outside of it.
    with torch.inference_mode(next(step.parameters()).is_inference()), torch.no_grad():
        yield


class _CompiledStep:
    """
    A step from a package.

    Calling the package itself would read its signature from JSON each time, for a tenth of a small step.
    """

    def __init__(self, path: Path):
        self._run = torch._inductor.aoti_load_package(str(path)).loader.boxed_run
        self._arguments: tuple[Any, ...] = ()
        self._leaves: list[Tensor] = []

    def __call__(self, *arguments: Any) -> None:
        if [*map(id, arguments)] != [*map(id, self._arguments)]:
            self._arguments, self._leaves = arguments, pytree.tree_leaves(arguments)
        self._run(list(self._leaves))  # which empties the list


class _FlatStep(nn.Module):
    """A step whose argument is one list of tensors: packages know no other types."""

    def __init__(self, step: nn.Module, structure: Any):
        super().__init__()
        self.step, self.structure = step, structure

    def forward(self, leaves: list[Tensor]) -> tuple[()]:
        return self.step(*pytree.tree_unflatten(leaves, self.structure))


def _run_worker(step: nn.Module, arguments: Any, room_dimensions: RoomDimensions, name: str) -> str | None:
    """Compile a step in another process, and wait for it. Return None, or the last line of its errors."""
    content = io.BytesIO()
    torch.save((step, arguments, room_dimensions, torch.get_num_threads()), content)
    nice = shutil.which("nice")  # also while the worker imports torch
    process = subprocess.Popen(
        [*([nice, "-n", _NICENESS] if nice else []), sys.executable, "-m", f"{__package__}.compile_worker", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    atexit.register(process.kill)  # or it would outlive this process
    try:
        errors = process.communicate(content.getvalue())[1].decode(errors="replace").strip()
    finally:
        atexit.unregister(process.kill)
    return (errors.splitlines() or ["it was killed"])[-1] if process.returncode else None


def _slots_of(arguments: Any) -> Size:
    """Return the numbers of slots and of beams of a step's arguments."""
    return size_of(arguments)[:2]


def size_of(arguments: Any) -> Size:
    """Return the numbers of slots, of beams and of positions of a step's arguments."""
    return tuple(arguments[0].ancestors.shape)


__all__ = ["CompiledSteps", "cache_folder", "cache_is_used", "check_compile", "compile_step", "find_compiler"]
__all__ += ["export_step", "size_of", "write_package"]
