"""The systems of `bench_decoding` have the same weights and generate the same number of words."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import bench_decoding
from vanilla_transformer.utils.file_utils import save_model_folder

ENGINES = ["engine, not compiled", "engine, bfloat16, not compiled", "engine", "engine, bfloat16"]
ENGINES += ["engine, int8"] * (find_spec("torchao") is not None)
SYSTEMS = ["Marian", *ENGINES, "CTranslate2", "CTranslate2, int8"]


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    """Take eager steps, and run every toolkit in this environment."""
    monkeypatch.setattr(bench_decoding, "COMPILE", False)
    monkeypatch.setattr(bench_decoding.Peer, "python", lambda self: Path(sys.executable))


def test_bench_decoding_systems_have_the_same_weights(tmp_path, capsys):
    bench_decoding.main(["--sizes", "tiny", "--rounds", "1", "--output_dir", str(tmp_path)])
    text = capsys.readouterr().out
    assert ("no int8 without torchao" in text) == ("engine, int8" not in ENGINES)
    rows = json.loads((tmp_path / "decoding.json").read_text())["rows"]
    assert [row["system"] for row in rows] == 2 * SYSTEMS
    assert [row["what"] for row in rows] == [f"tiny, {what}" for what in ("greedy", "beam 4") for _ in SYSTEMS]
    exact = [row for row in rows if row["system"] in ("Marian", "engine, not compiled", "engine", "CTranslate2")]
    assert [row["outputs as Marian's"] for row in exact] == 8 * ["32 of 32"]
    assert rows[0]["speedup over Marian"] == rows[len(SYSTEMS)]["speedup over Marian"] == 1.0
    assert {row["system"] for row in rows if row["over CTranslate2"] is not None} == {*ENGINES}
    shares = {row["system"]: row["share of products"] for row in rows if "share of products" in row}
    assert shares.keys() == {"engine", "engine, bfloat16"} and all(0 < share < 1 for share in shares.values())


def test_bench_decoding_refuses_different_numbers_of_words(monkeypatch):
    class Shorter(bench_decoding.Marian):
        name = "shorter"

    plain = bench_decoding.translate_in_file_order

    def shortened(model, tokenizer, texts, beams, most):
        return [text.rsplit(" ", 1)[0] for text in plain(model, tokenizer, texts, beams, most)]

    monkeypatch.setattr(bench_decoding, "translate_in_file_order", shortened)
    with pytest.raises(ValueError, match="must return 32 words per sentence, but {'shorter'} did not"):
        bench_decoding.translate_random_words([Shorter()], "small", bench_decoding.DecodingArguments(rounds=1))


def test_bench_decoding_scores_a_text(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "source").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    (tmp_path / "target").write_text("Ein Mann schläft.\nZwei Hunde.\nGras\n")
    text = ["--sentences", str(tmp_path / "source"), "--references", str(tmp_path / "target")]
    bench_decoding.main(["--folder", str(folder), *text, "--rounds", "1", "--output_dir", str(tmp_path)])
    rows = json.loads((tmp_path / "decoding.json").read_text())["rows"]
    whole = [row for row in rows if row["what"].startswith("text")]
    assert [row["system"] for row in whole] == 2 * SYSTEMS and all("BLEU" in row for row in whole)
    assert len(rows) == 2 * len(whole)
    with pytest.raises(ValueError, match="--sentences FILE"):
        bench_decoding.main(["--folder", str(folder)])
