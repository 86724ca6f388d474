"""The loss in bfloat16 on a CPU: chunks of one number of rows, so that oneDNN compiles few products."""

import pytest
import torch
from torch import nn

from vanilla_transformer.training import loss
from vanilla_transformer.training.loss import projected_cross_entropy

VOCAB_SIZE, WIDTH = 24, 8


def gradients(states, weight, labels):
    """Return the loss in bfloat16 and the gradients of states and weight."""
    states, weight = (tensor.clone().requires_grad_() for tensor in (states, weight))
    with torch.autocast("cpu", torch.bfloat16):
        smoothed, plain = projected_cross_entropy(states, weight, None, labels, 0.1)
    smoothed.backward()
    return smoothed.detach(), plain, states.grad, weight.grad


@pytest.mark.parametrize(("tokens", "rows"), [(1, 64), (64, 64), (65, 128), (199, 128), (300, 128), (390, 192)])
def test_projected_cross_entropy_in_bfloat16_has_chunks_of_one_size(monkeypatch, tokens, rows):
    torch.manual_seed(0)
    states, weight = torch.randn(1, tokens, WIDTH).bfloat16().float(), torch.randn(VOCAB_SIZE, WIDTH)
    labels = torch.randint(VOCAB_SIZE, (1, tokens))
    expected = gradients(states, weight, labels)
    linear, sizes = nn.functional.linear, set()

    def noting(rows, *others):
        sizes.add(len(rows))
        return linear(rows, *others)

    monkeypatch.setattr(nn.functional, "linear", noting)
    monkeypatch.setattr(loss, "_LOGITS_PER_CHUNK", 130 * VOCAB_SIZE)
    found = gradients(states, weight, labels)
    assert sizes == {rows}
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
