"""The benchmark of cleaning."""

import pytest

from benchmarks.bench_cleaning import RULES, main, predict_seconds


def test_bench_cleaning_prints_a_row_for_each_rule(tmp_path, capsys, monkeypatch):
    names = ["no rule", "drop_other_numbers"]
    monkeypatch.setattr("benchmarks.bench_cleaning.RULES", {name: RULES[name] for name in names})
    (tmp_path / "a.en").write_text("It has 25.\nThe house is old.\n")
    (tmp_path / "a.de").write_text("Es hat 26.\nDas Haus ist alt.\n")
    files = ["--source", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de")]
    main([*files, "--languages", "en", "de", "--pairs", "9"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == [f"| {name}" for name in names]
    assert [row[-1] for row in rows] == ["0.000 % |", "50.000 % |"]


def test_predict_seconds_follows_amdahl():
    assert predict_seconds(10.0, 6.0, 16) == pytest.approx(2.5)
    assert predict_seconds(10.0, 11.0, 16) == 10.0
