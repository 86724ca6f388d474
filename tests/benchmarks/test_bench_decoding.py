"""The systems of `bench_decoding` have the same weights and generate the same number of words."""

import json
from importlib.util import find_spec
from itertools import product

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


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


def measure(output_dir, *words):
    """Run the benchmark once, and return its rows."""
    bench_decoding.main([*words, "--rounds", "1", "--output_dir", str(output_dir)])
    return json.loads((output_dir / "decoding.json").read_text())["rows"]


def column(rows, name):
    return [row[name] for row in rows]


def test_systems_have_both_kinds_of_steps(folder, monkeypatch):
    assert list(PEERS) == ["Marian", *AT_ONCE, *COMPILED, *RIVALS]
    made = []

    def make(*_, **options):
        made.append((options.pop("compile"), options.pop("precision"), options))

    monkeypatch.setattr(bench_decoding, "TranslationPipeline", make)
    for name in [*AT_ONCE, *COMPILED]:
        PEERS[name].load(folder)
    assert made[:2] == [(False, "float32", {}), (False, "auto", {})]
    assert made[2:4] == [(True, "float32", {}), (True, "auto", {})]


def test_systems_have_the_same_weights(tmp_path, capsys, monkeypatch):
    written = []
    plain = bench_decoding.write_report

    def write_report(name, options, rows, *more, **others):
        written.append(len(rows))
        plain(name, options, rows, *more, **others)

    monkeypatch.setattr(bench_decoding, "write_report", write_report)
    systems = ["--systems", "Marian", "at once", "CTranslate2"]
    rows = measure(tmp_path, "--sizes", "tiny", "--count", "50", *systems)
    text = capsys.readouterr().out
    assert ("no int8 without torchao" in text) == ("engine, compiled, int8" not in COMPILED)
    assert "tiny: auto is " in text
    assert column(rows, "system") == 6 * UNCOMPILED
    kinds = ("tiny", "tiny, text", "tiny, one at a time")
    tasks = product(kinds, ("greedy", "beam 4"), UNCOMPILED)
    assert column(rows, "what") == [f"{kind}, {search}" for kind, search, _ in tasks]
    assert written == [5, 10, 15, 20, 25, 30, 30]
    exact = [row for row in rows if row["system"] == "Marian" or "float32" in row["system"]]
    counts = 6 * ["32 of 32"] + 6 * ["50 of 50"] + 6 * ["40 of 40"]
    assert column(exact, "outputs as Marian's") == counts
    assert {row["system"] for row in rows if row[RATIO] is not None} == {*AT_ONCE}
    assert ["ms a sentence" in row for row in rows] == 20 * [False] + 10 * [True]


def test_small_model_is_measured_as_opus_mt(tmp_path, monkeypatch):
    sizes = dict.fromkeys(bench_decoding.OPUS_SIZES, 32)
    sizes |= {name: 2 for name in sizes if "layers" in name or "heads" in name}
    sizes["max_position_embeddings"] = 64
    monkeypatch.setattr(bench_decoding, "OPUS_SIZES", sizes)
    monkeypatch.setitem(bench_decoding.VOCAB_SIZES, bench_decoding.OPUS, 120)
    chosen = ["--systems", "Marian", "at once", "CTranslate2"]
    chosen += ["--rows", "text", "one at a time"]
    rows = measure(tmp_path, "--sizes", "opus", "--count", "40", *chosen)
    assert column(rows, "system") == 4 * UNCOMPILED
    exact = [row for row in rows if row["system"] in ("Marian", AT_ONCE[0])]
    # Beams are rounded.
    greedy = [row for row in rows if "greedy" in row["what"]]
    exact += [row for row in greedy if row["system"] == RIVALS[0]]
    assert column(exact, "outputs as Marian's") == 10 * ["40 of 40"]


def test_chosen_rows_and_systems_are_measured(tmp_path, capsys):
    chosen = ["--rows", "one at a time, greedy", "--systems", "CTranslate2, int8"]
    (row,) = measure(tmp_path, "--sizes", "tiny", *chosen)
    assert "| tiny | one at a time, greedy, ms |" in capsys.readouterr().out
    assert row["what"] == "tiny, one at a time, greedy"
    assert row["system"] == "CTranslate2, int8"
    for nothing in (["--rows", "three"], ["--systems", "none"]):
        with pytest.raises(ValueError, match="There must be a row and a system, got --rows"):
            bench_decoding.main(["--sizes", "tiny", *nothing, "--output_dir", str(tmp_path)])


def answers(seconds, text="a b"):
    rows = {}
    for name, rounds in seconds.items():
        rows[name] = [{"outputs": [text, text], "seconds": times} for times in rounds]
    return rows


def test_best_rounds_are_compared_with_ctranslate2():
    systems = [PEERS[name] for name in ("engine, at once, auto", *RIVALS)]
    seconds = {"engine, at once, auto": [[3.0], [4.0]], "CTranslate2, float32": [[1.0], [9.0]]}
    seconds["CTranslate2, int8"] = [[2.0], [2.0]]
    task = Task("small, text, greedy", ["a", "b"], 2, 2, 2)
    rows = bench_decoding.compared(systems, task, answers(seconds))
    assert column(rows, "sentences/s") == pytest.approx([2 / 3, 2.0, 1.0])
    assert column(rows, RATIO) == [pytest.approx(1 / 3), None, None]
    assert column(rows, "slowest round, %") == pytest.approx([100 / 3, 800, 0])
    one = task._replace(what="small, one, greedy", at_once=1)
    times = {}
    for name, rounds in seconds.items():
        times[name] = [[first, first + 2] for (first,) in rounds]
    single = bench_decoding.compared(systems, one, answers(times))
    medians = [4000, 2000, 3000]  # of the best round
    assert column(single, "ms a sentence") == pytest.approx(medians)
    assert bench_decoding.overview([*rows, *single])[:3] == [
        "| small | text, greedy | one, greedy, ms |",
        "|---|---|---|",
        "| engine, at once, auto | 0.67 (0.33) | 4,000 (0.50) |",
    ]
    alone = bench_decoding.compared(systems[:1], task, answers(seconds))
    assert alone[0][RATIO] is None
    assert bench_decoding.overview(alone)[2] == "| engine, at once, auto | 0.67 |"


def test_different_numbers_of_words_are_refused():
    task = Task("small, greedy", ["a", "b"], 32, 2, 1)
    rows = answers({"Marian": [[1.0]]}, " ".join(32 * "a"))
    rows |= answers({AT_ONCE[0]: [[1.0]]}, " ".join(31 * "a"))
    message = "must return 32 words per sentence, but {'engine, at once, float32'} did not"
    with pytest.raises(ValueError, match=message):
        bench_decoding.compared([PEERS["Marian"], PEERS[AT_ONCE[0]]], task, rows)


def test_text_is_scored(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "source").write_text("A man is sleeping.\nTwo dogs.\nGrass\n")
    (tmp_path / "target").write_text("Ein Mann schläft.\nZwei Hunde.\nGras\n")
    words = ["--folder", str(folder), "--sentences", str(tmp_path / "source")]
    words += ["--references", str(tmp_path / "target")]
    monkeypatch.setattr(peers, "find_spec", lambda name: None)  # CTranslate2 is not installed
    words += ["--systems", "Marian", "at once, float32", "CTranslate2"]
    rows = measure(tmp_path, *words)
    assert "CTranslate2 is not installed: pip install" in capsys.readouterr().out
    whole = [row for row in rows if row["what"].startswith("trained, text")]
    assert column(whole, "system") == 2 * ["Marian", AT_ONCE[0]]
    assert all("BLEU" in row for row in whole)
    assert len(rows) == 2 * len(whole)
    with pytest.raises(ValueError, match="--sentences FILE"):
        bench_decoding.main(["--folder", str(folder)])
