"""The message for a missing extra, and names that are imported at first use."""

import gc
import json
import os
import sys
import types

import pytest

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.imports import (
    collection_paused,
    is_command_line,
    lazy_names,
    requires_extra,
)
from vanilla_transformer.user_input.user_modules import child_environment


def test_requires_extra_names_the_extra_and_passes_other_errors_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = r"^The ONNX export needs .*onnx.* `pip install 'vanilla-transformer\[onnx\]'`\.$"
    with pytest.raises(UserError, match=message), requires_extra("onnx", "The ONNX export"):
        import onnx  # noqa: F401
    with pytest.raises(KeyError), requires_extra("onnx", "The ONNX export"):
        raise KeyError("unrelated")


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_paused_restores_the_setting_after_an_error(enabled):
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        with pytest.raises(ImportError), collection_paused():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if before else gc.disable()


def test_lazy_names_are_imported_at_first_use_and_listed(monkeypatch):
    package = types.ModuleType("lazy_package")
    monkeypatch.setitem(sys.modules, "lazy_package", package)
    package.__getattr__, package.__dir__ = lazy_names("lazy_package", {"dumps": "json"})
    assert "dumps" in dir(package) and "dumps" not in vars(package)
    assert package.dumps is json.dumps and vars(package)["dumps"] is json.dumps
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'loads'"):
        _ = package.loads


@pytest.mark.parametrize(
    ("argv", "is_worker", "expected"),
    [
        (["/bin/vanilla-transformer", "train"], False, True),
        ([r"vanilla-transformer.exe", "train"], False, True),
        (["/bin/vanilla-transformer", "train"], True, False),
        (["-m", "vanilla_transformer"], False, True),
        (["-m", "vanilla_transformer"], True, False),
        (["-m", "vanilla_transformer.module"], False, False),
        (["-m", "x"], False, False),
        (["train.py"], False, False),
        ([""], False, False),
        ([], False, False),
    ],
)
def test_is_command_line_excludes_workers(argv, is_worker, expected, monkeypatch):
    monkeypatch.setattr("sys.argv", argv)
    monkeypatch.setattr("sys.orig_argv", ["python", "-X", "dev", *argv])
    monkeypatch.setattr("sys.modules", {"multiprocessing": None} if is_worker else {})
    assert is_command_line() is expected


def test_child_environment_has_no_current_folder(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/a", "/b"])
    environment = child_environment()
    assert (
        environment["PYTHONPATH"] == os.pathsep.join(["/a", "/b"])
        and environment["PYTHONSAFEPATH"] == "1"
    )
