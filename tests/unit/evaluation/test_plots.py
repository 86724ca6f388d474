"""Attention weights that the plots show."""

import torch

from vanilla_transformer.evaluation import plots
from vanilla_transformer.evaluation.plots import cross_attention


def test_cross_attention_rows_sum_to_one_and_the_implementation_stays(tiny_model, tiny_tokenizer):
    before = tiny_model.config._attn_implementation
    source, target, heads = cross_attention(tiny_model, tiny_tokenizer, "A man is sleeping.")
    assert heads.shape == (tiny_model.config.decoder_attention_heads, len(target), len(source))
    torch.testing.assert_close(heads.sum(dim=-1), torch.ones(heads.shape[:2]))
    assert "".join(source).startswith("A") and source[-1] == "</s>"
    assert tiny_model.config._attn_implementation == before != "eager"


def test_token_labels_mark_words_that_continue_with_marks(monkeypatch):
    monkeypatch.setattr(
        plots, "token_texts", lambda tokenizer, ids, as_source: [" कम", "रा", "ि", " है", "।", " a", "e\u0301"]
    )
    assert plots.token_labels(None, []) == ["कम", "·रा", "·ि", "है", "।", "a", "·e\u0301"]
