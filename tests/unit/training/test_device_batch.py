"""Batches on the device: the masks of a training step, which decide what SDPA can run, and the
places of labels.
"""

import pytest
import torch

from tests.tiny import tiny_config
from tests.train_states import micro_batches, packed_micro_batch, tiny_train_state
from vanilla_transformer.training import device_batch, loss, train_state
from vanilla_transformer.training.device_batch import BatchPreparation
from vanilla_transformer.training.train_step import train_step

PADDED, FULL = [5, 3, 4], [4, 4]


@pytest.fixture
def calls(monkeypatch):
    """Return the list of (shape of the mask, whether it is boolean, whether attention is causal) of
    SDPA's calls.
    """
    calls, attend = [], torch.nn.functional.scaled_dot_product_attention

    def recorded(
        query, key, value, attn_mask=None, dropout_p=0.0, scale=None, is_causal=False, **options
    ):
        shape = None if attn_mask is None else tuple(attn_mask.shape)
        calls.append((shape, attn_mask is None or attn_mask.dtype == torch.bool, is_causal))
        return attend(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
    return calls


MASKS = [(PADDED, (3, 1, 1, 5)), (FULL, None)]


@pytest.mark.parametrize(("lengths", "mask"), MASKS, ids=["padded", "full"])
def test_train_step_masks_nothing_but_padding_of_source(calls, tmp_path, lengths, mask):
    """Without a mask flash attention applies: always in the decoder, and without padding
    everywhere.
    """
    train_step(tiny_train_state(tmp_path), micro_batches(lengths))
    encoder, decoder, cross_attention = calls
    assert encoder == cross_attention == (mask, True, False)
    assert decoder == (None, True, True)


def batches_of_both_kinds():
    """Return a padded batch and a packed one, as the table of the corpus gives them."""
    packed = packed_micro_batch([[5, 3], [4]], length=9)
    return micro_batches(PADDED)[0].tensors, packed.tensors


@pytest.mark.parametrize("attention", ["sdpa", "eager", None])
@pytest.mark.parametrize("in_graph", [False, True])
def test_preparation_lists_labels_outside_of_graphs(attention, in_graph):
    options = {"keep_mask": True, "loss_in_graph": in_graph}
    prepare = BatchPreparation(tiny_config(), attention, torch.float32, **options)
    for batch in batches_of_both_kinds():
        prepared = prepare(batch)
        assert ("label_places" in prepared) != in_graph
        assert in_graph or batch["labels"].flatten()[prepared["label_places"]].min() >= 0
        again = prepare(prepared)  # as `batch_to_device` does for batches of workers
        assert again.keys() == prepared.keys()
        assert all(again[name] is prepared[name] for name in prepared)


def test_preparation_lists_labels_of_large_batches(monkeypatch):
    options = {"keep_mask": True, "loss_in_graph": True}
    prepare = BatchPreparation(tiny_config(), "sdpa", torch.float32, **options)
    batch, _ = batches_of_both_kinds()
    logits = batch["labels"].numel() * prepare.config.vocab_size
    monkeypatch.setattr(device_batch, "_LOGITS_IN_GRAPH", logits - 1)
    assert "label_places" in prepare(batch)


def test_train_state_prepares_batches_for_its_loss(tmp_path, monkeypatch):
    assert not tiny_train_state(tmp_path).batch_preparation.loss_in_graph

    def compile_loss(model_with_loss, *_):
        model_with_loss.loss_in_graph = loss.cross_entropy_in_graph

    monkeypatch.setattr(train_state, "compile_regions", compile_loss)
    state = tiny_train_state(tmp_path, compile=True)
    assert state.batch_preparation.loss_in_graph
    batch, _ = batches_of_both_kinds()
    assert "label_places" not in state.batch_preparation(batch)
    train_step(state, micro_batches(PADDED, FULL))
