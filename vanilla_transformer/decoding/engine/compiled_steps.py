"""
Compiled steps of the engine, kept on disk.

An engine decodes eagerly at first. Once that has taken a few seconds, another process of low
priority compiles its step into a package, see [`step_package`], and the engine uses it from then
on. On one or two cores, this process starts when nothing has been decoded for a second, or when the
program ends.

Packages are machine code. So they are kept in a cache folder of the user,
`VANILLA_TRANSFORMER_CACHE` or `$HF_HOME/vanilla_transformer`, and never in a model folder, which
someone else may have written. The name of a package is a hash of all that it depends on: a package
of another architecture, another version of torch or another processor is not found, and one that is
damaged is compiled again.
"""

import copy
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from vanilla_transformer.decoding.weight_packing import MOST_PLAIN_ROWS
from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.files.hashes import cached_folder, find_damage
from vanilla_transformer.files.private_folders import check_inductor_caches
from vanilla_transformer.machine.compiler import explain_compiler_error, find_compiler
from vanilla_transformer.machine.cores import at_most_threads, usable_cores
from vanilla_transformer.user_input.reasons import first_line
from vanilla_transformer.user_input.user_modules import child_environment

from .idle_work import idle_work
from .machine_cache import cache_folder, identity_of, is_usable, prepare_cache
from .slot_buffers import SlotBuffers
from .step_package import (
    FEW_ROWS,
    MANY_ROWS,
    MOST_FEW_ROWS,
    CompiledStep,
    Dimensions,
    StepCompiler,
    kinds_of,
)
from .thread_choice import ThreadChoice

logger = logging.get_logger(__name__)
Step = Callable[..., Any]
EAGER_SECONDS = 3.0  # of eager steps until they are compiled
FEW_CORES = 2  # with which nothing compiles while an engine decodes
_NICENESS = "10"  # of the process that compiles
_one_at_a_time = threading.Lock()  # of threads that begin to compile in the background
_latest: subprocess.Popen | None = None  # of the processes that compile, for all engines


@dataclass
class _Form:
    """
    One compiled form of a step.

    Attributes:
        is_sought: The cache has not been searched yet.
        missed_seconds: Seconds for which the engine has had to do without it.
        began: Compiling in another process, which may have failed, or will begin when no engine
            decodes.
        worker: This process, until its end is noticed.
    """

    step: Step | None = None
    is_sought: bool = True
    missed_seconds: float = 0.0
    began: bool = False
    worker: subprocess.Popen | None = None


class CompiledSteps:
    """
    The step of an engine and its compiled forms, which serve any number of slots and of positions.

    There are two forms, for few and for many rows; see [`kinds_of`].

    Args:
        step: Maps `(state, memory)` to nothing and updates them.
        buffers: The tensors of the slots.
    """

    def __init__(self, step: nn.Module, compile: bool | str, buffers: SlotBuffers):
        self.step = step
        self._compile, self._buffers = compile, buffers
        self._forms = {kind: _Form() for kind in kinds_of(step)}
        # By the power of two of the number of rows, and by threads
        self._choices = dict[Any, ThreadChoice]()
        self._steps, self._seconds = 0, 0.0  # of all steps

    def run(self, count: int, *arguments: Any) -> None:
        """
        Run the step `count` times. With `"auto"`, compile it in the background if its form is
        missing for long.

        On few cores, the compiler would take one from the decoding. So it starts once none is in
        progress.
        """
        step, start = self.find(arguments), time.perf_counter()
        for _ in range(count):
            step(*arguments)
        elapsed = time.perf_counter() - start
        self._steps, self._seconds = self._steps + count, self._seconds + elapsed
        kind = self._kind(arguments[0].last_tokens.numel())
        form = self._forms[kind]
        if step is form.step or self._compile != "auto" or form.began:
            return
        form.missed_seconds += elapsed
        if form.missed_seconds > EAGER_SECONDS and usable_cores() > FEW_CORES:
            self._compile_elsewhere(kind)
        elif form.missed_seconds > EAGER_SECONDS:
            form.began = True
            idle_work.add(partial(self._compile_elsewhere, kind))

    def decoding(self) -> AbstractContextManager[None]:
        """Tell others that an engine decodes."""
        return idle_work.decoding()

    @contextmanager
    def sharing_cores(self, rows: int) -> Iterator[None]:
        """Compute on the threads that are fastest with so many rows, and leave a core to a process
        that compiles.
        """
        leaves_core = _is_compiling() and self._threads >= usable_cores() > 1
        most = self._threads - leaves_core
        numbers = most, 1 if rows <= MOST_PLAIN_ROWS else -(-most // 2)
        choice = self._choices.setdefault(
            ((rows - 1).bit_length(), numbers), ThreadChoice(*numbers)
        )
        number, steps, seconds = choice.choose(), self._steps, self._seconds
        with at_most_threads(number):
            yield
        if self._steps > steps:  # and not wide ones alone
            choice.add(number, (self._seconds - seconds) / (self._steps - steps))

    def find(self, arguments: Any) -> Step:
        """Return the step: a compiled one, if there is one or it is to be made now.

        Few rows also use that of many.
        """
        if not self._compile:
            return self.step
        if self._compile is True:
            for kind in self._forms:
                self._compiled(kind)
        kind = self._kind(arguments[0].last_tokens.numel())
        return self._compiled(kind) or self._compiled(MANY_ROWS) or self.step

    @property
    def is_compiled(self) -> bool:
        """Whether there is a compiled form."""
        return any(form.step is not None for form in self._forms.values())

    @cached_property
    def _threads(self) -> int:
        """The threads that compute outside of [`sharing_cores`]."""
        return torch.get_num_threads()

    @cached_property
    def identity(self) -> str:
        """A hash of all that the compiled forms depend on, with which the names of their folders
        begin.
        """
        options = getattr(self.step, "options", None)
        settings = self._threads, options, str(self.step), os.environ.get("CXX")
        return identity_of(self.step, _read_sources(), *settings)

    def _folder(self, kind: str) -> Path:
        return cache_folder() / f"{self.identity}_{kind}"

    def _is_missing(self, kind: str) -> bool:
        folder = self._folder(kind)
        return not folder.is_dir() or find_damage(folder) is not None

    def _kind(self, hypotheses: int) -> str:
        rows = hypotheses * getattr(self.step, "width", 1)
        return FEW_ROWS if FEW_ROWS in self._forms and rows <= MOST_FEW_ROWS else MANY_ROWS

    def _compiled(self, kind: str) -> Step | None:
        """Return a form, after a look at the cache and at the process that compiles it."""
        form = self._forms[kind]
        if form.is_sought:
            form.is_sought = False
            form.step = self._load(kind)
        if form.worker is not None and form.worker.poll() is not None:
            worker, form.worker = form.worker, None
            if worker.returncode:
                errors: Any = worker.stderr
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                _warn_of_failure((lines or ["it was killed"])[-1])
            else:
                form.step = self._load(kind)
                if form.step is not None:
                    logger.warning_once(
                        "Decoding continues with compiled steps, with which later runs begin."
                    )
        return form.step

    def _load(self, kind: str) -> Step | None:
        folder = self._folder(kind)
        if not is_usable(folder):
            return None
        if self._is_missing(kind):
            if self._compile is not True or not _has_compiler():
                return None
            names = dict[str, str]()
            for form_kind in self._forms:
                form_folder = self._folder(form_kind)
                if is_usable(form_folder) and self._is_missing(form_kind):
                    names[form_kind] = form_folder.name
            arguments, dimensions = self._buffers.example(), self._buffers.dimensions()
            write_packages(self.step, arguments, dimensions, names)
        try:
            return CompiledStep(folder, self.step)
        except (OSError, RuntimeError, ValueError, LookupError, TypeError) as error:
            problem = f"The compiled step {folder} cannot be loaded"
            reason = first_line(error)
            logger.warning_once(f"{problem}, so decoding is not compiled: {reason}.")
            return None

    def _compile_elsewhere(self, kind: str) -> None:
        """Compile a form in another process, of low priority, unless one compiles for another
        engine.

        No thread waits for it: one that returns from torch's code after the end of the interpreter
        aborts the process.
        """
        global _latest
        with _one_at_a_time:
            form, folder = self._forms[kind], self._folder(kind)
            form.began = not _is_compiling()
            if not form.began or not is_usable(folder) or not _has_compiler():
                return
            try:
                _latest = form.worker = _start_worker(
                    self.step, self._buffers, self._threads, folder.name, kind
                )
            except Exception as problem:  # decoding does not need it
                _warn_of_failure(f"{type(problem).__name__}: {' '.join(str(problem).split())}")


def check_compile(compile: bool | str) -> None:
    """Check a value of `compile`."""
    if compile not in (True, False, "auto"):
        raise UserError(f"`compile` must be True, False or 'auto', got {compile!r}.")


def _warn_of_failure(error: str) -> None:
    logger.warning_once(f"Compiling failed, so decoding is not compiled: {error}.")


def _is_compiling() -> bool:
    return _latest is not None and _latest.poll() is None


def _has_compiler() -> bool:
    if find_compiler() is None:
        logger.warning_once("There is no C++ compiler, so decoding is not compiled. Install g++.")
        return False
    return True


def write_packages(
    step: nn.Module, arguments: Any, dimensions: Dimensions, names: Mapping[str, str]
) -> None:
    """Compile the forms of a step into the named entries of the cache, unless another process has
    compiled them.

    Args:
        names: Name of the entry of each form, by form.
    """
    check_inductor_caches()
    prepare_cache(cache_folder())
    compiler = StepCompiler(step, arguments, dimensions)
    for kind, name in names.items():
        try:
            cached_folder(cache_folder(), name, partial(compiler.compile, kind), mode=0o700)
        except RuntimeError as error:
            reason = explain_compiler_error(error)
            if reason is None:
                raise
            raise UserFileError(reason) from error


def _start_worker(
    step: nn.Module, buffers: SlotBuffers, threads: int, name: str, kind: str
) -> subprocess.Popen:
    """Compile a step in another process, which outlives this one, so that the next one finds the
    package.
    """
    content, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - the process outlives this
    bare_step = _without_hooks(step, {})
    torch.save((bare_step, buffers.example(), buffers.dimensions(), threads), content)
    content.seek(0)
    command = [sys.executable, "-m", f"{__package__}.compile_worker", name, kind]
    nice = shutil.which("nice")  # also while the worker imports torch
    if nice:
        command = [nice, "-n", _NICENESS, *command]
    process = subprocess.Popen(
        command,
        stdin=content,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=child_environment(),
        start_new_session=True,
    )
    if hasattr(os, "sched_setaffinity"):
        # One core, also for the compilers that the process starts
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
    content.close()
    process.stderr = errors
    return process


def _without_hooks(module: nn.Module, copied: dict[nn.Module, nn.Module]) -> nn.Module:
    """Return a copy of a module without hooks: those by which the library records outputs cannot be
    pickled.
    """
    if module not in copied:
        bare: Any = copied.setdefault(module, copy.copy(module))
        bare._forward_hooks, bare._forward_pre_hooks = OrderedDict(), OrderedDict()
        bare._modules = {}
        for name, child in module._modules.items():
            bare._modules[name] = child and _without_hooks(child, copied)
    return copied[module]


@cache
def _read_sources() -> str:
    """Return the code on which steps depend, as it is when the first step is sought."""
    root = Path(__file__).parents[2]
    paths = [root / "decoding" / "weight_packing.py"]
    for folder in (root, root / "decoding" / "engine"):
        paths += sorted(folder.glob("*.py"))
    return "".join(path.read_text(encoding="utf-8") for path in paths)
