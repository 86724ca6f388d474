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
    assert [result.name for result in results] == [
        *names,
        "loads without the package",
        "same translations",
    ]


def test_check_folder_finds_trusted_code_that_cannot_load(folder):
    (folder / "pipeline_vanilla_transformer.py").unlink()
    found = failed(folder, trust_remote_code=True)
    assert "pipeline_vanilla_transformer" in found["loads without the package"]
    assert "same translations" in found, "a check that did not run must not pass"


def test_check_folder_finds_translations_that_differ_from_this_package(folder):
    path = folder / "pipeline_vanilla_transformer.py"
    code = path.read_text(encoding="utf-8")
    line = "        return [text.strip() for text in texts]\n"
    assert line in code
    path.write_text(
        code.replace(line, line.replace(".strip()", ".strip() + '!'")), encoding="utf-8"
    )
    found = failed(add_card(folder), trust_remote_code=True)
    assert found.keys() == {"same translations"}
    assert "with this package and" in found["same translations"]
