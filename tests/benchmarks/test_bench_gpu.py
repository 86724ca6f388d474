"""The runner of `make gpu` with ready results: the order of parts, files, and the exit status."""

import json

import pytest

from benchmarks import bench_gpu, gpu_decoding, gpu_report
from benchmarks.bench_gpu import main, run_parts, seconds_of_part
from benchmarks.gpu_report import (
    FAILED,
    FINISHED,
    OUT_OF_TIME,
    Rows,
    describe_utilization,
    judge,
    markdown,
    median_seconds,
    model_flops_utilization,
    read_rows,
)
from benchmarks.gpu_training import covered_time, packed_batches, synthetic_batches

ENGINE = {"size": "base", "system": "engine"}
MARIAN = {"size": "base", "system": "MarianMTModel", "batch": 1, "beams": 1}
CAPTIONS = {"size": "small", "captions": 1000, "beams": 4}
ONE_CAPTION = {"size": "small", "captions": 1, "beams": 1}
BIG = {"size": "big", "system": "train_step", "max_tokens": 25000}
BIG |= {"tokens_per_second": 352000, "mfu": 0.4512, "peak_gib": 40.1, "idle": 0.02}
BIG |= {"parameters": 1, "ratio": 2.1, "met": True}
BIG |= {"at_least": {"tokens_per_second": 320000, "mfu": 0.42}}
TRAINING = {"run": "generated text", "measured": "training"}
TRAINING |= {"value": 650000, "unit": "tokens/s", "ratio": 0.94, "steps": 15600}
TRAINING |= {"validations": 3, "checkpoints": 5, "at_least": {"ratio": 0.95}, "met": False}
SECOND_START = {"run": "generated text", "measured": "second start"}
SECOND_START |= {"value": 31.5, "unit": "s", "compile_seconds": 7.5}
SECOND_START |= {"at_most": {"compile_seconds": 10}, "met": True}
RECIPE = {"run": "multi30k_en_de", "measured": "all"}
ROWS = {
    "correctness": [
        {"test": "test_a", "outcome": "passed"},
        {"test": "test_b", "outcome": "failed", "reason": "1 | 2"},
    ],
    "decoding": [
        ENGINE | {"batch": 1, "beams": 1, "tokens_per_second": 1500},
        ENGINE | {"batch": 128, "beams": 4, "tokens_per_second": 61234},
        MARIAN | {"error": "RuntimeError: no"},
    ],
    "pipeline": [
        ONE_CAPTION | {"system": "pipeline", "milliseconds": 3.21},
        CAPTIONS | {"system": "pipeline", "captions_per_second": 4321},
        CAPTIONS | {"system": "CTranslate2 float16", "error": "skipped"},
    ],
    "training": [BIG],
    "recipe": [RECIPE | {"error": "skipped: no network"}],
    "corpus": [TRAINING, SECOND_START],
}
DECODING = {"machine": {"device": "NVIDIA H200"}, "on_gpu": True, "rows": []}
RESULTS_OF_A_GPU = json.dumps({"parts": {"decoding": DECODING}})


@pytest.fixture
def parts(monkeypatch):
    """Replace the parts by ready results; return how each one ends, and the names of those that
    were run.
    """
    ends, ran = dict.fromkeys(bench_gpu.PARTS, FINISHED), []

    def run_part(name, seconds, words):
        ran.append(name)
        if isinstance(ends[name], BaseException):
            raise ends[name]
        return {"status": ends[name], "seconds": 1.0, "rows": ROWS[name]}

    monkeypatch.setattr(bench_gpu, "run_part", run_part)
    monkeypatch.setattr(bench_gpu.signal, "signal", lambda *_: None)
    return ends, ran


@pytest.fixture
def gpu(monkeypatch):
    """Let the runner believe that there is a GPU."""
    device = {"device": "NVIDIA H200", "torch": "2"}
    monkeypatch.setattr(gpu_report, "ON_GPU", True)
    monkeypatch.setattr(gpu_report, "describe_device", lambda: device)


@pytest.fixture
def no_gpu(monkeypatch):
    device = {"device": "no GPU", "torch": "2"}
    monkeypatch.setattr(gpu_report, "ON_GPU", False)
    monkeypatch.setattr(gpu_report, "describe_device", lambda: device)


def parts_in(folder):
    return json.loads((folder / "gpu.json").read_text())["parts"]


def test_run_parts_writes_each_part_in_order(parts, gpu, tmp_path):
    assert run_parts([*bench_gpu.PARTS], tmp_path) == []
    assert parts[1] == [*ROWS] == [*parts_in(tmp_path)]
    written = parts_in(tmp_path)
    assert {name: record["rows"] for name, record in written.items()} == ROWS
    assert (tmp_path / "gpu.md").read_text() == markdown(written)
    assert {path.name for path in tmp_path.iterdir()} == {"gpu.json", "gpu.md"}


def test_interrupted_run_keeps_finished_parts(parts, gpu, tmp_path):
    parts[0]["training"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run_parts([*bench_gpu.PARTS], tmp_path)
    assert [*parts_in(tmp_path)] == ["correctness", "decoding", "pipeline"]
    parts[0]["training"] = FINISHED
    run_parts(["training", "recipe", "corpus"], tmp_path)
    assert [*parts_in(tmp_path)] == [*ROWS]


@pytest.mark.parametrize(
    ("name", "status", "failed"),
    [
        ("correctness", FAILED, ["correctness"]),
        ("correctness", OUT_OF_TIME, ["correctness"]),
        ("decoding", FAILED, ["decoding"]),
        ("training", OUT_OF_TIME, []),
    ],
)
def test_run_continues_after_a_failed_part(name, status, failed, parts, gpu, tmp_path):
    parts[0][name] = status
    assert run_parts([*bench_gpu.PARTS], tmp_path) == failed
    assert len(parts[1]) == 6 and parts_in(tmp_path)[name]["status"] == status


def test_main_exits_with_1_if_a_part_failed(parts, gpu, tmp_path, capsys):
    parts[0]["correctness"] = FAILED
    with pytest.raises(SystemExit, match="1"):
        main(["--output_dir", str(tmp_path)])
    assert capsys.readouterr().err.endswith("error: correctness failed.\n")


@pytest.mark.usefixtures("no_gpu")
def test_main_only_tests_without_a_gpu(parts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([])
    assert parts[1] == ["correctness"] and not [*tmp_path.iterdir()]
    assert "1 passed, 1 failed, 0 skipped." in capsys.readouterr().out


def test_main_writes_to_docs_on_a_gpu(parts, gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    main([])
    assert len(parts_in(tmp_path / "docs")) == 6


KEPT = "must keep the results of NVIDIA H200, but this machine has no GPU"
NO_PART = "no part 'decode'. The parts are correctness, decoding, pipeline, training, recipe"
NO_FOLDER = "`multi30k` must be a folder with train.en, .*, got none.$"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("stored", "words", "message"),
    [
        (RESULTS_OF_A_GPU, ["correctness"], KEPT),
        ("{", ["correctness"], "gpu.json must be a file that `make gpu` wrote"),
        (None, ["decode"], NO_PART),
        (None, ["recipe", "--multi30k", "none"], NO_FOLDER),
    ],
)
def test_main_refuses(stored, words, message, parts, tmp_path):
    """Wrong words are refused, and results that it would lose."""
    path = tmp_path / "gpu.json"
    if stored is not None:
        path.write_text(stored)
    with pytest.raises(ValueError, match=message):
        main([*words, "--output_dir", str(tmp_path)])
    assert parts[1] == []
    assert [*tmp_path.iterdir()] == ([] if stored is None else [path])
    assert stored is None or path.read_text() == stored


def test_parts_take_at_most_30_minutes():
    start = 15  # seconds, to import torch and write the results
    limits = bench_gpu.PARTS
    assert start + sum(limits.values()) + len(limits) * bench_gpu._GRACE <= 30 * 60
    assert limits["training"] + limits["recipe"] + limits["corpus"] <= 15 * 60


@pytest.mark.parametrize(
    ("name", "later", "taken", "seconds"),
    [
        ("decoding", ["training"], {"correctness": 100}, 405),
        ("corpus", [], {}, 900),
        ("training", ["recipe", "corpus"], {"decoding": 405}, 240),
        ("training", [], {}, 900),
        ("recipe", ["corpus"], {"training": 200.5}, 279.5),
        ("corpus", [], {"pipeline": 180, "training": 200, "recipe": 150}, 550),
    ],
)
def test_training_takes_the_seconds_that_are_left(name, later, taken, seconds):
    assert seconds_of_part(name, later, taken) == seconds


def test_recipe_gets_the_folder_of_the_text(parts, gpu, tmp_path, monkeypatch):
    ran = {}

    def run_part(name, *arguments):
        ran[name] = arguments
        return {"status": FINISHED, "seconds": 1.0, "rows": []}

    monkeypatch.setattr(bench_gpu, "run_part", run_part)
    folder = str(tmp_path)
    main(["recipe", "corpus", "--output_dir", folder, "--multi30k", folder])
    assert ran == {"recipe": (480, [folder]), "corpus": (899.0, [])}


SYSTEMS = {"engine", "generate()", "MarianMTModel"}


@pytest.mark.parametrize(
    ("part", "systems", "count"),
    [("decoding", SYSTEMS, 12), ("pipeline", {"pipeline"}, 4)],
)
def test_part_skips_cells_without_time(part, systems, count, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_decoding, "find_spec", lambda name: None)
    path = tmp_path / "rows.jsonl"
    assert gpu_decoding.main(part, str(path), 0.0) == 0
    rows = read_rows(path)
    assert {row["system"] for row in rows} == systems and len(rows) == count
    assert {row["error"] for row in rows} == {"skipped: no time was left"}


def test_pipeline_measures_each_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_decoding, "find_spec", lambda name: None)
    captions = gpu_decoding.CAPTIONS._replace(batches=(1, 3))
    monkeypatch.setattr(gpu_decoding, "CAPTIONS", captions)
    path = tmp_path / "rows.jsonl"
    assert gpu_decoding.main("pipeline", str(path)) == 0
    rows = read_rows(path)
    cells = [(row["captions"], row["beams"]) for row in rows]
    assert cells == [(1, 1), (1, 4), (3, 1), (3, 4)]
    for row in rows:
        assert row.get("milliseconds", 0) > 0 or row["captions_per_second"] > 0


def test_markdown_has_each_cell_with_its_machine():
    machine = {"device": "NVIDIA H200", "torch": "2.11"}
    record = {"machine": machine, "date": "2026-11-22", "seconds": 71.2, "status": FINISHED}
    page = markdown({name: record | {"rows": rows} for name, rows in ROWS.items()})
    for line in (
        "NVIDIA H200; torch 2.11; 2026-11-22; 71 s, finished.",
        "1 passed, 1 failed, 0 skipped.",
        "| test_b | 1 ¦ 2 |",
        "| system (base) | greedy, batch 1 | beam 4, batch 128 |",
        "| engine | 1,500 | 61,234 |",
        "| MarianMTModel | RuntimeError: no |  |",
        "| system | greedy, one | beam 4, 1,000 |",
        "| pipeline | 3.21 ms | 4,321/s |",
        "| CTranslate2 float16 |  | skipped |",
        "| big | train_step | 25,000 | 352,000 | 45.1% | 2.10 | 40.1 GiB | 2.0% |  | "
        "tokens/s ≥ 320,000, MFU ≥ 0.42 | yes |",
        "| multi30k_en_de | all | skipped: no network |  |  |  |  |  |  |  |  |",
        "| generated text | training | 650,000 tokens/s |  | 15,600 |  | 0.94 | 3 | 5 | ratio ≥ "
        "0.95 | no |",
        "| generated text | second start | 31.5 s | 7.5 s |  |  |  |  |  | compiling ≤ 10 | yes |",
    ):
        assert line in page.splitlines()


def test_read_rows_drops_the_row_that_a_kill_truncated(tmp_path):
    rows = Rows(tmp_path / "rows", "part")
    rows.add(system="engine", seconds=1.5)
    with (tmp_path / "rows").open("a") as file:
        file.write('{"system": "eng')
    assert read_rows(tmp_path / "rows") == [{"system": "engine", "seconds": 1.5}]


def test_utilization_counts_six_operations():
    h200 = (210_700_000, 352_000, "NVIDIA H200")
    assert model_flops_utilization(*h200) == pytest.approx(0.45, abs=0.001)
    assert describe_utilization(*h200) == "6 × 210,700,000 × 352,000 / 9.89e+14"
    a100 = (1, 1, "NVIDIA A100")
    assert model_flops_utilization(*a100) is None
    assert describe_utilization(*a100) is None


@pytest.mark.parametrize(
    ("row", "met"),
    [
        ({"rate": 700, "mfu": 0.3, "seconds": 60}, True),
        ({"rate": 699, "mfu": 0.3, "seconds": 60}, False),
        ({"rate": 700, "mfu": 0.3, "seconds": 61}, False),
        ({"rate": 700, "mfu": None, "seconds": 60}, True),  # of a device whose peak is not known
        ({"error": "RuntimeError: no"}, False),
    ],
)
def test_judge_compares_a_row_with_its_goals(row, met):
    goals = {"at_least": {"rate": 700, "mfu": 0.27}, "at_most": {"seconds": 60}}
    assert judge(row, **goals) == row | goals | {"met": met}
    assert judge(row) == row


def test_median_seconds_calls_the_warm_ups_before():
    calls = []
    assert median_seconds(lambda: calls.append(1), warm_ups=2, least=3, most=4) < 1
    assert len(calls) == 2 + 4


def test_covered_time_counts_overlapping_spans_once():
    assert covered_time([(0, 4), (2, 6), (8, 10)]) == 8
    assert covered_time([(5, 9), (6, 7)]) == 4


def test_packed_batches_have_one_shape_and_little_padding():
    batches = packed_batches(4000, 50)
    assert len(batches) == 8
    assert len({batch.tensors["labels"].shape for batch in batches}) == 1
    for batch in batches:
        tokens = int((batch.tensors["labels"] != -100).sum())
        assert batch.counts[:2] == (tokens, tokens)
        assert batch.step_target_tokens == tokens
        assert 0.9 * batch.counts.padded_tokens < 2 * tokens <= 8000


@pytest.mark.parametrize("unit", [1, 8])
def test_synthetic_batches_fill_the_tokens_of_each_update(unit):
    batches = synthetic_batches(1000, 50, unit)
    assert len(batches) == 8
    for batch in batches:
        seen = batch.tensors["attention_mask"].bool()
        assert seen.shape[1] % unit == 0
        assert 500 < seen.numel() <= 1000
        assert (batch.tensors["input_ids"] >= 3).equal(seen)
        assert (batch.tensors["labels"] != -100).equal(seen)
        tokens = seen.sum()
        assert batch.counts == (tokens, tokens, 2 * seen.numel())
        assert batch.step_target_tokens == tokens
