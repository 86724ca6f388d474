"""`attn_implementation: varlen`: equal to SDPA, without a mask or padded keys, and refused where it cannot run."""

from functools import partial

import pytest
import torch
from transformers import modeling_flash_attention_utils as flash
from transformers.integrations.flash_attention import flash_attention_forward

from tests.tiny import tiny_long_model, tiny_model
from tests.train_states import micro_batches, tiny_train_state
from tests.varlen_reference import varlen_attn
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.training import varlen_attention as module
from vanilla_transformer.training.device_batch import BatchPreparation, batch_to_device
from vanilla_transformer.training.loss import ModelWithLoss
from vanilla_transformer.training.validation import Validation
from vanilla_transformer.training.varlen_attention import VARLEN, check_varlen, pack_source

CPU = torch.device("cpu")
PADDED, FULL = [5, 3, 4], [4, 4]


@pytest.fixture
def calls(monkeypatch):
    """Replace the kernel by a reference, and return the list of its arguments."""
    calls = []

    def recorded(*tensors, **options):
        calls.append((*tensors, options["window_size"]))
        return varlen_attn(*tensors, **options)

    monkeypatch.setattr(module, "varlen_attn", recorded)
    return calls


def model_of(attention, **changes):
    model = tiny_model(**{"vocab_size": 40, "init_std": 0.4, "decoder_layers": 2} | changes)
    model.set_attn_implementation(attention)
    return model


def batch_of(sources, targets):
    """Return a batch whose sides differ in their lengths."""
    [source], [target] = micro_batches(sources), micro_batches(targets)
    return source.tensors | {"labels": target.tensors["labels"]}


def loss_and_gradients(model, batch):
    batch = batch_to_device(batch, BatchPreparation.for_model(model), CPU)
    loss = ModelWithLoss(model, smoothing=0.1)(batch).smoothed / len(batch["label_places"])
    loss.backward()
    return [loss.detach(), *(weight.grad for weight in model.parameters())]


@pytest.mark.parametrize("changes", [{}, {"source_eos": False}], ids=str)
@pytest.mark.parametrize("sides", [(PADDED, [2, 7, 3]), (PADDED, PADDED), (FULL, [6, 2])], ids=str)
def test_varlen_attention_matches_sdpa_in_loss_and_gradients(calls, sides, changes):
    batch = batch_of(*sides)
    expected = loss_and_gradients(model_of("sdpa", **changes), batch)
    found = loss_and_gradients(model_of(VARLEN, **changes), batch)
    assert len(calls) == 1 + 2 * 2
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_varlen_attention_gets_tokens_of_source_and_whole_targets(calls):
    loss_and_gradients(model_of(VARLEN, decoder_layers=1), batch_of(PADDED, [2, 7, 3]))
    found = [(len(call[0]), len(call[1]), call[3].tolist(), call[4].tolist(), call[-1]) for call in calls]
    source, target, tokens = [0, 5, 10, 15], [0, 7, 14, 21], [0, 5, 8, 12]
    assert found == [
        (15, 12, source, tokens, (-1, -1)),
        (21, 21, target, target, (-1, 0)),
        (21, 12, target, tokens, (-1, -1)),
    ]


def test_pack_source_finds_tokens():
    places, bounds = pack_source(torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])).values()
    assert places.tolist() == [0, 1, 3, 6, 7, 8] and bounds.tolist() == [0, 2, 3, 6]


def test_validation_of_model_with_varlen_attention_uses_sdpa(calls, tiny_tokenizer):
    model, seen = model_of(VARLEN, vocab_size=300), []
    state = tiny_train_state("-")
    validation = Validation([SentencePair("a b", "c")], tiny_tokenizer, lambda *_: {}, state.accelerator, 100)
    validation.evaluate = lambda model, *_: seen.append(model.config._attn_implementation) or {}
    validation.measure(model)
    assert not calls and seen == ["sdpa"] and model.config._attn_implementation == VARLEN


@pytest.mark.parametrize(
    ("capability", "precision", "create", "message"),
    [
        (None, "bf16", tiny_model, "a GPU of compute capability 8.0 or higher, got no GPU of CUDA. Use sdpa"),
        ((7, 5), "fp16", tiny_model, "a GPU of compute capability 8.0 or higher, got 7.5. Use sdpa"),
        ((9, 0), "no", tiny_model, "`mixed_precision` bf16, fp16 or fp8, got no."),
        ((9, 0), None, tiny_model, "`mixed_precision` bf16, fp16 or fp8, got no."),
        ((9, 0), "bf16", tiny_long_model, "softmax attention in all layers, got other layers."),
        ((9, 0), "bf16", partial(tiny_model, attention_dropout=0.1), "`attention_dropout` 0, got 0.1."),
        ((9, 0), "bf16", partial(tiny_model, d_model=24), "heads of a multiple of 8 up to 256, got 12."),
    ],
)
def test_check_varlen_refuses_what_kernel_does_not_support(monkeypatch, capability, precision, create, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with pytest.raises(ValueError, match="^`attn_implementation` varlen needs ") as error:
        check_varlen(create(), precision)
    assert message in str(error.value)


def test_check_varlen_accepts_models_of_paper(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    check_varlen(tiny_model(), "bf16")


def test_flash_attention_of_transformers_removes_source_padding_from_targets(monkeypatch):
    """Show why models with cross-attention refuse `flash_attention_2`: targets of padded sources get zeros."""

    def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **_):
        return varlen_attn(q, k, v, cu_seqlens_q, cu_seqlens_k, 9, 9, scale=1.0, window_size=(-1, -1))

    functions = (None, varlen, None, flash._pad_input, flash._unpad_input), (lambda **_: {}, None)
    monkeypatch.setattr(flash, "lazy_import_flash_attention", lambda *_: functions)
    attention = tiny_model().model.decoder.layers[0].encoder_attn
    states = torch.randn(2, 2, 5, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    output, _ = flash_attention_forward(attention, states, states, states, mask, scaling=1.0)
    assert output[0].all() and output[1, :2].all() and not output[1, 2:].any()
