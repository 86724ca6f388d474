"""Integration tests of `bench_all` and of benchmarks that start processes or write corpora."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import bench_all, bench_quality, bench_startup, bench_training, harness, toolkits


def test_bench_all_refuses_unknown_parts():
    with pytest.raises(ValueError, match="no part 'speed'. The parts are decoding, training, memory"):
        bench_all.main(["speed"])


def test_bench_all_runs_named_parts_and_collects_their_tables(monkeypatch, tmp_path, capsys):
    def part(data, options):
        assert (data / "test.de").exists() and options.short
        (Path(options.output_dir) / "startup.md").write_text("a table\n")

    monkeypatch.setitem(bench_all.PARTS, "startup", part)
    bench_all.main(["startup", "--short", "--output_dir", str(tmp_path)])
    assert "## startup\n\na table" in (tmp_path / "benchmark.md").read_text()
    assert str(tmp_path / "benchmark.md") in capsys.readouterr().out


def test_bench_all_stream_needs_a_trained_model(tmp_path):
    with pytest.raises(ValueError, match="Pass --model FOLDER or run the part"):
        bench_all.main(["stream", "--output_dir", str(tmp_path)])


def test_toolkits_installation_failure_appears_in_the_table(monkeypatch, tmp_path):
    monkeypatch.setattr(toolkits, "_FOLDER", tmp_path)
    monkeypatch.setattr(toolkits.venv, "create", lambda *_, **__: None)
    failed = SimpleNamespace(returncode=1, stderr="ERROR: No matching distribution found for joeynmt==2.3.0\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(toolkits.InstallationFailed, match="joeynmt cannot be installed: ERROR: No matching"):
        toolkits.python_of("joeynmt")
    reason = bench_training._reason_to_leave_out("JoeyNMT, float32")
    assert (
        reason.startswith("joeynmt cannot be installed") and bench_training._reason_to_leave_out("ours, bf16") is None
    )
    report = {
        "machine": harness.describe_machine(),
        "text": "text",
        "results": {"ours, bf16": [MEASURED]},
        "missing": [reason],
    }
    options = {"attn_implementation": "sdpa", "max_tokens": 2048, "sentences": 128, "repeats": 1, "seconds": 1.0}
    assert reason in bench_training.markdown(report | options | {"updates": 1, "note": "", "passive_wait": False})


MEASURED = {"tokens_per_second": 2.0, "tokens_per_cpu_second": 1.0, "updates": 1, "target_tokens_an_update": 2.0}
MEASURED |= {"target_padding": 0.0, "peak_mib": 4.0, "peak_over_resident_mib": 1.0, "cores_busy_with_others": 0.0}
MEASURED |= {"parameters": 9}


def test_bench_training_ratios_are_relative_to_the_best_toolkit():
    peer = MEASURED | {"tokens_per_second": 1.0, "peak_mib": 8.0}
    worse = peer | {"tokens_per_second": 0.5, "peak_mib": 16.0}
    results = {"ours, bf16": [MEASURED], "JoeyNMT, float32": [worse], "eole, float32": [peer]}
    for passive_wait, place in ((False, 3), (True, 5)):  # CPU seconds count work only while waiting threads sleep
        cells = list(bench_training._cells(results["ours, bf16"], results, passive_wait))
        assert cells[1] == "2.00" and cells[place] == "0.50"


def test_toolkits_subwords_decode_to_the_text(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    lines = ["Two dogs.", "A man is sleeping, near  the water."]
    (tmp_path / "train.en").write_text("\n".join(lines) + "\n")
    toolkits.write_subwords(tmp_path, ["train.en"])
    written = (tmp_path / "subwords" / "train.en").read_text().splitlines()
    vocabulary = (tmp_path / "subwords" / "vocabulary").read_text().splitlines()
    assert vocabulary[:4] == toolkits.SPECIAL
    assert len(set(vocabulary)) == len(vocabulary) == len(tiny_tokenizer) + 1  # plus an unknown token
    assert all(set(line.split()) <= set(vocabulary) for line in written)
    encoded = [tiny_tokenizer.decode(tiny_tokenizer(line)["input_ids"], skip_special_tokens=True) for line in lines]
    assert toolkits.as_text(tmp_path, written) == [text.strip() for text in encoded]


@pytest.mark.parametrize("toolkit", toolkits.NAMES)
def test_toolkits_configurations_contain_every_option(toolkit, tmp_path):
    options = {
        "d_model": 48,
        "heads": 2,
        "layers": 7,
        "ffn_dim": 96,
        "max_tokens": 1234,
        "warmup_steps": 55,
        "seed": 9,
    }
    text = toolkits.write_config(toolkit, tmp_path, tmp_path / "model", options).read_text()
    for value in options.values():
        assert f": {value}\n" in text, value


def test_bench_quality_table_contains_failed_runs():
    rows = [{"side": "ours, bf16", "seed": 1, "BLEU": 30.04, "updates": 1500}]
    rows.append({"side": "eole", "seed": 1, "failed": "eole cannot be installed: no network\nmore"})
    lines = bench_quality.markdown(rows, bench_quality.QualityArguments(minutes=2.0))
    assert lines[0].startswith("| system | seed | BLEU after 2 minutes")
    assert lines[2:4] == ["| ours, bf16 | 1 | 30.0 | 1,500 |", "| eole | 1 | eole cannot be installed: no network | |"]


def test_bench_startup_compares_first_and_second_translation():
    assert bench_startup.markdown({"first translation": 3.0, "second translation": 2.0})[-1].startswith(
        "The first translation takes 1.50 times"
    )
