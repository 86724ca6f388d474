"""Programs and tests that talk to the local Hub of `tests/local_hub.py` with the real client."""

import json
import os
import subprocess
import sys

from huggingface_hub import constants

from tests.local_hub import TOKEN


def run_with_hub(hub, folder, *command, offline=False, **options):
    """Run a Python program in a new process, because huggingface_hub reads the Hub's address when it is imported.

    Caches are below `folder`, which is the working directory.
    """
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "home"),
        "HF_HUB_CACHE": str(folder / "home" / "hub"),
        "HF_MODULES_CACHE": str(folder / "home" / "modules"),
        "HF_TOKEN": TOKEN,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": str(int(offline)),
    }
    return subprocess.run(
        [sys.executable, *map(str, command)], env=environment, cwd=folder, text=True, capture_output=True, **options
    )


def read_answer(process):
    """Return the JSON in the last line that a program printed."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])  # Trainer prints as well


def use_hub_in_this_process(hub, monkeypatch):
    """Point the client of this process to the local Hub."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub
