"""
The engine: the tokens of the library's own search, captured steps, and a host that does not wait
for a GPU.

`make gpu` runs these tests with few packages. Without a GPU, those for any device run on the CPU.
"""

import random
from contextlib import contextmanager

import pytest
import torch

from tests.devices import DEVICE, needs_gpu
from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine import slot_buffers
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps
from vanilla_transformer.decoding.engine.prefill import prefill
from vanilla_transformer.decoding.forced_decoding import score_tokens

EOS = 2
# With "auto", steps are captured on a GPU.
every_mode = pytest.mark.parametrize(
    "compile", [False, pytest.param("auto", marks=needs_gpu)], ids=["eager", "captured"]
)
every_search = pytest.mark.parametrize("beams", [1, 4], ids=["greedy", "beam4"])


def model_of(**changes):
    """Return a model whose translations differ, on the device."""
    fields = {"vocab_size": 40, "init_std": 0.4, "decoder_layers": 2} | changes
    return tiny_model(**fields).to(DEVICE)


def engine_of(model, beams, **options):
    return Engine(model, slots=5, num_beams=beams, **{"max_new_tokens": 20} | options)


def sources(number=24):
    draw = random.Random(0)
    rows = []
    for _ in range(number):
        length = draw.choice([1, 3, 5, 30])
        rows.append([draw.randrange(5, 40) for _ in range(length)] + [EOS])
    return rows


def tokens_of(results):
    return [hypotheses[0].tokens for hypotheses in results]


def generated(model, source, beams):
    """Return the new tokens that `generate()` finds, EOS included."""
    ids = torch.tensor([source], device=DEVICE)
    rows = model.generate(ids, num_beams=beams, max_new_tokens=20, do_sample=False)
    tokens = rows[0, 1:].tolist()
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


@contextmanager
def no_sync():
    """Let operations that make the host wait for the GPU fail within the block."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@every_mode
@every_search
def test_engine_gives_tokens_of_generate(beams, compile):
    model = model_of()
    engine = engine_of(model, beams, compile=compile)
    expected = [generated(model, source, beams) for source in sources()]
    assert tokens_of(engine.decode(sources())) == expected


@every_mode
@every_search
def test_engine_gives_log_probabilities_of_forced_decoding(beams, compile):
    model = model_of()
    results = engine_of(model, beams, compile=compile).decode(sources())
    forced = score_tokens(model, sources(), tokens_of(results))
    for (best,), expected in zip(results, forced, strict=True):
        assert best.token_log_probabilities == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert best.log_probability == pytest.approx(sum(expected), rel=1e-4)


@needs_gpu
@every_mode
@every_search
def test_engine_gives_tokens_of_the_cpu(beams, compile):
    model = model_of()
    expected = tokens_of(engine_of(model_of().cpu(), beams, compile=False).decode(sources()))
    engine = engine_of(model, beams, compile=compile)
    for _ in range(2):  # captured in the first round, replayed in the second one
        assert tokens_of(engine.decode(sources())) == expected


@needs_gpu
@every_search
def test_engine_captures_each_size_once(beams):
    engine = engine_of(model_of(), beams)
    assert isinstance(engine.steps, GraphedSteps)
    engine.decode(sources())
    forms = {size: form for size, (_, form) in engine.steps._forms.items()}
    assert len(forms) > 1 and engine.steps.step not in forms.values()  # no capture failed
    engine.decode(sources())
    assert {size: form for size, (_, form) in engine.steps._forms.items()} == forms


@needs_gpu
@every_search
def test_engine_captures_again_after_other_sizes_took_the_memory(beams, monkeypatch):
    model = model_of()
    expected = tokens_of(engine_of(model, beams, compile=False).decode(sources()))
    monkeypatch.setattr(slot_buffers, "spare_memory", lambda device, spare: 0)
    engine = engine_of(model, beams)
    for _ in range(3):
        assert tokens_of(engine.decode(sources())) == expected
        torch.cuda.empty_cache()


@needs_gpu
@every_mode
@every_search
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_engine_never_waits_but_to_look_and_to_take(beams, compile, precision):
    engine = engine_of(model_of(), beams, compile=compile, precision=precision)
    engine.decode(sources(), beams)  # allocates the buffers and captures the steps
    with no_sync():
        results = engine.decode(sources(), beams)
    assert len(results) == 24
    for hypotheses in results:
        assert all(hypothesis.tokens for hypothesis in hypotheses)


@needs_gpu
def test_sync_debug_mode_finds_a_read():
    value = torch.ones(1, device=DEVICE)
    with no_sync(), pytest.raises(RuntimeError, match="synchroniz"):
        value.item()


@needs_gpu
@every_search
def test_engine_in_bfloat16_gives_tokens_of_eager_steps(beams):
    model = model_of()
    eager = engine_of(model, beams, precision="bfloat16", compile=False)
    captured = engine_of(model, beams, precision="bfloat16", compile="auto")
    assert tokens_of(captured.decode(sources())) == tokens_of(eager.decode(sources()))
    assert captured.model.dtype is torch.bfloat16
    assert model.dtype is torch.float32


@needs_gpu
@torch.inference_mode()
def test_prefill_uses_flash_attention_without_padding():
    model = model_of(d_model=128).to(torch.bfloat16)  # heads of 64
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        read = prefill(model, [[7] * 15 + [EOS]] * 8, [16] * 8)  # a batch that is not padded
    assert all(len(tensor) == 8 for tensor in read)


@needs_gpu
@every_search
def test_inductor_gives_tokens_of_eager_steps(beams):
    pytest.importorskip("triton", reason="inductor compiles for a GPU by Triton")
    model = model_of()
    compiled = engine_of(model, beams, compile=True, max_new_tokens=8)
    eager = engine_of(model, beams, compile=False, max_new_tokens=8)
    few = [[7, 8, EOS], [9, EOS], [5, 6, 7, EOS]]
    assert tokens_of(compiled.decode(few)) == tokens_of(eager.decode(few))
    assert all(form is not compiled.steps.step for _, form in compiled.steps._forms.values())
