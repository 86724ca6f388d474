"""Load the fixtures of all tests, except into the process that hands tests to workers: it would import torch in vain."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.fixtures")
