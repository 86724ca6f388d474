"""Models with cross-attention refuse `flash_attention_2`: transformers unpads targets by the mask
of the source.
"""

import torch
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations.flash_attention import flash_attention_forward

from tests.releases import needs_transformers
from tests.tiny import tiny_model


def attend_by_sentence(query, key, value, targets, sources):
    """Return the attention of queries `(T, H, K)` to keys `(S, H, K)` of the same sentence, given
    their bounds.
    """
    sentences = zip(query.split(targets), key.split(sources), value.split(sources), strict=True)
    rows = []
    for queries, keys, values in sentences:
        scores = torch.einsum("qhk,shk->hqs", queries, keys)
        rows.append(torch.einsum("hqs,shk->qhk", scores.softmax(dim=-1), values))
    return torch.cat(rows)


@needs_transformers("5.20", "the library loads flash attention by other functions")
def test_flash_attention_removes_source_padding(monkeypatch):
    def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **_):
        targets, sources = cu_seqlens_q.diff().tolist(), cu_seqlens_k.diff().tolist()
        return attend_by_sentence(q, k, v, targets, sources)

    parts = (None, varlen, None, flash._pad_input, flash._unpad_input)
    functions = parts, (lambda **_: {}, None)
    monkeypatch.setattr(flash, "lazy_import_flash_attention", lambda *_: functions)
    attention = tiny_model().model.decoder.layers[0].encoder_attn
    states = torch.randn(2, 2, 5, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    output, _ = flash_attention_forward(attention, states, states, states, mask, scaling=1.0)
    assert output[0].all() and output[1, :2].all()
    assert not output[1, 2:].any()
