"""Mark every test of this folder as slow, and install what only some of them need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.axe import install_axe
from tests.browser import open_browser

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "profile") as driver:
        yield driver


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    return install_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="session")
def run_with_torchao(tmp_path_factory):
    """Return a function that runs code in a process that has torchao, whose import prints lines about GPUs."""
    target = tmp_path_factory.mktemp("torchao")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), "torchao==0.18.0"]
    subprocess.run(pip, check=True, capture_output=True)

    def run(code, *arguments):
        paths = {"PYTHONPATH": os.pathsep.join([str(target), os.getcwd()])}
        paths["VANILLA_TRANSFORMER_CACHE"] = str(target / "cache")
        command = [sys.executable, "-c", code, *map(str, arguments)]
        ended = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, timeout=500)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    return run
