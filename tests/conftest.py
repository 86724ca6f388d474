"""Load the fixtures, but not in the process that hands tests to workers: it would import torch in
vain.
"""

import gc

import pytest


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected: imported modules stay
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.fixtures")
