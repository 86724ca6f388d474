"""Copies between host and device, and the engine's loop on a GPU, for which a device without values
stands in.
"""

import random

import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.devices import GPU, gpu_stand_in
from tests.sweeps import rare
from tests.tiny import tiny_causal_lm, tiny_model
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.prefill import encode
from vanilla_transformer.machine.transfers import HostCopy, to_device

EOS = 2
# From one look at the finished slots to the next: a step takes long on a device without values
FEW_STEPS = 2


def test_to_device_and_host_copy_keep_values():
    integers = to_device([3, 1, 2], torch.device("cpu"))
    assert integers.dtype is torch.long
    assert HostCopy(integers, integers.float() / 2).wait() == [[3, 1, 2], [1.5, 0.5, 1.0]]
    assert to_device([], torch.device("cpu")).dtype is torch.long


def sources(number):
    draw = random.Random(0)
    sentences = []
    for _ in range(number):
        length = draw.choice([1, 3, 5, 30])
        tokens = [draw.randrange(5, 40) for _ in range(length)]
        sentences.append([*tokens, EOS])
    return sentences


@pytest.mark.parametrize(
    ("beams", "precision", "changes"),
    [
        (4, "bfloat16", {}),
        rare((1, "float32", {"source_eos": False, "position_embedding_type": "learned"})),
        rare((1, "float32", {})),
        rare((2, "float32", {"attn_implementation": "eager"})),
    ],
    ids=str,
)
def test_engine_waits_for_a_gpu_only_to_look_and_to_take(beams, precision, changes):
    model = tiny_model(vocab_size=40, **changes).to(GPU)
    options = {"max_new_tokens": 20, "precision": precision, "compile": False}
    engine = Engine(model, slots=5, num_beams=beams, **options)
    engine._look_every = FEW_STEPS
    torch.manual_seed(0)  # of the values that arrive
    with gpu_stand_in() as copies:
        results = engine.decode(sources(12), beams)
    assert [len(hypotheses) for hypotheses in results] == [beams] * 12
    looks = [copy for copy in copies.arrived if copy.dtype is torch.bool]
    assert len(looks) == engine._schedule.steps_run / engine._look_every > 3
    # A look, or also tokens, their log-probabilities, lengths and scores.
    assert len(copies.arrived) <= 5 * len(looks)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 2, "target_prefix": "", "no_repeat_ngram_size": 2},
        rare({"do_sample": True}),
    ],
    ids=str,
)
def test_engine_with_features_does_not_wait_for_a_gpu(options):
    model = tiny_model(vocab_size=40).to(GPU)
    engine = Engine(model, slots=5, max_new_tokens=20, compile=False, **options)
    engine._look_every = FEW_STEPS
    torch.manual_seed(0)  # of the values that arrive
    with gpu_stand_in():
        assert len(engine.decode(sources(12))) == 12


def test_engine_does_not_wait_for_a_gpu_to_set_long_sentences_aside():
    model = tiny_model(vocab_size=40).to(GPU)
    engine = Engine(model, slots=5, num_beams=2, max_new_tokens=20, compile=False)
    engine._look_every = FEW_STEPS
    sources = [[9] * 150 + [EOS], *([[5, EOS]] * 10)]
    # Of the values that arrive, by which the long sentence is not done at the first look.
    torch.manual_seed(2)
    aside = list[int]()

    def note(_):
        aside.append(len(engine._schedule._aside))

    with gpu_stand_in():
        engine.decode(sources, report=note)
    assert len(aside) == len(sources)
    assert max(aside) == 1 and aside[-1] == 0


def test_engine_does_not_wait_for_a_gpu_to_read_prompts():
    model = tiny_causal_lm(vocab_size=40)
    model.generation_config.update(eos_token_id=EOS, max_new_tokens=10)
    engine = Engine(model.to(GPU), slots=5, num_beams=2, compile=False)
    engine._look_every = FEW_STEPS
    torch.manual_seed(0)
    with gpu_stand_in():
        assert len(engine.decode([[7, 8, 9]] * 3 + [[5, 6]] * 4)) == 7


class Attentions(TorchFunctionMode):
    """Keep the types of the inputs and the masks of scaled dot-product attention."""

    def __init__(self):
        super().__init__()
        self.dtypes, self.masks = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.scaled_dot_product_attention:
            self.dtypes.append(args[0].dtype)
            self.masks.append(kwargs["attn_mask"])
        return function(*args, **(kwargs or {}))


@torch.inference_mode()
def test_encode_gives_attention_a_mask_of_padding_only():
    model = tiny_model(encoder_layers=2, vocab_size=40).to(torch.bfloat16)
    with Attentions() as attentions:
        even = encode(model, [[7, 8, EOS], [9, 9, EOS]], [3, 3])
        encode(model, [[7, 8, EOS], [9, EOS]], [3, 2])
    assert attentions.dtypes == [torch.bfloat16] * 4 and even.dtype is torch.bfloat16
    assert attentions.masks[:2] == [None, None]  # so that flash attention applies
    assert attentions.masks[2].tolist() == [[[[True, True, True]]], [[[True, True, False]]]]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.inference_mode()
def test_encode_gives_states_of_the_encoder(attention):
    model = tiny_model(encoder_layers=2, vocab_size=40, attn_implementation=attention)
    ids, mask = torch.tensor([[7, 8, EOS], [9, EOS, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    expected = model.get_encoder()(input_ids=ids, attention_mask=mask)[0]
    states = encode(model, [[7, 8, EOS], [9, EOS]], [3, 2])
    tokens = mask.bool()
    assert torch.equal(states[tokens], expected[tokens])
