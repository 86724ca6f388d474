"""Integration tests of `bench_decoding`: all systems have the same weights and generate the same number of tokens."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import bench_decoding
from vanilla_transformer.file_utils import save_model_folder

SIDES = ["Marian", "ours", "ours, int8", "CTranslate2", "CTranslate2, int8"]
TINY = {"vocab_size": 64, "d_model": 16, "of each side": {"layers": 1, "attention_heads": 2, "ffn_dim": 16}}


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.setattr(bench_decoding, "python_of", lambda name: Path(sys.executable))
    monkeypatch.setitem(bench_decoding.SIZES, "small", TINY)
    return bench_decoding


@pytest.mark.slow
def test_bench_decoding_systems_have_the_same_weights(benchmark, tmp_path, capsys):
    benchmark.main(["--sizes", "small", "--rounds", "1", "--output_file", str(tmp_path / "table.md")])
    assert capsys.readouterr().out == (tmp_path / "table.md").read_text()
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [row["side"] for row in rows] == 2 * SIDES
    assert [row["what"] for row in rows] == 5 * ["small, greedy"] + 5 * ["small, beam 4"]
    assert all(row["same outputs"] == 32 for row in rows if row["side"] in ("Marian", "ours", "CTranslate2"))
    assert rows[0]["ratio"] == rows[5]["ratio"] == 1.0


def test_bench_decoding_refuses_different_numbers_of_tokens(benchmark, monkeypatch):
    model = benchmark.random_model("small")
    model.lm_head.bias.data[2] = 1e4  # ends at once
    monkeypatch.setattr(benchmark, "random_model", lambda size: model)
    with pytest.raises(ValueError, match="must return 32 tokens per sentence, but Marian, ours"):
        benchmark.main(["--sizes", "small", "--rounds", "1"])


@pytest.mark.slow
def test_bench_decoding_scores_a_stream_of_text(benchmark, tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "source").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    (tmp_path / "target").write_text("Ein Mann schläft.\nZwei Hunde.\nGras\n")
    text = ["--sentences", str(tmp_path / "source"), "--references", str(tmp_path / "target")]
    benchmark.main(["--folder", str(folder), *text, "--rounds", "1"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| stream")]
    assert [row[1] for row in rows] == 2 * SIDES and all(len(row) == 7 for row in rows)
    with pytest.raises(ValueError, match="--sentences FILE"):
        benchmark.main(["--folder", str(folder)])


def test_bench_decoding_profiles_both_systems(benchmark, capsys):
    benchmark.main(["--sizes", "small", "--profile"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert 5 < len(rows) <= 12 and all(row[1].endswith("%") for row in rows)


def test_bench_decoding_refuses_words_before_flags(benchmark):
    with pytest.raises(ValueError, match="got 'runs/mine'"):
        benchmark.main(["runs/mine"])
