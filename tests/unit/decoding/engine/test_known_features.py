"""The engine's `no_repeat_ngram_size`: the tokens that it forbids, and steps of any size that do
so.
"""

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers import NoRepeatNGramLogitsProcessor

from tests.sweeps import rare
from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine.known_features import NoRepeatedNgrams
from vanilla_transformer.decoding.engine.search_options import SearchOptions
from vanilla_transformer.decoding.engine.search_state import SearchState
from vanilla_transformer.decoding.engine.slot_buffers import SlotBuffers, SlotSize
from vanilla_transformer.decoding.engine.static_decoder import StaticDecoder
from vanilla_transformer.decoding.engine.static_search import SearchStep
from vanilla_transformer.decoding.engine.step_package import export_step

SLOTS, BEAMS, ROOM, VOCAB = 3, 2, 12, 5


def random_state(seed):
    """Return a state whose hypotheses of few tokens have random ancestors."""
    generator, state = torch.Generator().manual_seed(seed), empty_state()
    bounds = [(state.tokens, VOCAB), (state.last_tokens, VOCAB), (state.ancestors, BEAMS)]
    for tensor, bound in bounds:
        tensor.copy_(torch.randint(bound, tensor.shape, generator=generator))
    state.time.copy_(torch.randint(ROOM, state.time.shape, generator=generator))
    return state


def empty_state():
    return SearchState.empty(SLOTS, ROOM, torch.device("cpu"), SearchOptions(BEAMS, (2,)))


def tokens_of(state, slot, beam):
    time, lines = int(state.time[slot]), state.ancestors[slot, beam]
    written = [int(state.tokens[slot, index, lines[index]]) for index in range(time)]
    return [*written, int(state.last_tokens[slot, beam])]


@pytest.mark.parametrize("size", [1, 2, 3, 4, ROOM + 3])
@pytest.mark.parametrize("seed", range(8))
def test_repeated_ngrams_are_forbidden_as_in_the_library(size, seed):
    state = random_state(seed)
    logits = torch.randn(SLOTS, BEAMS, VOCAB + 1)  # of which one token is never written
    totals = logits.logsumexp(dim=2)
    allowed = NoRepeatedNgrams(size).change_logits(logits, totals, state, ())
    processor = NoRepeatNGramLogitsProcessor(size)
    for slot in range(SLOTS):
        for beam in range(BEAMS):
            tokens = torch.tensor([tokens_of(state, slot, beam)])
            expected = processor(tokens, logits[slot, beam][None])
            assert torch.equal(allowed[slot, beam][None], expected)


def test_forced_tokens_may_repeat_ngrams():
    state, logits = empty_state(), torch.full((SLOTS, BEAMS, VOCAB), -torch.inf)
    logits[:, :, 0] = 0.5  # the token that the hypotheses of an empty state have
    allowed = NoRepeatedNgrams(1).change_logits(logits, logits[:, :, 0], state, ())
    assert torch.equal(allowed, logits)


SIZES = [(1, 1), (1, 3), (2, 1), (2, 3), (4, 1), (4, 3)]


@pytest.mark.parametrize(("size", "beams"), map(rare, SIZES))
def test_repeated_ngrams_are_forbidden_in_exported_steps_of_any_size(size, beams):
    model = tiny_model(vocab_size=40)
    options = SearchOptions(beams, (2,), features=(NoRepeatedNgrams(size),))
    buffers = SlotBuffers(model, options, SlotSize(2, 2))
    step = SearchStep([StaticDecoder(model)], options).eval()
    with torch.no_grad():
        program = export_step(step, buffers.example(), buffers.dimensions()).module()
        for slots, room in ((1, 2), (4, 16)):
            buffers.resize(SlotSize(slots, room), [])
            state, memory = buffers.arguments
            limits, beam_counts = torch.full((slots,), room), torch.ones(slots, dtype=torch.long)
            times = torch.zeros(slots, dtype=torch.long)
            state.start(torch.arange(slots), limits, beam_counts, times, 1)
            copies = [tensor.clone() for tensor in pytree.tree_leaves(buffers.arguments)]
            for _ in range(room):
                step(state, memory)
                program(copies)
            expected = pytree.tree_leaves(buffers.arguments)
            assert state.done.all()
            assert all(map(torch.allclose, copies, expected))
