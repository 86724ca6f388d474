"""One step of the search: static shapes, no look at a value by the host, and results that stay."""

import itertools
from collections.abc import Iterable

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.devices import GPU, NoHostReads, gpu_stand_in
from tests.sweeps import sample
from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine.known_features import NoRepeatedNgrams
from vanilla_transformer.decoding.engine.phrase_constraints import PhraseConstraints
from vanilla_transformer.decoding.engine.requests import DecodeRequest
from vanilla_transformer.decoding.engine.sampling import SamplingOptions
from vanilla_transformer.decoding.engine.search_options import SearchOptions
from vanilla_transformer.decoding.engine.search_state import SearchState
from vanilla_transformer.decoding.engine.static_decoder import SlotMemory, StaticDecoder
from vanilla_transformer.decoding.engine.static_search import SearchStep
from vanilla_transformer.decoding.engine.step_package import export_step
from vanilla_transformer.decoding.engine.target_prefix import ForcedToken, TargetPrefix
from vanilla_transformer.generation_vanilla_transformer import length_penalty

SLOTS, ROOM, VOCAB, START, EOS = 3, 16, 40, 1, 2
CPU = torch.device("cpu")
SAMPLING = SamplingOptions(temperature=0.9, top_k=30, top_p=0.95, epsilon_cutoff=1e-3)
OPTIONS = [
    SearchOptions(1, (EOS,)),
    SearchOptions(1, (EOS, 4), min_new_tokens=3),
    SearchOptions(4, (EOS,), 0.6, "wu", "never"),
    SearchOptions(3, (EOS, 4), 1.0, "power", True, min_new_tokens=2),
    SearchOptions(1, (EOS,), sampling=SAMPLING),
    SearchOptions(3, (EOS,), features=(PhraseConstraints(4, 3, (EOS,)),)),
    SearchOptions(3, (EOS,), features=(TargetPrefix(),)),
    SearchOptions(3, (EOS,), features=(ForcedToken(9),)),
    SearchOptions(1, (EOS,), features=(NoRepeatedNgrams(1),)),
    SearchOptions(3, (EOS,), features=(TargetPrefix(), NoRepeatedNgrams(3))),
]
NAMES = ["greedy", "greedy-short", "beam", "beam-short", "sampling", "constraints"]
NAMES += ["prefix", "forced-bos", "greedy-ngrams", "prefix-ngrams"]
BY_NAME = dict(zip(NAMES, OPTIONS, strict=True))
EACH_KIND = ["greedy", "beam-short", "sampling", "constraints", "forced-bos", "prefix-ngrams"]
SAMPLED = sample(OPTIONS, *map(BY_NAME.get, EACH_KIND))
every_search = pytest.mark.parametrize("options", SAMPLED, ids=NAMES)


def step_of(options, **changes):
    model = tiny_model(vocab_size=VOCAB, decoder_layers=2, init_std=0.3, **changes)
    memory = SlotMemory.empty(model, SLOTS, options.num_beams, ROOM)
    return SearchStep([StaticDecoder(model)], options).eval(), [memory]


def started(options, memory, limits=(5, 9, 14)):
    """Return the state of slots in which sentences have entered, with sources of random states."""
    torch.manual_seed(0)
    state, slots = SearchState.empty(SLOTS, ROOM, CPU, options), torch.arange(SLOTS)
    beams = torch.full((SLOTS,), options.num_beams)
    times = torch.zeros(SLOTS, dtype=torch.long)
    state.start(slots, torch.tensor(limits), beams, times, START)
    requests = [DecodeRequest([], [7, 9, 11], [(7, 8)])]
    requests.append(DecodeRequest([], [], [(9,), (9,)]))
    requests.append(DecodeRequest([], [5], []))
    for feature, feature_state in zip(options.features, state.features, strict=True):
        feature.enter(feature_state, slots, requests)
    memory[0].source_lengths.copy_(torch.tensor([3, 16, 7]))
    for layer in memory[0].layers:
        layer.source.keys.normal_()
        layer.source.values.normal_()
    return state


def same(tree, other):
    pairs = zip(pytree.tree_leaves(tree), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def close(tree, other):
    """Tell whether states agree up to the rounding of packed and plain products."""
    pairs = zip(pytree.tree_leaves(tree), pytree.tree_leaves(other), strict=True)
    return all(torch.allclose(first, second, rtol=1e-5, atol=1e-6) for first, second in pairs)


def copied(tree):
    return pytree.tree_map(torch.clone, tree)


@every_search
def test_search_step_never_looks_at_values(options):
    step, memory = step_of(options)
    state = started(options, memory)
    with torch.inference_mode(), NoHostReads():
        for _ in range(ROOM):
            step(state, memory)
    assert state.done.all()


PENALTIES = [("wu", 0.6), ("power", 1.0), ("power", -0.5), ("power", 0.0)]
SEARCHES = []
for beams, (kind, alpha), early_stopping in itertools.product(
    [1, 4], PENALTIES, [True, False, "never"]
):
    SEARCHES.append(SearchOptions(beams, (EOS,), alpha, kind, early_stopping, 0))
    SEARCHES.append(SearchOptions(beams, (EOS, 4), alpha, kind, early_stopping, 2))


OFTEN = [*SEARCHES[4:6], *SEARCHES[24:26], *SEARCHES[32:34], *SEARCHES[40:42], *OPTIONS[5:]]


@pytest.mark.parametrize("options", sample([*SEARCHES, *OPTIONS[5:]], *OFTEN))
@torch.inference_mode()
def test_search_step_never_waits_for_a_gpu(options):
    step, memory = step_of(options)
    arguments = (started(options, memory), memory)
    arguments = pytree.tree_map(lambda tensor: tensor.to(GPU), arguments)
    step.to(GPU)
    with gpu_stand_in() as copies:
        step(*arguments)
    assert not copies.arrived


@every_search
@torch.inference_mode()
def test_search_step_updates_its_arguments_in_place(options):
    step, memory = step_of(options)
    state = started(options, memory)

    def place_of(leaf):
        return leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype

    def places():
        return [place_of(leaf) for leaf in leaves(state, memory)]

    before, values = places(), copied((state, memory))
    for _ in range(ROOM):
        assert step(state, memory) == ()
    assert places() == before
    assert not same(state.finished_tokens, values[0].finished_tokens)
    assert same(memory[0].layers[0].source.keys, values[1][0].layers[0].source.keys)


# The phrases of two slots still need a token or two.
NEEDED = PhraseConstraints(4, 3, (EOS,))
STOPS = [((), [False, False, False]), ((NEEDED,), [True, True, False])]


@pytest.mark.parametrize("early_stopping", [False, "never"])
@pytest.mark.parametrize(("features", "done"), STOPS, ids=str)
@torch.inference_mode()
def test_search_stops_if_no_hypothesis_gets_better(features, early_stopping, done):
    options = SearchOptions(3, (EOS,), early_stopping=early_stopping, features=features)
    step, memory = step_of(options)
    state = started(step.options, memory)
    state.finished_scores.fill_(-100.0)
    state.is_finished.fill_(True)
    step(state, memory)
    assert state.done.tolist() == done


def leaves(*trees) -> Iterable[torch.Tensor]:
    return pytree.tree_leaves(trees)


def results_of(state, slot):
    """Return everything that the engine reads of a slot that is done."""
    length = state.finished_lengths[slot].max()
    names = ["finished_tokens", "finished_lengths", "finished_scores"]
    names += ["is_finished", "time", "done"]
    results = [state.tokens[slot, :length], state.finished_ancestors[slot, :, :length]]
    return results + [getattr(state, name)[slot] for name in names]


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
    assert len(kept) == SLOTS
    assert all(int(values[1].shape[1]) for values in kept.values())


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
    others = other_state.finished_scores[2].tolist()
    assert state.finished_scores[2].tolist() == pytest.approx(others, rel=1e-5)


@every_search
@torch.inference_mode()
def test_search_step_leaves_empty_slots_alone(options):
    step, memory = step_of(options)
    state = SearchState.empty(SLOTS, ROOM, CPU, options)
    before = copied(state)
    for _ in range(ROOM):
        step(state, memory)
    assert same(state, before)


@torch.inference_mode()
@pytest.mark.parametrize("options", OPTIONS[:5:2], ids=["greedy", "beam", "sampling"])
def test_search_step_ends_hypotheses_at_limits(options):
    step, memory = step_of(options, lm_head_bias=True)
    step.decoders[0].lm_head.bias[EOS] = -100.0
    state = started(options, memory, limits=(1, 9, 16))
    for _ in range(ROOM):
        step(state, memory)
    assert state.done.all()
    lengths = state.finished_lengths.tolist()
    assert lengths == [[length] * options.num_beams for length in (1, 9, 16)]
    assert not (state.finished_tokens == EOS).any()


@torch.inference_mode()
@pytest.mark.parametrize("options", [OPTIONS[1], OPTIONS[3]], ids=["greedy", "beam"])
def test_search_step_ends_no_hypothesis_before_min_new_tokens(options):
    step, memory = step_of(options, lm_head_bias=True)
    step.decoders[0].lm_head.bias[[EOS, 4]] = 100.0
    state = started(options, memory)
    for _ in range(ROOM):
        step(state, memory)
    assert (state.finished_lengths[:, 0] == options.min_new_tokens + 1).all()
    assert torch.isin(state.finished_tokens[:, 0], torch.tensor([EOS, 4])).all()


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 2.0])
def test_search_options_divide_by_length_penalty(kind, alpha):
    lengths = torch.tensor([1, 2, 7, 500])
    expected = [length_penalty(length, alpha, kind) for length in lengths.tolist()]
    divisor = SearchOptions(2, (EOS,), alpha, kind).divisor(lengths)
    torch.testing.assert_close(divisor, torch.tensor(expected))


PREFIXES = sample(OPTIONS, BY_NAME["prefix-ngrams"])


@pytest.mark.parametrize("options", PREFIXES, ids=NAMES)
def test_search_step_exports_as_one_graph(options):
    step, memory = step_of(options)
    state = started(options, memory)
    with torch.no_grad():
        program = export_step(step, (state, memory))
        exported = program.module()
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        targets = {str(node.target) for node in calls} - {"<built-in function getitem>"}
        assert targets
        for target in targets:
            assert target.startswith("aten.")
            assert not target.removeprefix("aten.").startswith(NoHostReads.READS)
        shadow_state, shadow_memory = copied((state, memory))
        for _ in range(ROOM):
            step(state, memory)
            exported(pytree.tree_leaves((shadow_state, shadow_memory)))
    assert state.done.all() and close(shadow_state, state)
