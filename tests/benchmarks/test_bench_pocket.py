"""The table of a teacher, its student and the student for devices: tiny models, and a program
instead of Bergamot.
"""

import json
from itertools import chain

import pytest

from benchmarks import bench_pocket
from tests.tiny import tiny_model
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.conversion import bergamot
from vanilla_transformer.loading.model_folders import save_model_folder

# Answers each line by itself in capitals, as `node translate.cjs int8 LINES` answers by its
# translation.
PROGRAM = """#!/bin/sh
tr a-z A-Z
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return the command for a tiny model, which is its own teacher.

    Systems run in this process.
    """
    pytest.importorskip("ctranslate2")
    pairs = read_demo_corpus("test", 100)
    for side, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
    texts = [*chain(*pairs)]
    train = VanillaTransformerTokenizer.train_from_iterator
    tokenizer = train(texts, 400, model="sentencepiece")
    padding = tokenizer.pad_token_id
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": padding}
    ids |= {"decoder_start_token_id": padding, "vocab_size": len(tokenizer)}
    model = tiny_model(sinusoid_layout="tensor2tensor", **ids)
    save_model_folder(model, tokenizer, tmp_path / "student")
    (tmp_path / "node").write_text(PROGRAM)
    (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(bench_pocket, "_NODE", tmp_path)
    monkeypatch.setattr(bench_pocket, "install_bergamot", lambda: None)
    monkeypatch.setattr(bergamot, "_find_engines", lambda folder: iter(()))

    def run_worker(python, request, *_):
        return bench_pocket.work({**request})

    monkeypatch.setattr(bench_pocket, "run_worker", run_worker)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    files = {"sentences": "en", "references": "de", "train_source": "en", "train_target": "de"}
    words = [str(tmp_path / "student"), str(tmp_path / "student")]
    for name, file in files.items():
        words += [f"--{name}", str(tmp_path / file)]
    return [*words, "--output_dir", str(tmp_path / "results"), "--rounds", "1"]


def test_bench_pocket_has_a_row_for_each_system(command, tmp_path, capsys):
    systems = ["--systems", "float32", "CTranslate2", "Bergamot"]
    bench_pocket.main([*command, "--lines", "1", *systems])
    rows = json.loads((tmp_path / "results/pocket.json").read_text())["rows"]
    expected = ["teacher, float32, beam 4", "teacher, float32", "student, float32"]
    for toolkit in ("CTranslate2", "Bergamot"):
        expected += [f"{toolkit}, int8", f"{toolkit}, int8 with the shortlist"]
    assert [row["system"] for row in rows] == expected
    assert all(row["speedup"] > 0 for row in rows)
    assert rows[0]["speedup"] == 1
    sizes = {row["system"]: row["MB"] for row in rows}
    for name in ("CTranslate2, int8", "Bergamot, int8"):
        assert sizes[name] < sizes[f"{name} with the shortlist"]
    assert rows[1]["BLEU"] == rows[2]["BLEU"]
    assert rows[-1]["chrF"] == rows[-2]["chrF"] != rows[2]["chrF"]  # of capitals
    assert "One thread; 100 lines" in capsys.readouterr().out


def test_bench_pocket_names_a_text_that_is_one_batch(command):
    with pytest.raises(ValueError, match="more lines than --lines 100, got 100"):
        bench_pocket.main([*command, "--lines", "100"])
