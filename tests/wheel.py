"""The wheel of this package, built from the files that the image of Docker copies."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build_wheel(folder: Path) -> Path:
    """Build the wheel in `folder` and return its path. The working tree stays unchanged."""
    source = folder / "source"
    source.mkdir()
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = re.findall(
        r"^COPY (.*) \S+$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE
    )
    for name in " ".join(copied).split():
        assert name in allowed, f"docker/Dockerfile copies {name}, which .dockerignore leaves out"
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    command = [sys.executable, "-m", "pip", "wheel", *options, source]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    (path,) = folder.glob("*.whl")
    return path
