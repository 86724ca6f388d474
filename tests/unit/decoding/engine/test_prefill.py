"""Prefill: padded batches and their few shapes on a GPU, for which the CPU stands in."""

import random

import pytest
import torch
from torch import nn

from tests.tiny import tiny_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer.decoding.engine import device_profile
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.prefill import pad_tokens, padded_shape, prefill, room_for
from vanilla_transformer.machine.attention import without_cudnn_attention

EOS = 2


def captions(number):
    """Return sources of the lengths of Multi30k's captions."""
    draw = random.Random(0)
    lengths = [min(40, max(4, round(draw.gauss(14, 4)))) for _ in range(number)]
    sources = []
    for length in lengths:
        tokens = [draw.randrange(5, 40) for _ in range(length)]
        sources.append([*tokens, EOS])
    return sources


def tokens_of(results):
    """Return the tokens of the best hypothesis of each sentence."""
    return [hypotheses[0].tokens for hypotheses in results]


@pytest.fixture
def on_gpu(monkeypatch):
    """Let the CPU stand in for a GPU."""
    monkeypatch.setitem(device_profile.PROFILES, "cpu", device_profile.GPU)


def test_pad_tokens_gives_the_tensor_of_pad_sequence():
    for sources in (captions(40), [[7]], [(5, 6), [8]]):
        rows = [torch.tensor(source) for source in sources]
        expected = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        longest = expected.shape[1]
        assert torch.equal(pad_tokens(sources, longest), expected)
        padded = nn.functional.pad(expected, (0, 3))
        assert torch.equal(pad_tokens(sources, longest + 3), padded)


def shapes_of_prefill(model, engine, sources):
    shapes, called = set(), model.get_encoder().layers[0].self_attn

    def record(module, args, kwargs):
        states, *_ = *args, *kwargs.values()
        shapes.add(states.shape[:2])

    hook = called.register_forward_pre_hook(record, with_kwargs=True)
    engine.decode(sources)
    hook.remove()
    return shapes


@pytest.mark.parametrize(("slots", "beams"), [(512, 1), (128, 4)])
def test_prefill_of_captions_has_few_shapes_on_a_gpu(slots, beams, on_gpu):
    model = tiny_model(vocab_size=40)
    engine = Engine(model, slots=slots, num_beams=beams, compile=False)
    shapes = shapes_of_prefill(model, engine, captions(1000))
    assert 1 < len(shapes) <= 8
    assert all(length % 8 == 0 for _, length in shapes)


def test_prefill_is_not_padded_on_a_cpu():
    model = tiny_model(vocab_size=40)
    engine = Engine(model, num_beams=1, compile=False)
    assert shapes_of_prefill(model, engine, [[7] * 6, [8] * 5, [9] * 4]) == {(3, 6)}


def models():
    yield tiny_model(vocab_size=40, encoder_layers=2)
    learned = {"position_embedding_type": "learned", "max_position_embeddings": 20}
    yield tiny_model(vocab_size=40, source_eos=False, **learned)
    yield tiny_model(vocab_size=40, attn_implementation="eager")
    yield tiny_long_model(vocab_size=40)


@pytest.mark.parametrize("number", range(4))
@torch.inference_mode()
def test_prefill_of_padded_batches_gives_the_same_states(number, monkeypatch):
    model = [*models()][number]
    sources = [[7, 8, 9, EOS], [5] * 17 + [EOS], [6, EOS]]
    lengths = [len(source) for source in sources]
    expected = prefill(model, sources, lengths)
    monkeypatch.setitem(device_profile.PROFILES, "cpu", device_profile.GPU)
    for tensor, plain in zip(prefill(model, sources, lengths), expected, strict=True):
        assert len(tensor) == 4
        for row, wanted, length in zip(tensor, plain, lengths, strict=False):
            if plain.shape[2] == max(lengths):  # keys or values, (W, H, S, K)
                row, wanted = row[:, :length], wanted[:, :length]
            torch.testing.assert_close(row, wanted, rtol=1e-5, atol=1e-5)


def test_prefill_of_padded_prompts_gives_the_same_tokens(monkeypatch):
    model = tiny_causal_lm(vocab_size=40)
    model.generation_config.update(eos_token_id=EOS, max_new_tokens=6)
    prompts = [[7, 8, 9], [5] * 17, [6]]
    plain = Engine(model, slots=5, num_beams=2, compile=False).decode(prompts)
    monkeypatch.setitem(device_profile.PROFILES, "cpu", device_profile.GPU)
    padded = Engine(model, slots=5, num_beams=2, compile=False).decode(prompts)
    assert tokens_of(padded) == tokens_of(plain)


def test_padded_shape_stays_within_learned_positions():
    config = tiny_model(position_embedding_type="learned", max_position_embeddings=20).config
    assert padded_shape(config, 5, 18) == (8, 20)
    assert padded_shape(tiny_model().config, 1, 18) == (1, 24)
    lengths = 1, 16, 17, 24, 25, 33, 49
    assert [room_for(length) for length in lengths] == [16, 16, 24, 24, 32, 48, 64]
    rooms = [room_for(length, torch.bfloat16) for length in lengths]
    assert rooms == [16, 16, 32, 32, 32, 48, 64]


def test_prefill_keeps_cudnn_attention_off(on_gpu):
    model, seen = tiny_model(), []

    def note(*_):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())

    model.get_encoder().register_forward_pre_hook(note)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    prefill(model, [[7, EOS]], [2])
    assert before and seen == [False] and torch.backends.cuda.cudnn_sdp_enabled()


def test_without_cudnn_attention_restores_the_setting_after_the_last_block():
    first, second = without_cudnn_attention(), without_cudnn_attention()
    with first:
        second.__enter__()  # of another thread
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    second.__exit__(None, None, None)
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with pytest.raises(KeyError), without_cudnn_attention():
        raise KeyError
    assert torch.backends.cuda.cudnn_sdp_enabled()
