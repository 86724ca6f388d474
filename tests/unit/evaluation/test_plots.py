"""Plots of the learning curve and of cross-attention."""

import json

import pytest
import torch

from vanilla_transformer.evaluation.plots import cross_attention, plot_attention, plot_learning_curve


def test_cross_attention_rows_sum_to_one(tiny_model, tiny_tokenizer):
    source, target, heads = cross_attention(tiny_model, tiny_tokenizer, "A man is sleeping.")
    assert heads.shape == (tiny_model.config.decoder_attention_heads, len(target), len(source))
    torch.testing.assert_close(heads.sum(dim=-1), torch.ones(heads.shape[:2]))
    assert "".join(source).startswith("A") and source[-1] == "</s>"


def test_cross_attention_restores_the_attention_implementation(tiny_model, tiny_tokenizer):
    before = tiny_model.config._attn_implementation
    assert before != "eager"
    cross_attention(tiny_model, tiny_tokenizer, "A man.")
    assert tiny_model.config._attn_implementation == before


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
