"""The tensors of an engine's slots: their contents when the size changes, and how many are kept."""

import torch
from torch.utils import _pytree as pytree

from tests.tiny import tiny_causal_lm, tiny_model
from vanilla_transformer.decoding.engine import slot_buffers
from vanilla_transformer.decoding.engine.search_options import SearchOptions
from vanilla_transformer.decoding.engine.slot_buffers import SlotBuffers, SlotSize


def fill(buffers):
    """Give all slots different values, and return copies of some."""
    state, memory = buffers.arguments
    slots = torch.arange(len(state.done))
    state.start(slots, slots + 5, slots + 1, slots + 9, 1)
    layer = memory[0].layers[0]
    copies = []
    for tensor in (state.tokens, layer.target.keys, layer.source.values):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape))
        copies.append(tensor.clone())
    return copies


def test_resize_keeps_the_given_slots_and_empties_the_others():
    buffers = SlotBuffers(tiny_model(), SearchOptions(2, (2,)), SlotSize(4, 16))
    tokens, keys, values = fill(buffers)
    sizes = [(SlotSize(4, 32), [0, 1, 2, 3]), (SlotSize(2, 32), [1, 3])]
    sizes.append((SlotSize(4, 16), [0, 1]))
    for size, kept in sizes:
        buffers.resize(size, kept)
        tokens, keys, values = tokens[kept], keys[kept], values[kept]
        state, memory = buffers.arguments
        layer, number = memory[0].layers[0], len(kept)
        assert buffers.size == size
        assert state.tokens.shape[:2] == (size.slots, size.room)
        assert torch.equal(state.tokens[:number, :16], tokens)
        assert torch.equal(layer.target.keys[:number, :, :16], keys)
        assert torch.equal(layer.source.values[:number, :, :16], values)
        assert state.done.tolist() == [False] * number + [True] * (size.slots - number)
    assert state.limits[:2].tolist() == [6, 8]


def test_buffers_return_to_the_tensors_of_a_size():
    buffers = SlotBuffers(tiny_model(), SearchOptions(1, (2,)), SlotSize(1, 16))
    first = buffers.state
    buffers.resize(SlotSize(1, 32), [0])
    buffers.resize(SlotSize(1, 16), [0])
    assert buffers.state is first


def test_buffers_drop_the_sizes_used_least_recently(monkeypatch):
    buffers = SlotBuffers(tiny_model(), SearchOptions(1, (2,)), SlotSize(1, 16))
    small = buffers._spare()
    buffers.resize(SlotSize(1, 32), [0])
    both = buffers._spare()
    asked = []

    def spare_memory(device, spare):
        asked.append((device.type, spare))
        return both - small

    monkeypatch.setattr(slot_buffers, "spare_memory", spare_memory)
    buffers.resize(SlotSize(1, 16), [0])
    buffers.resize(SlotSize(1, 32), [0])
    assert asked == []  # there are tensors of both sizes
    buffers.resize(SlotSize(2, 16), [0])
    assert asked == [("cpu", both)]
    assert [*buffers._sizes] == [SlotSize(1, 32), SlotSize(2, 16)]


def test_buffers_drop_other_sizes_when_memory_runs_out():
    buffers = SlotBuffers(tiny_model(), SearchOptions(1, (2,)), SlotSize(1, 16))
    allocate, sizes = buffers._allocate, []

    def allocate_if_alone(size):
        sizes.append(size)
        if buffers._sizes:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return allocate(size)

    buffers._allocate = allocate_if_alone
    buffers.resize(SlotSize(1, 32), [0])
    assert sizes == [SlotSize(1, 32)] * 2
    assert [*buffers._sizes] == [SlotSize(1, 32)]


def test_dimensions_name_the_slots_and_the_positions_of_every_tensor():
    buffers = SlotBuffers(tiny_model(decoder_layers=2), SearchOptions(3, (2,)), SlotSize(5, 7))
    dimensions = buffers.dimensions()
    names = {5: "slots", 7: "room"}
    for leaf, growths in zip(pytree.tree_leaves(buffers.arguments), dimensions, strict=True):
        expected = {}
        for dimension, size in enumerate(leaf.shape):
            if size in names:
                expected[dimension] = (names[size], 1)
        assert growths == expected
    # Keys and values of two layers, and more.
    assert sum(("room", 1) in growths.values() for growths in dimensions) > 8


def test_dimensions_double_for_positions_of_prompt_and_target():
    buffers = SlotBuffers(tiny_causal_lm(), SearchOptions(1, (2,)), SlotSize(2, 7))
    assert len(buffers.memory[0].positions) == 14
    assert {0: ("room", 2)} in buffers.dimensions()


def test_example_has_the_shapes_that_dimensions_describe():
    buffers = SlotBuffers(tiny_model(), SearchOptions(2, (2,)), SlotSize(1, 16))
    slots, room = buffers.example()[0].tokens.shape[:2]
    assert slots > 2 and room > 2 and len({slots, room, 2}) == 3
