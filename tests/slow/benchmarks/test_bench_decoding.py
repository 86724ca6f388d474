"""The systems of `bench_decoding` have the same weights and generate the same number of tokens."""

import json

import pytest

from tests.tiny_benchmarks import shrink_bench_decoding
from vanilla_transformer.file_utils import save_model_folder

SIDES = ["Marian", "ours", "ours, int8", "engine", "engine, bfloat16", "CTranslate2", "CTranslate2, int8"]


@pytest.fixture
def benchmark(monkeypatch):
    return shrink_bench_decoding(monkeypatch)


def test_bench_decoding_systems_have_the_same_weights(benchmark, tmp_path, capsys):
    benchmark.main(["--sizes", "small", "--rounds", "1", "--output_file", str(tmp_path / "table.md")])
    assert capsys.readouterr().out == (tmp_path / "table.md").read_text()
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["side"] for row in rows] == 2 * SIDES
    assert [row["what"] for row in rows] == 7 * ["small, greedy"] + 7 * ["small, beam 4"]
    assert all(row["same outputs"] == 32 for row in rows if row["side"] in ("Marian", "ours", "engine", "CTranslate2"))
    assert rows[0]["ratio"] == rows[7]["ratio"] == 1.0
    shares = {row["side"]: row["share of products"] for row in rows if "share of products" in row}
    assert shares.keys() == {"ours", "engine", "engine, bfloat16"} and all(0 < share < 1 for share in shares.values())


def test_bench_decoding_scores_a_stream_of_text(benchmark, tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "source").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    (tmp_path / "target").write_text("Ein Mann schläft.\nZwei Hunde.\nGras\n")
    text = ["--sentences", str(tmp_path / "source"), "--references", str(tmp_path / "target")]
    benchmark.main(["--folder", str(folder), *text, "--rounds", "1"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| stream")]
    assert [row[1] for row in rows] == 2 * SIDES and all(len(row) == 8 for row in rows)
    with pytest.raises(ValueError, match="--sentences FILE"):
        benchmark.main(["--folder", str(folder)])
