"""A checkpoint that one release of transformers saved loads and decodes equally in all others that
are supported.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.releases import install_release

ROOT = Path(__file__).parents[2]
RELEASES = re.search(r"^RELEASES := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[
    1
].split() + ["installed"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs the script with a release, and returns the answers of each
    checkpoint.
    """
    installed = tmp_path_factory.mktemp("releases")

    def run_script(release, how, folder):
        if release != "installed" and not (installed / release).exists():
            install_release(release, installed / release)
        places = [str(installed / release)] + ([] if how == "code" else [str(ROOT)])
        environment = {"PYTHONPATH": os.pathsep.join(places), "HF_HUB_OFFLINE": "1"}
        environment["HF_HOME"] = str(installed / f"home-{release}")  # of the carried code
        command = [sys.executable, ROOT / "tests" / "checkpoints_of_releases.py", how, folder]
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=os.environ | environment,
            cwd=installed,
            timeout=600,
        )
        assert process.returncode == 0, process.stderr[-3000:]
        used, found = json.loads(process.stdout.splitlines()[-1])
        assert release in ("installed", used)
        return found

    return run_script


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    """Return a folder with the checkpoints of all releases, and the answers of each one before it
    was saved.
    """
    folder, found = tmp_path_factory.mktemp("checkpoints"), {}
    for release in RELEASES:
        found |= run(release, "save", folder)
    assert len(found) == 4 * len(RELEASES)
    return folder, found


@pytest.mark.parametrize("how", ["package", "code"])
@pytest.mark.parametrize("release", RELEASES)
def test_checkpoints_of_all_releases_decode_equally(release, how, run, saved):
    folder, expected = saved
    found = run(release, how, folder)
    assert {name: found[name] == expected[name] for name in expected} == dict.fromkeys(
        expected, True
    )
