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
    for places in combinations(range(3), 2):
        values = [(ATEN, ONEDNN, THREADS)[place] for place in places]
        assert {tuple(setting[place] for place in places) for setting in settings} == {
            *product(*values)
        }
    assert len(settings) == 12


def test_environment_leaves_instructions_out(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert "ONEDNN_MAX_CPU_ISA" not in Setting("avx2", None, 1).environment()
    found = Setting("default", "SSE41", 4).environment()
    assert [
        found[name] for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "TEST_THREADS")
    ] == [
        "default",
        "SSE41",
        "4",
    ]


def test_numeric_tests_compare_numbers_or_tokens():
    found = {*numeric_tests()}
    assert {"tests/golden/test_golden.py", "tests/integration/decoding/test_neighbors.py"} <= found
    assert "tests/unit/cli/test_flags.py" not in found and all(
        (ROOT / path).exists() for path in found
    )


def test_table_has_a_row_for_each_setting_and_names_failed_tests(monkeypatch, capsys):
    def run(command, env, **_):
        fails = env["TEST_THREADS"] == "2"
        lines = (
            ["FAILED a.py::b - assert", "1 failed, 2 passed in 3.21s"]
            if fails
            else ["3 passed, 1 warning in 3.21s"]
        )
        return subprocess.CompletedProcess(command, int(fails), "\n".join(lines))

    monkeypatch.setattr(vary_processors.subprocess, "run", run)
    monkeypatch.setattr(
        vary_processors, "pairwise_settings", lambda: [Setting("avx2", None, n) for n in (1, 2)]
    )
    assert main(["--tests", "a.py"]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| avx2 | unset | 1 | 3 passed | 0 |",
        "| avx2 | unset | 2 | 1 failed, 2 passed | 0 |",
        "",
        "avx2, unset, 2: FAILED a.py::b - assert",
    ]
