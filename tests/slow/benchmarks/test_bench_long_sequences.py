"""The command `bench_long_sequences` writes its table, its numbers and its picture."""

import json

from benchmarks import bench_long_sequences


def test_bench_long_sequences_writes_table_json_and_picture(tmp_path, monkeypatch):
    values, sides = bench_long_sequences.CURVES["length"]
    monkeypatch.setitem(bench_long_sequences.CURVES, "length", ([16], {"linear": sides["linear"]}))
    monkeypatch.setattr(bench_long_sequences, "_conclusions", lambda name, points: [])
    bench_long_sequences.main(["--curves", "length", "--rounds", "1", "--output_dir", str(tmp_path)])
    (found,) = json.loads((tmp_path / "long_sequences.json").read_text())["length"]
    assert found["value"] == 16 and found["linear"].keys() == {"seconds", "mib", "parameters_mib"}
    assert "| 16 | " in (tmp_path / "long_sequences.md").read_text()
    assert (tmp_path / "long_sequences.png").exists()
