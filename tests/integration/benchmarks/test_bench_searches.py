"""Integration tests of `bench_searches`: a row for each search."""

import pytest

from benchmarks import bench_searches


@pytest.fixture(autouse=True)
def _few_sentences(monkeypatch):
    for name, value in {"_SENTENCES": 2, "_SOURCE_TOKENS": 3, "_TARGET_TOKENS": 6}.items():
        monkeypatch.setattr(bench_searches, name, value)


def test_bench_searches_has_a_row_for_each_search(capsys):
    bench_searches.main(["--size", "tiny", "--rounds", "1"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0].removeprefix("| ") for row in rows[1:]] == ["plain", *bench_searches.SEARCHES]
    assert rows[1][2] == "1.00 |" and all(float(row[1]) > 0 for row in rows[1:])


def test_bench_searches_names_a_missing_text():
    with pytest.raises(ValueError, match="`folder` translates a text"):
        bench_searches.main(["--folder", "runs/mine"])
