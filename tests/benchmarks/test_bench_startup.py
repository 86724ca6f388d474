"""`bench_startup` measures imports, commands and translations in separate processes."""

from benchmarks import bench_startup


def test_bench_startup_measures_each_program(folder, monkeypatch):
    monkeypatch.setattr(bench_startup, "STATEMENTS", ["import vanilla_transformer"])
    monkeypatch.setattr(bench_startup, "COMMANDS", (["--help"],))
    rows = bench_startup.measure(folder, rounds=1)
    expected = [
        "`import vanilla_transformer`",
        "`vanilla-transformer --help`",
        "first translation",
        "second translation",
    ]
    assert [row["what"] for row in rows] == expected
    assert all(row["seconds"] > 0 for row in rows) and rows[2]["peak memory, MiB"] > rows[0]["peak memory, MiB"] > 5
