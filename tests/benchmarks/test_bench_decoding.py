"""The systems of `bench_decoding` have the same weights and generate the same number of words."""

import json
from importlib.util import find_spec

import pytest

from benchmarks import bench_decoding, peers
from benchmarks.bench_decoding import PEERS, Task
from vanilla_transformer.loading.model_folders import save_model_folder

AT_ONCE = ["engine, at once, float32", "engine, at once, auto"]
COMPILED = ["engine, compiled, float32", "engine, compiled, auto"]
COMPILED += ["engine, compiled, int8"] * (find_spec("torchao") is not None)
RIVALS = ["CTranslate2, float32", "CTranslate2, int8"]
UNCOMPILED = ["Marian", *AT_ONCE, *RIVALS]
RATIO = "over the better CTranslate2"


def test_bench_decoding_has_both_kinds_of_steps_in_each_precision(
    tiny_model, tiny_tokenizer, tmp_path, monkeypatch
):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    assert list(PEERS) == ["Marian", *AT_ONCE, *COMPILED, *RIVALS]
    made = []
    monkeypatch.setattr(
        bench_decoding, "TranslationPipeline", lambda *_, **options: made.append(options)
    )
    for name in [*AT_ONCE, *COMPILED]:
        PEERS[name].load(folder)
    assert made[:4] == [
        {"precision": precision, "compile": compiled}
        for compiled in (False, True)
        for precision in ("float32", "auto")
    ]


def test_bench_decoding_systems_have_the_same_weights(tmp_path, capsys, monkeypatch):
    written = []
    plain = bench_decoding.write_report

    def write_report(name, options, rows, *more, **others):
        written.append(len(rows))
        plain(name, options, rows, *more, **others)

    monkeypatch.setattr(bench_decoding, "write_report", write_report)
    chosen = ["--systems", "Marian", "at once", "CTranslate2", "--rounds", "1"]
    bench_decoding.main(
        ["--sizes", "tiny", "--count", "50", *chosen, "--output_dir", str(tmp_path)]
    )
    text = capsys.readouterr().out
    assert ("no int8 without torchao" in text) == ("engine, compiled, int8" not in COMPILED)
    assert "tiny: auto is " in text
    rows = json.loads((tmp_path / "decoding.json").read_text())["rows"]
    assert [row["system"] for row in rows] == 6 * UNCOMPILED
    kinds = ("tiny", "tiny, text", "tiny, one at a time")
    assert [row["what"] for row in rows] == [
        f"{k}, {s}" for k in kinds for s in ("greedy", "beam 4") for _ in UNCOMPILED
    ]
    assert written == [5, 10, 15, 20, 25, 30, 30]
    exact = [
        row["outputs as Marian's"]
        for row in rows
        if row["system"] == "Marian" or "float32" in row["system"]
    ]
    assert exact == [f"{count} of {count}" for count in (32, 50, 40) for _ in range(6)]
    assert {row["system"] for row in rows if row[RATIO] is not None} == {*AT_ONCE}
    assert ["ms a sentence" in row for row in rows] == 20 * [False] + 10 * [True]


def test_bench_decoding_measures_a_small_model_as_opus_mt_does(tmp_path, monkeypatch):
    sizes = {
        name: 2 if "layers" in name or "heads" in name else 32 for name in bench_decoding.OPUS_SIZES
    }
    monkeypatch.setattr(bench_decoding, "OPUS_SIZES", sizes | {"max_position_embeddings": 64})
    monkeypatch.setitem(bench_decoding.VOCAB_SIZES, bench_decoding.OPUS, 120)
    chosen = [
        "--systems",
        "Marian",
        "at once",
        "CTranslate2",
        "--rounds",
        "1",
        "--rows",
        "text",
        "one at a time",
    ]
    bench_decoding.main(
        ["--sizes", "opus", "--count", "40", *chosen, "--output_dir", str(tmp_path)]
    )
    rows = json.loads((tmp_path / "decoding.json").read_text())["rows"]
    assert [row["system"] for row in rows] == 4 * UNCOMPILED
    exact = [row for row in rows if row["system"] in ("Marian", AT_ONCE[0])]
    exact += [
        row for row in rows if row["system"] == RIVALS[0] and "greedy" in row["what"]
    ]  # beams are rounded
    assert [row["outputs as Marian's"] for row in exact] == 10 * ["40 of 40"]


def test_bench_decoding_measures_chosen_rows_and_systems(tmp_path, capsys):
    chosen = ["--rows", "one at a time, greedy", "--systems", "CTranslate2, int8", "--rounds", "1"]
    bench_decoding.main(["--sizes", "tiny", *chosen, "--output_dir", str(tmp_path)])
    assert "| tiny | one at a time, greedy, ms |" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "decoding.json").read_text())["rows"]
    assert (row["what"], row["system"]) == ("tiny, one at a time, greedy", "CTranslate2, int8")
    for nothing in (["--rows", "three"], ["--systems", "none"]):
        with pytest.raises(ValueError, match="There must be a row and a system, got --rows"):
            bench_decoding.main(["--sizes", "tiny", *nothing, "--output_dir", str(tmp_path)])


def answers(seconds, text="a b"):
    return {
        name: [{"outputs": [text, text], "seconds": each} for each in rounds]
        for name, rounds in seconds.items()
    }


def test_bench_decoding_compares_best_rounds_with_the_better_ctranslate2():
    systems = [PEERS[name] for name in ("engine, at once, auto", *RIVALS)]
    seconds = {"engine, at once, auto": [[3.0], [4.0]], "CTranslate2, float32": [[1.0], [9.0]]}
    seconds["CTranslate2, int8"] = [[2.0], [2.0]]
    task = Task("small, text, greedy", ["a", "b"], 2, 2, 2)
    rows = bench_decoding.compared(systems, task, answers(seconds))
    assert [row["sentences/s"] for row in rows] == pytest.approx([2 / 3, 2.0, 1.0])
    assert [row[RATIO] for row in rows] == [pytest.approx(1 / 3), None, None]
    assert [row["slowest round, %"] for row in rows] == pytest.approx([100 / 3, 800, 0])
    single = {name: [[each[0], each[0] + 2] for each in rounds] for name, rounds in seconds.items()}
    single = bench_decoding.compared(
        systems, task._replace(what="small, one, greedy", at_once=1), answers(single)
    )
    assert [row["ms a sentence"] for row in single] == pytest.approx(
        [4000, 2000, 3000]
    )  # medians of the best round
    assert bench_decoding.overview([*rows, *single])[:3] == [
        "| small | text, greedy | one, greedy, ms |",
        "|---|---|---|",
        "| engine, at once, auto | 0.67 (0.33) | 4,000 (0.50) |",
    ]
    alone = bench_decoding.compared(systems[:1], task, answers(seconds))
    assert (
        alone[0][RATIO] is None
        and bench_decoding.overview(alone)[2] == "| engine, at once, auto | 0.67 |"
    )


def test_bench_decoding_refuses_different_numbers_of_words():
    task = Task("small, greedy", ["a", "b"], 32, 2, 1)
    found = answers({"Marian": [[1.0]]}, " ".join(32 * "a")) | answers(
        {AT_ONCE[0]: [[1.0]]}, " ".join(31 * "a")
    )
    with pytest.raises(
        ValueError,
        match="must return 32 words per sentence, but {'engine, at once, float32'} did not",
    ):
        bench_decoding.compared([PEERS["Marian"], PEERS[AT_ONCE[0]]], task, found)


def test_bench_decoding_scores_a_text(tiny_model, tiny_tokenizer, tmp_path, capsys, monkeypatch):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    (tmp_path / "source").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    (tmp_path / "target").write_text("Ein Mann schläft.\nZwei Hunde.\nGras\n")
    text = ["--sentences", str(tmp_path / "source"), "--references", str(tmp_path / "target")]
    monkeypatch.setattr(peers, "find_spec", lambda name: None)  # CTranslate2 is not installed
    chosen = ["--systems", "Marian", "at once, float32", "CTranslate2", "--rounds", "1"]
    bench_decoding.main(["--folder", str(folder), *text, *chosen, "--output_dir", str(tmp_path)])
    assert "CTranslate2 is not installed: pip install" in capsys.readouterr().out
    rows = json.loads((tmp_path / "decoding.json").read_text())["rows"]
    whole = [row for row in rows if row["what"].startswith("trained, text")]
    assert [row["system"] for row in whole] == 2 * ["Marian", AT_ONCE[0]] and all(
        "BLEU" in row for row in whole
    )
    assert len(rows) == 2 * len(whole)
    with pytest.raises(ValueError, match="--sentences FILE"):
        bench_decoding.main(["--folder", str(folder)])
