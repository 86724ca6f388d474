"""Batches on the device: the masks of a training step, which decide what SDPA can run."""

import pytest
import torch

from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.training.train_step import train_step

PADDED, FULL = [5, 3, 4], [4, 4]


@pytest.fixture
def calls(monkeypatch):
    """Return the list of (shape of the mask, whether it is boolean, whether attention is causal) of SDPA's calls."""
    calls, attend = [], torch.nn.functional.scaled_dot_product_attention

    def recorded(query, key, value, attn_mask=None, dropout_p=0.0, scale=None, is_causal=False, **options):
        shape = None if attn_mask is None else tuple(attn_mask.shape)
        calls.append((shape, attn_mask is None or attn_mask.dtype == torch.bool, is_causal))
        return attend(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
    return calls


@pytest.mark.parametrize(("lengths", "mask"), [(PADDED, (3, 1, 1, 5)), (FULL, None)], ids=["padded", "full"])
def test_train_step_masks_nothing_but_padding_of_source(calls, tmp_path, lengths, mask):
    """Without a mask flash attention applies: always in the decoder, and without padding everywhere."""
    train_step(tiny_train_state(tmp_path), micro_batches(lengths))
    encoder, decoder, cross_attention = calls
    assert encoder == cross_attention == (mask, True, False) and decoder == (None, True, True)
