"""The check that the bytecode of the environment can be read."""

import py_compile
from pathlib import Path

import pytest

from tools import check_bytecode


@pytest.fixture
def bytecode(tmp_path):
    """Compile a module and return the path of its `.pyc` file."""
    (tmp_path / "module.py").write_text("VALUES = {'text': 'x' * 10}\n\n\ndef square(x):\n    return x * x\n")
    return Path(py_compile.compile(str(tmp_path / "module.py"), doraise=True))


def test_check_bytecode_accepts_compiled_modules(bytecode, tmp_path):
    assert bytecode.is_file()
    assert list(check_bytecode.unreadable_bytecode(tmp_path)) == []


@pytest.mark.parametrize("kept_bytes", [0, 20, 100])
def test_check_bytecode_reports_truncated_files(bytecode, kept_bytes, tmp_path):
    bytecode.write_bytes(bytecode.read_bytes()[:kept_bytes])
    ((path, error),) = check_bytecode.unreadable_bytecode(tmp_path)
    assert path == bytecode
    assert isinstance(error, EOFError | ValueError)
