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
MAKEFILE = (ROOT / "Makefile").read_text()
NAMED = re.search(r"^RELEASES := (.+)$", MAKEFILE, re.MULTILINE)[1]
RELEASES = [*NAMED.split(), "installed"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs the script with a release, and returns the answers of each
    checkpoint.
    """
    installed = tmp_path_factory.mktemp("releases")

    def run_script(release, how, folder):
        if release != "installed" and not (installed / release).exists():
            install_release(release, installed / release)
        paths = [str(installed / release)]
        if how != "code":
            paths.append(str(ROOT))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
        environment["HF_HOME"] = str(installed / f"home-{release}")  # of the carried code
        command = [sys.executable, ROOT / "tests" / "checkpoints_of_releases.py", how, folder]
        options = {"capture_output": True, "text": True, "cwd": installed, "timeout": 600}
        process = subprocess.run(command, env=environment, **options)
        assert process.returncode == 0, process.stderr[-3000:]
        used, answers = json.loads(process.stdout.splitlines()[-1])
        assert release in ("installed", used)
        return answers

    return run_script


@pytest.fixture(scope="module")
def saved(run, tmp_path_factory):
    """Return a folder with the checkpoints of all releases, and the answers of each one before it
    was saved.
    """
    folder, answers = tmp_path_factory.mktemp("checkpoints"), {}
    for release in RELEASES:
        answers |= run(release, "save", folder)
    assert len(answers) == 4 * len(RELEASES)
    return folder, answers


@pytest.mark.parametrize("how", ["package", "code"])
@pytest.mark.parametrize("release", RELEASES)
def test_checkpoints_of_all_releases_decode_equally(release, how, run, saved):
    folder, expected = saved
    answers = run(release, how, folder)
    for name, answer in expected.items():
        assert answers[name] == answer, name
