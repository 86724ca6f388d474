"""The cache of this machine: from whose files code is read, and whose are written."""

import os
import shutil
import stat

import pytest
import torch
from torch import nn
from torch._inductor.exc import CppCompileError

from tests.sweeps import rare
from tests.tiny_engines import engine_of, translate
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine import compiled_steps, machine_cache
from vanilla_transformer.decoding.engine.compiled_steps import cache_folder, write_packages
from vanilla_transformer.decoding.engine.machine_cache import (
    identity_of,
    is_usable,
    prepare_cache,
)
from vanilla_transformer.decoding.engine.step_package import StepCompiler
from vanilla_transformer.files.hashes import write_hashes

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no modes")
STRANGER = 65534
as_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can give files away"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def warnings(monkeypatch):
    """Record the warnings of the cache and of compiled steps, which are logged once in a
    process.
    """
    messages = []

    def warn_once(text):
        if text not in messages:
            messages.append(text)

    for module in (machine_cache, compiled_steps):
        monkeypatch.setattr(module.logger, "warning_once", warn_once)
    return messages


@pytest.fixture
def engine(cache, monkeypatch):
    """Return an engine whose cache has a whole package of code, which must not be loaded."""
    engine = engine_of(1, slots=1)
    prepare_cache(cache_folder())
    for kind in engine.steps._forms:
        folder = engine.steps._folder(kind)
        folder.mkdir(mode=0o700)
        (folder / "step.pt2").write_bytes(b"code")
        write_hashes(folder)
    engine.loaded = []

    def load(folder, step):
        engine.loaded.append(folder)
        return step

    monkeypatch.setattr(compiled_steps, "CompiledStep", load)
    return engine


def test_engine_loads_packages_of_the_user(engine, warnings):
    engine.steps.find(engine.buffers.arguments)
    assert engine.loaded == [engine.steps._folder("few_rows")] and not warnings


PLACES = {
    "the cache": lambda cache, package: cache,
    "its folder of steps": lambda cache, package: package.parent,
    "the package": lambda cache, package: package,
    "the code": lambda cache, package: package / "step.pt2",
    "the hashes": lambda cache, package: package / "sha256.json",
}


def refuses(engine, warnings, monkeypatch, reason):
    """Check that an engine decodes eagerly, compiles nothing, and says why in one line."""
    monkeypatch.setattr(compiled_steps, "EAGER_SECONDS", 0.0)
    monkeypatch.setattr(compiled_steps, "FEW_CORES", 0)

    def fail():
        pytest.fail("compiles into a refused cache")

    monkeypatch.setattr(compiled_steps, "_has_compiler", fail)
    assert engine.steps._load("few_rows") is None
    assert translate(engine) == translate(engine_of(1, slots=1, compile=False))
    assert engine.steps._folder("few_rows") not in engine.loaded
    assert len(warnings) == 1 and reason in warnings[0] and "\n" not in warnings[0]
    assert "VANILLA_TRANSFORMER_CACHE can name another folder" in warnings[0]


@as_root
@pytest.mark.parametrize("level", PLACES)
@pytest.mark.parametrize("compile", ["auto", rare(True)])
def test_engine_loads_none_of_another_user(engine, cache, warnings, monkeypatch, level, compile):
    engine.steps._compile = compile
    path = PLACES[level](cache, engine.steps._folder("few_rows"))
    os.chown(path, STRANGER, -1)
    refuses(engine, warnings, monkeypatch, f"{path} belongs to user {STRANGER}")


@pytest.mark.parametrize("level", PLACES)
@pytest.mark.parametrize("bits", [0o002, rare(0o020)])
def test_engine_loads_none_that_others_write(engine, cache, warnings, monkeypatch, level, bits):
    path = PLACES[level](cache, engine.steps._folder("few_rows"))
    path.chmod(path.stat().st_mode | bits)
    refuses(engine, warnings, monkeypatch, f"other users can write {path}")
    assert f"run `chmod -R go-w {cache}`" in warnings[0]


@pytest.mark.parametrize("level", PLACES)
def test_engine_loads_none_through_links(engine, cache, warnings, monkeypatch, tmp_path, level):
    path = PLACES[level](cache, engine.steps._folder("few_rows"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    refuses(engine, warnings, monkeypatch, f"{path} is a link")


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_packages_are_for_the_user_alone(cache, monkeypatch, umask):
    def write(compiler, kind, folder):
        (folder / "step.pt2").write_bytes(b"code")

    monkeypatch.setattr(StepCompiler, "compile", write)
    monkeypatch.setattr(compiled_steps, "check_inductor_caches", lambda: None)
    previous = os.umask(umask)
    try:
        for name in ("package", "another"):  # beside the file of the lock
            write_packages(None, None, None, {"few_rows": name})
    finally:
        os.umask(previous)
    package = cache_folder() / "package"
    for path in (cache, cache_folder(), package):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in package.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_usable(package)


def test_package_is_not_written_to_an_unsafe_cache(cache, monkeypatch):
    def check():
        raise PermissionError("Torch keeps compiled code in …")

    monkeypatch.setattr(compiled_steps, "check_inductor_caches", check)
    monkeypatch.setattr(StepCompiler, "compile", lambda *_: pytest.fail("compiles"))
    with pytest.raises(OSError, match="Torch keeps"):
        write_packages(None, None, None, {"few_rows": "package"})


def test_compile_refuses_a_cache_that_others_may_write(cache, capsys):
    prepare_cache(cache_folder())
    cache.chmod(0o770)
    assert main(["compile", "any"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: The cache of compiled steps is not used, since other users can")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            CppCompileError(
                ["c++"], "x.cpp: In function f\nx.cpp:1: fatal error: no cc1plus\nstopped."
            ),
            (
                OSError,
                r"The C\+\+ compiler .*false must .* fails: x.cpp:1: fatal error: no cc1plus. Rep",
            ),
        ),
        (RuntimeError("a fault of this package"), (RuntimeError, "a fault of this package")),
    ],
)
def test_write_packages_names_a_failing_compiler(cache, monkeypatch, error, expected):
    def fail(*_):
        raise error

    monkeypatch.setenv("CXX", shutil.which("false"))
    monkeypatch.setattr(StepCompiler, "compile", fail)
    with pytest.raises(expected[0], match=expected[1]):
        write_packages(None, None, [], {"few_rows": "entry"})


@pytest.mark.parametrize("name", ["nosuch", "file"])
def test_compiling_needs_a_temporary_folder(cache, tmp_path, monkeypatch, name):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    message = f"TMPDIR must be a folder that you can write, but .*{name} is none"
    with pytest.raises(OSError, match=message):
        write_packages(None, None, [], {})


def test_cache_root_names_a_home_folder_that_is_not_there(monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", "~nosuch/cache")
    message = "must be a folder, but there is no home folder for ~nosuch/cache. Give"
    with pytest.raises(ValueError, match=message):
        machine_cache.cache_root()


def linear(inputs=2, name="weight", dtype=torch.float32, value=0.0):
    step = nn.Module()
    step.register_parameter(name, nn.Parameter(torch.full((3, inputs), value, dtype=dtype)))
    return step


IDENTITY = identity_of(linear(), "few_rows", 4)
OTHER_STEPS = {
    "the dtype": (linear(dtype=torch.bfloat16), "few_rows", 4),
    "the shape": (linear(inputs=3), "few_rows", 4),
    "the name of a weight": (linear(name="bias"), "few_rows", 4),
    "a setting": (linear(), "few_rows", 5),
}


@pytest.mark.parametrize("kind", OTHER_STEPS)
def test_identity_differs_with_all_that_code_depends_on(kind):
    assert identity_of(*OTHER_STEPS[kind]) != IDENTITY


def test_identity_differs_with_the_release_and_the_processor(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.0")
    of_release = identity_of(linear(), "few_rows", 4)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "none")
    assert len({IDENTITY, of_release, identity_of(linear(), "few_rows", 4)}) == 3


def test_identity_is_shared_by_models_with_other_weights():
    assert identity_of(linear(value=1.0), "few_rows", 4) == IDENTITY
