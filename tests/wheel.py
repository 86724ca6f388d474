"""The wheel of this package, built from a copy of its sources."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT_FROM = ("vanilla_transformer", "recipes", "model_card", "setup.py", "pyproject.toml", "README.md", "LICENSE")


def build_wheel(folder: Path) -> Path:
    """Build the wheel in `folder` and return its path. The working tree stays unchanged."""
    source = folder / "source"
    source.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    command = [sys.executable, "-m", "pip", "wheel", *options, source]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    (path,) = folder.glob("*.whl")
    return path
