"""The decoding engine: the hypotheses of the library's own search, streams, and errors of one
line.
"""

import itertools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.closeness import close_to
from tests.engine_cases import (
    EOS,
    IMPOSSIBLE,
    Case,
    assert_engine_gives_hypotheses_of_library,
    hypotheses_of_library,
    random_case,
)
from tests.generation_models import SOURCES, all_hypotheses, build, partly_trained_model
from tests.sweeps import rare, sample
from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine import engine as engine_module
from vanilla_transformer.decoding.engine.engine import Engine

LIMIT = 8


def model_of(**changes):
    """Return a model whose translations differ, and whose positions tell repeated tokens apart."""
    fields = {"vocab_size": 40, "init_std": 0.4, "lm_head_bias": True}
    return tiny_model(**fields | changes)


def engine_of(model=None, slots=2, **options):
    options = {"num_beams": 2, "max_new_tokens": LIMIT, "compile": False} | options
    return Engine(model_of() if model is None else model, slots=slots, **options)


def tokens_of(results):
    """Return the tokens alone: scores depend a little on the sentences beside, by rounding."""
    return [tokens_of_one(hypotheses) for hypotheses in results]


def tokens_of_one(hypotheses):
    return [hypothesis.tokens for hypothesis in hypotheses]


def random_sources(number, longest=9, seed=0):
    """Return sources of 1 to `longest` tokens."""
    torch.manual_seed(seed)
    lengths = torch.randint(0, longest, (number,)).tolist()
    return [[*torch.randint(5, 40, (length,)).tolist(), EOS] for length in lengths]


# --- The hypotheses of the library ----------------------------------------------------------------


FIRST_SEEDS = [*range(0, 60, 5), *range(1000, 1600, 5)]


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("first", sample(FIRST_SEEDS, 30))
def test_engine_gives_hypotheses_of_library(first):
    for seed in range(first, first + 5):
        assert_engine_gives_hypotheses_of_library(random_case(seed))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"attention_key_dim": 5, "attention_value_dim": 3, "attention_bias": True},
        {"attention_key_dim": 6, "attention_value_dim": 6},
        {"position_embedding_type": "none"},
        {"attn_implementation": "eager"},
        {"attn_implementation": "sdpa"},
    ],
)
def test_engine_gives_hypotheses_of_library_for_any_attention(changes, beams):
    options = {"num_beams": beams, "max_new_tokens": LIMIT}
    case = Case(model_of(**changes), random_sources(5), 3, options, beams)
    assert_engine_gives_hypotheses_of_library(case)


SLOTS_AND_BEAMS = sample(itertools.product([1, 3, 20], [1, 4]), (1, 4), (3, 1))


@pytest.mark.parametrize(("slots", "beams"), SLOTS_AND_BEAMS)
def test_engine_gives_hypotheses_while_room_grows_and_shrinks(slots, beams):
    sources = [*random_sources(3), *random_sources(1, 150, seed=3)]
    sources += random_sources(4, seed=1)
    assert max(map(len, sources)) > 64
    options = {"num_beams": beams, "max_new_tokens_beyond_source": 5}
    options["min_new_tokens"] = 2
    case = Case(model_of(), sources, slots, options, 1)
    assert_engine_gives_hypotheses_of_library(case)


def test_engine_room_follows_the_longest_sentence_in_slots():
    engine, rooms = engine_of(slots=1), []
    sources, buffers = [[7, EOS], [7] * 60 + [EOS], [8, EOS]], engine.buffers
    engine.decode(sources, report=lambda _: rooms.append(buffers.size.room))
    assert rooms == [64, 16, 16]  # the longest sentence is the first one


@pytest.mark.parametrize("beams", [rare(1), 3])
@pytest.mark.filterwarnings("ignore:Unfeasible length")
def test_engine_decodes_the_last_sentences_in_few_slots(beams):
    sources = [[7] * length + [EOS] for length in range(1, 21)]
    # One ends after the other.
    options = {"num_beams": beams, "max_new_tokens_beyond_source": 0}
    options["min_new_tokens"] = 22
    case = Case(model_of(), sources, 16, options, 1)
    assert_engine_gives_hypotheses_of_library(case)
    engine, sizes = engine_of(slots=16, max_new_tokens=None, **options), []
    engine.decode(sources, report=lambda _: sizes.append(engine.buffers.size.slots))
    assert sizes[0] == 16 and sizes[-1] == 1 and {*sizes} == {1, 2, 4, 8, 16}


def short_ones_and(long, number=60):
    """Return sources of one token, and a longer one after each fifteen of them."""
    lengths = [long if position % 16 == 15 else 1 for position in range(number)]
    return [[7] * length + [EOS] for length in lengths]


def in_order_of_finishing(engine, sources, monkeypatch):
    """Return the places of sources in the order in which they are done, if they enter in the given
    order.
    """

    def keep_order(items, **_):
        return [*items]

    monkeypatch.setattr(engine_module, "sorted", keep_order, raising=False)
    order, advance = [], engine._advance

    def recorded():
        done = [*advance()]
        order.extend(search.position for search, _ in done)
        return done

    engine._advance = recorded
    engine.decode(sources)
    return order


@pytest.mark.parametrize("beams", [1, rare(3)])
@pytest.mark.filterwarnings("ignore:Unfeasible length")
def test_engine_sets_a_few_long_sentences_aside(beams, monkeypatch):
    options = {"num_beams": beams, "max_new_tokens_beyond_source": 0}
    options["min_new_tokens"] = 70
    engine, steps = engine_of(slots=20, max_new_tokens=None, **options), []
    run = engine.steps.run

    def record(count, *arguments):
        steps.append(engine.buffers.size)
        run(count, *arguments)

    engine.steps.run = record
    finished = in_order_of_finishing(engine, short_ones_and(60), monkeypatch)
    assert sorted(finished[-3:]) == [15, 31, 47]
    assert {size.room for size in steps[1:4]} == {16}  # the long ones wait
    assert {size.room for size in steps} == {16, 64} and len(steps) < 2 * 61
    case = Case(engine.model, short_ones_and(40, 34), 20, options, 1)
    assert_engine_gives_hypotheses_of_library(case)


def test_engine_returns_long_sentences_that_could_fill_the_slots(monkeypatch):
    engine = engine_of(slots=20, num_beams=1, max_new_tokens=2)
    finished = in_order_of_finishing(engine, short_ones_and(60, 16 * 25), monkeypatch)
    assert sorted(finished) == [*range(400)]
    # Where there are twenty long ones, not at the end of the stream.
    assert finished.index(15) < 20 * 16


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, rare(2.0), rare(-0.5)])
def test_engine_with_enough_beams_matches_exhaustive_search(kind, alpha):
    model, source = build(vocab_size=5), [3, 4, EOS]
    options = {"length_penalty": alpha, "length_penalty_type": kind}
    engine = engine_of(model, num_beams=350, max_new_tokens=4, **options)
    (hypotheses,) = engine.decode([source], 12)
    scores, tokens = zip(*all_hypotheses(model, source, 4, kind, alpha)[:12], strict=True)
    assert tokens_of_one(hypotheses) == [*tokens]
    assert [hypothesis.score for hypothesis in hypotheses] == close_to([*scores])


STOPS = itertools.product(["wu", "power"], [-0.5, 0.6, 2.0], [True, False, "never"])


@pytest.mark.parametrize(
    ("kind", "alpha", "early_stopping"),
    sample(STOPS, ("wu", -0.5, "never"), ("power", -0.5, True), ("power", 2.0, False)),
)
def test_engine_stops_when_the_library_stops(kind, alpha, early_stopping):
    model = partly_trained_model()  # long and short hypotheses compete
    options = {"num_beams": 4, "early_stopping": early_stopping}
    options |= {"max_new_tokens_beyond_source": 9}
    options |= {"length_penalty": alpha, "length_penalty_type": kind}
    for returned in (4, 2, 1):
        case = Case(model, SOURCES, 2, options, returned)
        assert_engine_gives_hypotheses_of_library(case)


SAVINGS = [("never", 0.6, True), (False, 0.6, False)]


@pytest.mark.parametrize(("early_stopping", "alpha", "saves"), SAVINGS)
def test_engine_stops_once_its_hypotheses_are_certain(early_stopping, alpha, saves):
    limits = {"max_new_tokens": None, "max_new_tokens_beyond_source": 9}
    search = {"num_beams": 4, "early_stopping": early_stopping, **limits}
    search["length_penalty"] = alpha
    best, steps = {}, {}
    for returned in (1, 4):
        engine = engine_of(partly_trained_model(), slots=len(SOURCES), **search)
        rows = tokens_of(engine.decode(SOURCES, returned))
        best[returned] = [row[0] for row in rows]
        steps[returned] = engine._schedule.steps_run
    assert best[1] == best[4]
    assert (steps[1] < steps[4]) == saves


def test_engine_looks_for_other_sizes_seldom(monkeypatch):
    """Look only when sentences enter or leave or grow."""
    engine, sizes = engine_of(slots=2, min_new_tokens=15, max_new_tokens=15), []
    resize = engine._schedule._resize

    def record(size):
        sizes.append(size)
        return resize(size)

    monkeypatch.setattr(engine._schedule, "_resize", record)
    engine.decode([[7, 8, EOS]])
    assert engine._schedule.steps_run == 15 and len(sizes) <= 4


@pytest.mark.parametrize("beams", [2, 4])
def test_engine_continues_while_every_beam_could_end_in_two_ways(beams):
    model = model_of()
    model.lm_head.weight.data *= 0.05
    # More likely than all others, but long hypotheses get better scores.
    model.lm_head.bias.data[[EOS, 4]] = 1.0
    options = {"num_beams": beams, "eos_token_id": [EOS, 4], "max_new_tokens": LIMIT}
    options |= {"length_penalty": 2.0, "length_penalty_type": "power"}
    options["early_stopping"] = "never"
    case = Case(model, random_sources(4), 2, options, beams)
    assert_engine_gives_hypotheses_of_library(case)


def test_engine_attends_to_no_eos_unless_there_is_nothing_else():
    model = model_of(source_eos=False)
    source = torch.tensor([[7, EOS, 9, EOS]])
    expected = model.generate(source, num_beams=2, max_new_tokens=LIMIT)
    (best,), (lone,) = engine_of(model).decode([[7, EOS, 9, EOS], [EOS]])
    assert best.tokens == expected[0, 1:].tolist()
    # The library would attend to nothing.
    assert lone.tokens and IMPOSSIBLE < lone.score < 0.0


UNLIMITED, BEYOND = {"max_new_tokens": None}, "max_new_tokens_beyond_source"
CONFIGS_AND_CALLS = [
    ({"max_new_tokens": 3}, {BEYOND: 4}),
    ({"max_new_tokens": 3}, {"max_length": 9}),
    (UNLIMITED | {BEYOND: 4}, {"max_length": 9}),
    (UNLIMITED | {BEYOND: 4}, {"max_new_tokens": 2}),
    (UNLIMITED | {BEYOND: 1, "max_length": 5}, {}),
    (UNLIMITED | {BEYOND: None, "max_length": 5}, {}),
]


@pytest.mark.parametrize(("configured", "options"), CONFIGS_AND_CALLS)
def test_engine_takes_limit_that_is_closest_to_the_call(configured, options):
    model = model_of()
    model.lm_head.bias.data[EOS] = -100.0  # every translation reaches the limit
    model.generation_config.update(**configured, num_beams=1)
    engine = Engine(model, slots=2, compile=False, **options)
    source = [7, 8, EOS]
    case = Case(model, [source], 2, {"num_beams": 1, **options}, 1)
    (expected,) = hypotheses_of_library(case, source)
    assert engine.decode([source])[0][0].tokens == expected.tokens


def test_engine_gives_the_same_in_slots_used_before():
    """With 3 target tokens and 5 beams there are fewer hypotheses than beams, and the rest are
    impossible.
    """
    model, limits = build(vocab_size=5), {"max_new_tokens": 1, "min_new_tokens": 1}
    engine = engine_of(model, slots=1, num_beams=5, **limits)
    alone = engine.decode([[3, EOS]], 5)
    engine = engine_of(model, slots=1, num_beams=5, **limits)
    assert engine.decode([[4, 4, 4, EOS], [3, EOS]], 5)[1:] == alone
    assert [*map(len, tokens_of_one(alone[0]))][:4] == [1, 1, 1, 1]


# --- Calls ----------------------------------------------------------------------------------------


def test_call_that_fails_leaves_engine_usable(monkeypatch):
    engine, sources = engine_of(slots=2), random_sources(6)
    expected = tokens_of(engine.decode(sources))
    with pytest.raises(ValueError, match="in source 5"):
        engine.decode([*sources[:5], [99, EOS]])

    def fail(done):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        engine.decode(sources, report=fail)
    assert tokens_of(engine.decode(sources)) == expected


def test_engine_in_threads_gives_tokens_of_one_thread():
    engine = engine_of()
    requests = [random_sources(5, seed=seed) for seed in range(6)]
    expected = [tokens_of(engine.decode(request)) for request in requests]
    barrier = threading.Barrier(2, timeout=30)

    def translate(half):
        barrier.wait()
        return [tokens_of(engine.decode(request)) for request in half * 3]

    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(translate, [requests[:3], requests[3:]]))
    assert halves == [expected[:3] * 3, expected[3:] * 3]


def test_engine_translates_empty_lists_and_single_tokens():
    engine = engine_of()
    assert engine.decode([]) == []
    options = {"num_beams": 2, "max_new_tokens": LIMIT}
    case = Case(engine.model, [[EOS], [7]], 2, options, 2)
    assert_engine_gives_hypotheses_of_library(case)


# --- Errors ---------------------------------------------------------------------------------------


def test_engine_stops_at_the_last_learned_position():
    model = model_of(position_embedding_type="learned", max_position_embeddings=12)
    model.lm_head.bias.data[EOS] = -100.0
    options = {"max_new_tokens": None, "max_new_tokens_beyond_source": 30}
    ((hypothesis,),) = engine_of(model, **options).decode([[7, EOS]])
    assert len(hypothesis.tokens) == 11


def test_engine_of_greedy_search_does_not_warn_of_beams(monkeypatch):
    model, warnings = model_of(), list[str]()

    def record(_, message, *values):
        warnings.append(message)

    monkeypatch.setattr(logging.Logger, "warning_once", record)
    engine_of(model, num_beams=1, early_stopping="never", length_penalty=0.6)
    assert not warnings
