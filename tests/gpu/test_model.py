"""Logits on a device: of each type against float32 on a CPU, and of each attention kernel against
eager products.
"""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.devices import DEVICE, needs_gpu
from tests.tiny import tiny_model

PAD, EOS = 0, 2
# The largest error of a logit, as a share of the standard deviation of all.
TOLERANCES = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
KERNELS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}
KERNELS |= {"efficient": SDPBackend.EFFICIENT_ATTENTION}  # of GPUs only


def model_of(**changes):
    """Return a model with heads of 64, for which there are kernels of every kind."""
    fields = {"d_model": 128, "init_std": 0.1, "encoder_layers": 2, "decoder_layers": 2}
    return tiny_model(**fields | changes)


def batch(lengths):
    """Return sources of these lengths, and prefixes of targets."""
    torch.manual_seed(0)
    ids = torch.randint(3, 300, (len(lengths), max(lengths)))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    targets = torch.randint(3, 300, (len(lengths), 12))
    inputs = {"input_ids": ids.where(mask, PAD), "attention_mask": mask.long()}
    return inputs | {"decoder_input_ids": targets}


@torch.no_grad()
def logits_of(model, lengths, dtype=torch.float32, device=DEVICE, masked=True):
    """Return the logits as float32 on the CPU."""
    inputs = {name: tensor.to(device) for name, tensor in batch(lengths).items()}
    if not masked:
        del inputs["attention_mask"]
    return model.to(device, dtype)(**inputs, use_cache=False).logits.float().cpu()


def assert_close(logits, expected, dtype):
    error = (logits - expected).abs().max()
    assert error / expected.std() < TOLERANCES[dtype]


@pytest.mark.parametrize("normalize_before", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_logits_match_float32_on_a_cpu(dtype, normalize_before):
    on_cpu = model_of(normalize_before=normalize_before)
    expected = logits_of(on_cpu, [17, 9, 30], device="cpu")
    model = model_of(normalize_before=normalize_before)
    assert_close(logits_of(model, [17, 9, 30], dtype), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kernel", ["math", "flash", pytest.param("efficient", marks=needs_gpu)])
def test_sdpa_kernels_without_padding_give_eager_logits(kernel, dtype):
    model = model_of()
    model.set_attn_implementation("eager")
    expected = logits_of(model, [24, 24, 24], torch.float32, masked=False)
    model = model_of()
    model.set_attn_implementation("sdpa")
    with sdpa_kernel(KERNELS[kernel]):
        assert_close(logits_of(model, [24, 24, 24], dtype, masked=False), expected, dtype)


@pytest.mark.parametrize("kernel", ["math", pytest.param("efficient", marks=needs_gpu)])
def test_sdpa_kernels_with_padding_give_eager_logits(kernel):
    model = model_of()
    model.set_attn_implementation("eager")
    expected = logits_of(model, [17, 9, 30])
    model.set_attn_implementation("sdpa")
    with sdpa_kernel(KERNELS[kernel]):
        assert_close(logits_of(model, [17, 9, 30]), expected, torch.float32)
