"""The settings in which numeric tests run, and their table."""

import subprocess
from itertools import combinations, product

from tools import vary_processors
from tools.vary_processors import (
    ATEN,
    ONEDNN,
    ROOT,
    THREADS,
    Setting,
    main,
    numeric_tests,
    pairwise_settings,
)


def test_pairwise_settings_have_all_pairs_of_values():
    settings = pairwise_settings()
    columns = zip(*settings, strict=True)
    values = zip(columns, (ATEN, ONEDNN, THREADS), strict=True)
    for (column, choices), (other, other_choices) in combinations(values, 2):
        assert {*zip(column, other, strict=True)} == {*product(choices, other_choices)}
    assert len(settings) == 12


def test_environment_leaves_instructions_out(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert "ONEDNN_MAX_CPU_ISA" not in Setting("avx2", None, 1).environment()
    environment = Setting("default", "SSE41", 4).environment()
    expected = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    expected["TEST_THREADS"] = "4"
    assert expected.items() <= environment.items()


def test_numeric_tests_compare_numbers_or_tokens():
    paths = {*numeric_tests()}
    assert "tests/golden/test_golden.py" in paths
    assert "tests/integration/decoding/test_neighbors.py" in paths
    assert "tests/unit/cli/test_flags.py" not in paths
    assert all((ROOT / path).exists() for path in paths)


def test_table_has_a_row_for_each_setting(monkeypatch, capsys):
    """It names failed tests."""

    def run(command, env, **_):
        if env["TEST_THREADS"] == "1":
            return subprocess.CompletedProcess(command, 0, "3 passed, 1 warning in 3.21s")
        lines = "FAILED a.py::b - assert\n1 failed, 2 passed in 3.21s"
        return subprocess.CompletedProcess(command, 1, lines)

    settings = [Setting("avx2", None, 1), Setting("avx2", None, 2)]
    monkeypatch.setattr(vary_processors.subprocess, "run", run)
    monkeypatch.setattr(vary_processors, "pairwise_settings", lambda: settings)
    assert main(["--tests", "a.py"]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| avx2 | unset | 1 | 3 passed | 0 |",
        "| avx2 | unset | 2 | 1 failed, 2 passed | 0 |",
        "",
        "avx2, unset, 2: FAILED a.py::b - assert",
    ]
