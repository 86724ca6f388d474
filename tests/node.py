"""Programs of Node, and packages from the registry of npm."""

import shutil
import subprocess

import pytest


def require(program):
    return shutil.which(program) or pytest.skip(f"{program} is not installed")


def run_with_network(command, **options):
    """Run a command, or skip the test if the registry of npm cannot be reached."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    if (
        ended.returncode
        and subprocess.run(["npm", "ping"], capture_output=True, timeout=60).returncode
    ):
        pytest.skip("The registry of npm cannot be reached")
    assert ended.returncode == 0, ended.stderr


def install(folder, package):
    """Install a package into `node_modules` of a folder."""
    command = [
        require("npm"),
        "install",
        "--prefix",
        str(folder),
        "--ignore-scripts",
        "--no-audit",
        package,
    ]
    run_with_network(command, cwd=folder)
