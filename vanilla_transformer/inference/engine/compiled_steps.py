"""
Compiled steps of the engine, kept on disk.

An engine decodes eagerly at first. Once that has taken a few seconds, another process of low priority compiles its
step into a package, see [`step_package`], and the engine uses it from then on. Packages are machine code. So they are
kept in a cache folder of the user, `VANILLA_TRANSFORMER_CACHE` or `$HF_HOME/vanilla_transformer`, and never in a model
folder, which someone else may have written. The name of a package is a hash of all that it depends on: a package of
another architecture, another version of torch or another processor is not found, and one that is damaged is compiled
again.
"""

import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from vanilla_transformer.cpu_utils import usable_cores
from vanilla_transformer.file_utils import cached_folder, find_damage

from .machine_cache import cache_root, find_foreign, identity_of, shape_of
from .slot_buffers import SlotBuffers
from .step_package import CompiledStep, compile_step

logger = logging.get_logger(__name__)
Step = Callable[..., Any]
EAGER_SECONDS = 3.0  # of eager steps until they are compiled
_NICENESS = "10"  # of the process that compiles
_one_at_a_time = threading.Lock()  # of compilations in the background


class CompiledSteps:
    """
    The step of an engine and its compiled form, which serves any number of slots and of positions.

    Args:
        step: Maps `(state, memory)` to nothing and updates them.
        compile: See [`Engine`].
        buffers: The tensors of the slots.

    Raises:
        ValueError: `compile` is not one of the three values.
    """

    def __init__(self, step: nn.Module, compile: bool | str, buffers: SlotBuffers):
        check_compile(compile)
        self.step = step
        self._compile, self._buffers = compile, buffers
        self._form: Step | None = None
        self._eager_seconds = 0.0
        self._began = False  # compiling in another process, which may have failed
        self._leaves_core = False

    def run(self, count: int, *arguments: Any) -> None:
        """Run the step `count` times. With `"auto"`, compile it in the background if it has run eagerly for long.

        Args:
            arguments: The state and the memory, which are updated.
        """
        step, start = self.find(arguments), time.perf_counter()
        for _ in range(count):
            step(*arguments)
        if step is self.step and self._compile == "auto" and not self._began:
            self._eager_seconds += time.perf_counter() - start
            if self._eager_seconds > EAGER_SECONDS:
                self._began = True
                if _has_compiler():
                    self._leaves_core = torch.get_num_threads() >= usable_cores() > 1
                    threading.Thread(target=self._compile_elsewhere, daemon=True).start()

    @contextmanager
    def sharing_cores(self) -> Iterator[None]:
        """Leave a core to a process that compiles: threads that wait for each other are slow on a shared one."""
        threads = torch.get_num_threads()
        if not self._leaves_core:
            yield
            return
        torch.set_num_threads(threads - 1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def find(self, arguments: Any) -> Step:
        """Return the step: the compiled one, if there is one or it is to be made now."""
        if not self._compile:
            return self.step
        if self._form is None:
            self._form = self._load() or self.step
        return self._form

    def are_cached(self) -> bool:
        """Tell whether the cache has the compiled form of this step."""
        return bool(self._compile) and (cache_folder() / self.identity).is_dir()

    @property
    def identity(self) -> str:
        """A hash of all that the compiled step depends on."""
        if not hasattr(self, "_identity"):
            options = getattr(self.step, "options", None)
            settings = torch.get_num_threads(), options, str(self.step), os.environ.get("CXX")
            self._identity = identity_of(*shape_of(self.step), _SOURCES, *settings)
        return self._identity

    def _load(self) -> Step | None:
        folder = cache_folder() / self.identity
        if not folder.is_dir() or find_damage(folder) is not None:
            if self._compile is not True or not _has_compiler():
                return None
            write_package(self.step, self._buffers, self.identity)
        other = find_foreign(folder)
        if other is not None:
            logger.warning_once(f"Compiled steps must be in folders that only you can write, so {other} is not used.")
            return None
        try:
            return CompiledStep(folder, self.step)
        except (OSError, RuntimeError, ValueError, LookupError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            logger.warning_once(f"The compiled step {folder} cannot be loaded, so decoding is not compiled: {reason}.")
            return None

    def _compile_elsewhere(self) -> None:
        """Compile the step in another process, of low priority, and use it from then on."""
        with _one_at_a_time:
            try:
                error = _run_worker(self.step, self._buffers, self.identity)
            finally:
                self._leaves_core = False
            compiled = None if error else self._load()
        if compiled is None:
            logger.warning_once(f"Compiling failed, so decoding is not compiled: {error}.")
        else:
            self._form = compiled


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


def cache_folder() -> Path:
    """Return the folder of compiled steps."""
    return cache_root() / "compiled_steps"


def write_package(step: nn.Module, buffers: SlotBuffers, name: str) -> None:
    """Compile a step into an entry of the cache, as [`compile_step`] does."""
    arguments, dimensions = buffers.example(), buffers.dimensions()
    cached_folder(cache_folder(), name, lambda new: compile_step(step, arguments, dimensions, new))


def _run_worker(step: nn.Module, buffers: SlotBuffers, name: str) -> str | None:
    """Compile a step in another process, and wait for it. Return None, or the last line of its errors.

    The process outlives this one, so that the next one finds the package.
    """
    content = io.BytesIO()
    torch.save((step, buffers.example(), buffers.dimensions(), torch.get_num_threads()), content)
    nice = shutil.which("nice")  # also while the worker imports torch
    process = subprocess.Popen(
        [*([nice, "-n", _NICENESS] if nice else []), sys.executable, "-m", f"{__package__}.compile_worker", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        start_new_session=True,
    )
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})  # one core, also for the compilers it starts
    errors = process.communicate(content.getvalue())[1].decode(errors="replace").strip()
    return (errors.splitlines() or ["it was killed"])[-1] if process.returncode else None


def _read_sources() -> str:
    """Return the code on which steps depend. An installation may replace it while the process runs."""
    root = Path(__file__).parents[2]
    folders = root, root / "inference" / "engine", root / "inference" / "search"
    return "".join(path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.py")))


_SOURCES = _read_sources()
__all__ = ["CompiledSteps", "cache_folder", "check_compile", "find_compiler", "write_package"]
