"""Checks before publishing that load the folder in a new process without this package."""

import pytest

from tests.local_hub import fork_checks
from tests.publishable import add_card, failed
from vanilla_transformer.publishing import checks


@pytest.fixture(autouse=True)
def _fork_checks(monkeypatch):
    fork_checks(monkeypatch)


def test_check_folder_passes_a_good_folder_without_this_package(folder, capfd):
    results = checks.check_folder(folder)
    assert not checks.failed_checks(results)
    names = ["files", "no pickle", "weights", "private data", "card", "hashes", "code"]
    names += ["loads without the package", "same translations"]
    assert [result.name for result in results] == names


def test_check_folder_finds_trusted_code_that_cannot_load(folder):
    (folder / "pipeline_vanilla_transformer.py").unlink()
    failures = failed(folder, trust_remote_code=True)
    assert "pipeline_vanilla_transformer" in failures["loads without the package"]
    assert "same translations" in failures, "a check that did not run must not pass"


def test_check_folder_finds_translations_that_differ_from_this_package(folder):
    path = folder / "pipeline_vanilla_transformer.py"
    code = path.read_text(encoding="utf-8")
    line = "        return [text.strip() for text in texts]\n"
    assert line in code
    changed = line.replace(".strip()", ".strip() + '!'")
    path.write_text(code.replace(line, changed), encoding="utf-8")
    failures = failed(add_card(folder), trust_remote_code=True)
    assert failures.keys() == {"same translations"}
    assert "with this package and" in failures["same translations"]
