"""Programs and tests that talk to the local Hub of `tests/local_hub.py` with the real client."""

import json
import os

from huggingface_hub import constants

from tests.forked import run_python
from tests.local_hub import TOKEN
from vanilla_transformer.publishing import checks


def run_with_hub(hub, folder, *command, offline=False, **options):
    """Run a Python program whose Hub is `hub`.

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
    return run_python(*command, env=environment, cwd=folder, **options)


def fork_checks(monkeypatch):
    """Let the checks before publishing fork the process that loads a folder without this
    package.
    """

    def fork(command, input, env, cwd, **_):
        return run_python(*command[1:], input=input, env=env, cwd=cwd)

    monkeypatch.setattr(checks.subprocess, "run", fork)


def read_answer(process):
    """Return the JSON in the last line that a program printed."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])  # Trainer prints as well


def use_hub_in_this_process(hub, monkeypatch):
    """Point the client of this process to the local Hub."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(
        "transformers.utils.hub._hf_api", None, raising=False
    )  # which keeps the address of another
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("{repo_id}")
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{hub.url}/{''.join(template[1:])}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub
