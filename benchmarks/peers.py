"""
Environments of the toolkits that this package is compared with: one for each, made where it is not there yet.

    python benchmarks/peers.py [NAME ...]
"""

import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FOLDER = ROOT / ".venv-peers"


@dataclass(frozen=True)
class Peer:
    """What a toolkit is installed from; `alone` is what is installed without all that it asks for."""

    packages: list[str]
    alone: list[str] = field(default_factory=list)


PEERS = {
    "ctranslate2": Peer(["ctranslate2==4.8.5"]),
    "joeynmt": Peer(["torch", "joeynmt==2.3.0", "importlib-metadata<9", "psutil"]),
    # It asks for servers, speech and trackers as well, which training and translating do without.
    "eole": Peer(
        ["torch", "psutil", "pyonmttok", "configargparse", "rapidfuzz", "pyahocorasick", "six", "pyyaml", "tqdm"]
        + ["sacrebleu", "pydantic", "safetensors", "huggingface_hub", "requests", "sentencepiece", "subword-nmt"]
        + ["transformers", "aiohttp", "uvicorn", "fastapi", "pillow"],
        alone=["eole==0.6.4"],
    ),
}


class WillNotInstall(Exception):
    """A peer cannot be had; the text says why. The table names it."""


def python_of(name: str) -> Path:
    """
    The interpreter of a peer's environment, which is made first where need be.

    Raises:
        WillNotInstall: the package index does not have it for this machine, or cannot be reached.
    """
    folder = _FOLDER / name
    if not (folder / ".ready").exists():
        print(f"Installing {name} ...", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _install(folder, name, PEERS[name].packages)
        _install(folder, name, PEERS[name].alone, "--no-deps")
        (folder / ".ready").touch()
    return folder / "bin" / "python"


def _install(folder: Path, name: str, packages: list[str], *options: str) -> None:
    if not packages:
        return
    # The same torch on all sides.
    wanted = [f"torch=={version('torch').split('+')[0]}" if package == "torch" else package for package in packages]
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ended = subprocess.run([*command, *options, *wanted], capture_output=True, text=True)
    if ended.returncode:
        raise WillNotInstall(f"{name} will not install: {ended.stderr.strip().splitlines()[-1]}")


if __name__ == "__main__":
    for asked in sys.argv[1:] or PEERS:
        print(python_of(asked))
