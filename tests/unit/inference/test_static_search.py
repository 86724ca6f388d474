"""One step of the search: static shapes, no look at a value by the host, and results that stay."""

from collections.abc import Iterable

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.tiny import tiny_model
from vanilla_transformer.generation_vanilla_transformer import length_penalty
from vanilla_transformer.inference.compiled_steps import _FlatStep
from vanilla_transformer.inference.static_decoder import SlotMemory, StaticDecoder
from vanilla_transformer.inference.static_search import SearchOptions, SearchState, SearchStep

SLOTS, ROOM, VOCAB, START, EOS = 3, 16, 40, 1, 2
CPU, META = torch.device("cpu"), torch.device("meta")
OPTIONS = [
    SearchOptions(1, (EOS,)),
    SearchOptions(1, (EOS, 4), min_new_tokens=3),
    SearchOptions(4, (EOS,), 0.6, "wu", "never"),
    SearchOptions(3, (EOS, 4), 1.0, "power", True, min_new_tokens=2),
]
every_search = pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "greedy-short", "beam", "beam-short"])


def step_of(options, **changes):
    model = tiny_model(vocab_size=VOCAB, decoder_layers=2, init_std=0.3, **changes)
    return SearchStep(StaticDecoder(model), options).eval(), SlotMemory.empty(model, SLOTS, options.num_beams, ROOM)


def started(options, memory, limits=(5, 9, 14)):
    """Return the state of slots in which sentences have entered, with sources of random states."""
    torch.manual_seed(0)
    state = SearchState.empty(SLOTS, options.num_beams, ROOM, CPU)
    state.done.fill_(False)
    state.limits.copy_(torch.tensor(limits))
    state.last_tokens.fill_(START)
    state.scores[:, 1:] = -1.0e9
    memory.source_lengths.copy_(torch.tensor([3, 16, 7]))
    for layer in memory.layers:
        layer.source_keys.normal_()
        layer.source_values.normal_()
    return state


def same(tree, other):
    pairs = zip(pytree.tree_leaves(tree), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def copied(tree):
    return pytree.tree_map(torch.clone, tree)


class NoLooks(TorchDispatchMode):
    """Raise an error if an operation lets the host look at values, moves them, or has results of unknown shapes."""

    LOOKS = ("_local_scalar_dense", "nonzero", "item", "masked_select", "equal", "is_nonzero", "unique", "lift_fresh")

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.overloadpacket.__name__
        if name.startswith(self.LOOKS):
            raise AssertionError(f"{operation} waits for the device.")
        if name in ("index", "index_put", "index_put_"):
            indices = [index for index in args[1] if index is not None]
            assert all(index.dtype is torch.long for index in indices), f"{operation} with a mask has no static shape."
        results = operation(*args, **(kwargs or {}))
        if name in ("_to_copy", "copy_"):
            devices = {leaf.device for leaf in pytree.tree_leaves((args, results)) if isinstance(leaf, torch.Tensor)}
            assert len(devices) == 1, f"{operation} copies between devices."
        return results


@every_search
def test_search_step_never_looks_at_values(options):
    step, memory = step_of(options)
    state = started(options, memory)
    with torch.inference_mode(), NoLooks():
        for _ in range(ROOM):
            step(state, memory)
    assert state.done.all()


VALUES = torch.arange(3.0)
LOOKS = {
    "item": lambda: VALUES[1].item(),
    "condition": lambda: bool(VALUES[1] > 0),
    "equal": lambda: torch.equal(VALUES, VALUES),
    "nonzero": lambda: VALUES.nonzero(),
    "where": lambda: torch.where(VALUES > 1),
    "masked_select": lambda: VALUES.masked_select(VALUES > 1),
    "mask": lambda: VALUES[VALUES > 1],
    "assignment by mask": lambda: VALUES.clone().__setitem__(VALUES > 1, 0.0),
    "constant": lambda: torch.tensor([1, 2]),
    "to": lambda: VALUES.to(META),
    "copy_": lambda: torch.empty(3, device=META).copy_(VALUES),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_no_looks_finds_every_look(look):
    with pytest.raises(AssertionError), NoLooks():
        look()


@every_search
@torch.inference_mode()
def test_search_step_updates_its_arguments_in_place(options):
    step, memory = step_of(options)
    state = started(options, memory)

    def places():
        return [(leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype) for leaf in leaves(state, memory)]

    before, values = places(), copied((state, memory))
    for _ in range(ROOM):
        assert step(state, memory) == ()
    assert places() == before
    assert not same(state.finished_tokens, values[0].finished_tokens)
    assert same(memory.layers[0].source_keys, values[1].layers[0].source_keys)


def leaves(*trees) -> Iterable[torch.Tensor]:
    return pytree.tree_leaves(trees)


def results_of(state, slot):
    """Return everything that the engine reads of a slot that is done."""
    length = state.finished_lengths[slot].max()
    names = ("finished_tokens", "finished_lengths", "finished_scores", "is_finished", "time", "done")
    return [state.tokens[slot, :length], state.finished_ancestors[slot, :, :length]] + [
        getattr(state, name)[slot] for name in names
    ]


@every_search
@torch.inference_mode()
def test_search_step_keeps_results_of_done_slots(options):
    step, memory = step_of(options)
    state, kept = started(options, memory, limits=(5, 2, 14)), {}
    for _ in range(2 * ROOM):
        step(state, memory)
        for slot in state.done.nonzero()[:, 0].tolist():
            now = copied(results_of(state, slot))
            assert same(now, kept.setdefault(slot, now))
    assert len(kept) == SLOTS and all(int(values[1].shape[1]) for values in kept.values())


@every_search
@torch.inference_mode()
def test_search_step_of_a_slot_does_not_depend_on_other_slots(options):
    step, memory = step_of(options)
    state = started(options, memory)
    other_state, other_memory = copied((state, memory))
    other_state.done[0] = True  # an empty slot
    other_state.limits[1] = 2
    for _ in range(ROOM):
        step(state, memory)
        step(other_state, other_memory)
    assert same(results_of(state, 2)[0], results_of(other_state, 2)[0])
    assert same(state.finished_tokens[2], other_state.finished_tokens[2])
    assert state.finished_scores[2].tolist() == pytest.approx(other_state.finished_scores[2].tolist(), rel=1e-5)


@every_search
@torch.inference_mode()
def test_search_step_leaves_empty_slots_alone(options):
    step, memory = step_of(options)
    state = SearchState.empty(SLOTS, options.num_beams, ROOM, CPU)
    before = copied(state)
    for _ in range(ROOM):
        step(state, memory)
    assert same(state, before)


@torch.inference_mode()
@pytest.mark.parametrize("options", OPTIONS[::2], ids=["greedy", "beam"])
def test_search_step_ends_hypotheses_at_limits(options):
    step, memory = step_of(options, lm_head_bias=True)
    step.decoder.lm_head.bias[EOS] = -100.0
    state = started(options, memory, limits=(1, 9, 16))
    for _ in range(ROOM):
        step(state, memory)
    assert state.done.all()
    assert state.finished_lengths.tolist() == [[length] * options.num_beams for length in (1, 9, 16)]
    assert not (state.finished_tokens == EOS).any()


@torch.inference_mode()
@pytest.mark.parametrize("options", [OPTIONS[1], OPTIONS[3]], ids=["greedy", "beam"])
def test_search_step_ends_no_hypothesis_before_min_new_tokens(options):
    step, memory = step_of(options, lm_head_bias=True)
    step.decoder.lm_head.bias[[EOS, 4]] = 100.0
    state = started(options, memory)
    for _ in range(ROOM):
        step(state, memory)
    assert (state.finished_lengths[:, 0] == options.min_new_tokens + 1).all()
    assert torch.isin(state.finished_tokens[:, 0], torch.tensor([EOS, 4])).all()


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
def test_search_options_divide_by_length_penalty(kind, alpha):
    lengths = torch.tensor([1, 2, 7, 500])
    expected = [[length_penalty(length, alpha, kind)] for length in lengths.tolist()]
    torch.testing.assert_close(SearchOptions(2, (EOS,), alpha, kind).divisor(lengths), torch.tensor(expected))


@pytest.mark.parametrize("options", OPTIONS[::2], ids=["greedy", "beam"])
def test_search_step_exports_as_one_graph(options):
    step, memory = step_of(options)
    state = started(options, memory)
    tensors, structure = pytree.tree_flatten((state, memory))
    with torch.no_grad():
        program = torch.export.export(_FlatStep(step, structure), (tensors,), strict=False)
        exported = program.module()
        targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
        operations = [target.removeprefix("aten.") for target in targets if target.startswith("aten.")]
        assert set(targets) - {f"aten.{name}" for name in operations} <= {"<built-in function getitem>"}
        assert operations and not [name for name in operations if name.startswith(NoLooks.LOOKS[:-1])]
        shadow_state, shadow_memory = copied((state, memory))
        for _ in range(ROOM):
            step(state, memory)
            exported(pytree.tree_leaves((shadow_state, shadow_memory)))
    assert state.done.all() and same(shadow_state, state)
