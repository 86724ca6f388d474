"""Metrics are means over steps, and lines that survive a crash."""

import json
import math
import sys

import pytest
from accelerate import Accelerator

from vanilla_transformer.training.metrics import (
    METRICS_FILE,
    MetricsLogger,
    StepMetrics,
    StepSums,
    append_entry,
    read_entries,
    truncate_metrics,
)

STEPS = [StepSums(10.0, 12.0, 5.0, 9.0, 10.0), StepSums(2.0, 3.0, 3.0, 6.0, 10.0)]


def test_step_metrics_are_means_and_continue_from_a_state():
    stopped, metrics = StepMetrics(), StepMetrics()
    stopped.add(STEPS[0])
    metrics.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    metrics.add(STEPS[1])
    entry = metrics.pop()
    assert (entry["loss"], entry["smoothed_loss"]) == (12 / 8, 15 / 8)
    assert entry["perplexity"] == pytest.approx(math.exp(12 / 8))
    assert entry["padding"] == pytest.approx(0.25)
    metrics.add(STEPS[1])
    assert metrics.pop()["loss"] == 2 / 3


def test_truncate_metrics_drops_later_steps_and_partial_line(tmp_path):
    truncate_metrics(tmp_path, 4)
    assert (tmp_path / METRICS_FILE).read_bytes() == b""
    for step in (2, 4, 6):
        append_entry(tmp_path, {"step": step, "minutes": 0.5, "loss": 1.0})
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"step": 8, "lo')
    truncate_metrics(tmp_path, 4)
    assert [entry["step"] for entry in read_entries(tmp_path)] == [2, 4]
    append_entry(tmp_path, {"step": 6, "minutes": 0.5})
    assert [entry["step"] for entry in read_entries(tmp_path)] == [2, 4, 6]


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 4, "minu',
        b'{"step": 4, "minutes": 0.5, "text": "\xc3"}',
        b"\0" * 40,
        b"",
        b"[4, 0.5]",
        b"4",
        b'{"stfp": 4, "minutes": 0.5}',
        b'{"step": 4, "minutes": 0.5{"step": 5, "minutes": 0.6}',
    ],
)
def test_truncate_metrics_drops_a_damaged_line_and_names_it(tmp_path, caplog, line):
    for step in (2, 6):
        append_entry(tmp_path, {"step": step, "minutes": 0.5})
    first, last = (tmp_path / METRICS_FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / METRICS_FILE).write_bytes(first + line + b"\n" + last)
    truncate_metrics(tmp_path, 6)
    assert (tmp_path / METRICS_FILE).read_bytes() == first + last
    assert f"{tmp_path / METRICS_FILE} is damaged and read without line 2." in caplog.text


def test_metrics_logger_moves_a_bar_in_a_terminal(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tracked = []
    monkeypatch.setattr(Accelerator, "log", lambda self, values, step: tracked.append(values))
    with MetricsLogger(tmp_path, Accelerator(cpu=True), {"seed": 0}, steps=(3, 10)) as metrics:
        metrics.advance(expected_steps=8)
        entry = {"step": 4, "minutes": 0.5, "loss": 1.5}
        metrics.log_steps(entry | {"tokens_per_second": 10.0, "learning_rate": 0.1})
        assert (metrics.bar.n, metrics.bar.total) == (4, 8)
        assert "loss=1.500" in metrics.bar.postfix
        with caplog.at_level("INFO", logger="vanilla_transformer"):
            entry = {"step": 4, "minutes": 0.5, "validation_loss": 1.234}
            entry |= {"bleu": 30.0, "bleu_signature": "nrefs:1|case:mixed"}
            entry["examples"] = [{"source": "a", "hypothesis": "b", "reference": "c"}]
            metrics.log_validation(entry)
    metrics.write({"step": 5, "minutes": 0.5})
    assert [entry["step"] for entry in read_entries(tmp_path)] == [4, 4, 5]
    shown = ["Validation: step 4, minutes 0.50, validation loss 1.23, bleu 30.00"]
    assert caplog.messages == [*shown, "  source: a\n    hypothesis: b\n    reference: c"]
    assert tracked[1]["examples"] == "a → b → c"
    assert "bleu_signature" not in tracked[1]
