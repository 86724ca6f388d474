"""Files of the plots. At its first use, matplotlib starts a process that looks for fonts."""

import json

import pytest

from vanilla_transformer.evaluation.plots import plot_attention, plot_learning_curve


def test_plots_are_png_files(tiny_model, tiny_tokenizer, tmp_path):
    metrics = [{"minutes": 0.5, "loss": 3.0}, {"minutes": 1.0, "validation_loss": 2.0, "bleu": 9.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, metrics)))
    pictures = [
        plot_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png"),
        plot_attention(tiny_model, tiny_tokenizer, "Two dogs run.", tmp_path / "attention.png"),
    ]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_plot_learning_curve_refuses_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="metrics.jsonl"):
        plot_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png")


def test_plots_leave_the_backend_as_it_is(tmp_path, monkeypatch):
    import matplotlib

    before = matplotlib.get_backend()
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    (tmp_path / "metrics.jsonl").write_text('{"minutes": 0.5, "loss": 3.0}\n')
    plot_learning_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png")
    assert matplotlib.get_backend() == "svg" != before
