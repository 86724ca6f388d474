"""The command `bench_scaling` measures both systems."""

import json

from benchmarks import bench_scaling


def test_bench_scaling_measures_both_systems(tmp_path):
    bench_scaling.main(
        ["--curves", "beams,pairs of text", "--points", "1", "--rounds", "1", "--output_dir", str(tmp_path)]
    )
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert found.keys() == {"beams", "pairs of text"}
    assert all(
        point[side]["seconds"] > 0 for points in found.values() for point in points for side in bench_scaling.SIDES
    )
