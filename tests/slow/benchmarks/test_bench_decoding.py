"""The systems of `bench_decoding` have the same weights and generate the same number of tokens."""

import json
from importlib.util import find_spec

import pytest

from tests.tiny_benchmarks import shrink_bench_decoding
from vanilla_transformer.file_utils import save_model_folder

ENGINES = ["engine", "engine, bfloat16"] + ["engine, int8"] * (find_spec("torchao") is not None)
SIDES = ["Marian", "ours", "ours, int8", *ENGINES, "CTranslate2", "CTranslate2, int8"]
SHARES = {"ours", "engine", "engine, bfloat16"}


@pytest.fixture
def benchmark(monkeypatch):
    return shrink_bench_decoding(monkeypatch)


def test_bench_decoding_systems_have_the_same_weights(benchmark, tmp_path, capsys):
    benchmark.main(["--sizes", "small", "--rounds", "1", "--output_file", str(tmp_path / "table.md")])
    text = capsys.readouterr().out
    assert text == (tmp_path / "table.md").read_text()
    assert ("no int8 without torchao" in text) == ("engine, int8" not in ENGINES)
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["side"] for row in rows] == 2 * SIDES
    assert [row["what"] for row in rows] == [f"small, {what}" for what in ("greedy", "beam 4") for _ in SIDES]
    assert all(row["same outputs"] == 32 for row in rows if row["side"] in ("Marian", "ours", "engine", "CTranslate2"))
    assert rows[0]["ratio"] == rows[len(SIDES)]["ratio"] == 1.0
    compared = {row["side"] for row in rows if row["to CTranslate2"] is not None}
    assert compared == {"ours", "ours, int8", *ENGINES}
    shares = {row["side"]: row["share of products"] for row in rows if "share of products" in row}
    assert shares.keys() == SHARES and all(0 < share < 1 for share in shares.values())


def test_bench_decoding_scores_a_stream_of_text(benchmark, tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "source").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    (tmp_path / "target").write_text("Ein Mann schläft.\nZwei Hunde.\nGras\n")
    text = ["--sentences", str(tmp_path / "source"), "--references", str(tmp_path / "target")]
    benchmark.main(["--folder", str(folder), *text, "--rounds", "1"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| stream")]
    assert [row[1] for row in rows] == 2 * SIDES and all(len(row) == 9 for row in rows)
    shares = [(row[1], float(row[7])) for row in rows if row[7]]
    assert {side for side, _ in shares} == SHARES and all(0 <= share < 1 for _, share in shares)
    with pytest.raises(ValueError, match="--sentences FILE"):
        benchmark.main(["--folder", str(folder)])
