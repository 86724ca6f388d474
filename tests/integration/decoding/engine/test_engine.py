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
    return tiny_model(**{"vocab_size": 40, "init_std": 0.4, "lm_head_bias": True} | changes)


def engine_of(model=None, slots=2, **options):
    options = {"num_beams": 2, "max_new_tokens": LIMIT, "compile": False} | options
    return Engine(model_of() if model is None else model, slots=slots, **options)


def tokens_of(results):
    """Return the tokens alone: scores depend a little on the sentences beside, by rounding."""
    return [[each.tokens for each in hypotheses] for hypotheses in results]


def random_sources(number, longest=9, seed=0):
    """Return sources of 1 to `longest` tokens."""
    torch.manual_seed(seed)
    lengths = torch.randint(0, longest, (number,)).tolist()
    return [[*torch.randint(5, 40, (length,)).tolist(), EOS] for length in lengths]


# --- The hypotheses of the library ----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("first", sample([*range(0, 60, 10), *range(1000, 1600, 10)], 30))
def test_engine_gives_hypotheses_of_library(first):
    for seed in range(first, first + 10):
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
def test_engine_gives_hypotheses_of_library_for_models_of_table_3_and_every_attention(
    changes, beams
):
    case = Case(
        model_of(**changes),
        random_sources(5),
        3,
        {"num_beams": beams, "max_new_tokens": LIMIT},
        beams,
    )
    assert_engine_gives_hypotheses_of_library(case)


@pytest.mark.parametrize(
    ("slots", "beams"), sample(itertools.product([1, 3, 20], [1, 4]), (1, 4), (3, 1))
)
def test_engine_gives_hypotheses_of_library_while_room_grows_and_shrinks(slots, beams):
    sources = [*random_sources(3), *random_sources(1, 150, seed=3), *random_sources(4, seed=1)]
    assert max(map(len, sources)) > 64
    options = {"num_beams": beams, "max_new_tokens_beyond_source": 5, "min_new_tokens": 2}
    case = Case(model_of(), sources, slots, options, 1)
    assert_engine_gives_hypotheses_of_library(case)


def test_engine_room_follows_the_longest_sentence_in_slots():
    engine, rooms = engine_of(slots=1), []
    engine.decode(
        [[7, EOS], [7] * 60 + [EOS], [8, EOS]],
        report=lambda _: rooms.append(engine.buffers.size.room),
    )
    assert rooms == [64, 16, 16]  # the longest sentence is the first one


@pytest.mark.parametrize("beams", [rare(1), 3])
@pytest.mark.filterwarnings("ignore:Unfeasible length")
def test_engine_decodes_the_last_sentences_in_few_slots(beams):
    sources = [[7, 8] * length + [EOS] for length in range(1, 21)]
    options = {
        "num_beams": beams,
        "max_new_tokens_beyond_source": 0,
        "min_new_tokens": 42,
    }  # one ends after the other
    assert_engine_gives_hypotheses_of_library(Case(model_of(), sources, 16, options, 1))
    engine, sizes = engine_of(slots=16, max_new_tokens=None, **options), []
    engine.decode(sources, report=lambda _: sizes.append(engine.buffers.size.slots))
    assert sizes[0] == 16 and sizes[-1] == 1 and {*sizes} == {1, 2, 4, 8, 16}


def short_ones_and(long, number=60):
    """Return sources of one token, and a longer one after each fifteen of them."""
    return [[7] * (long if position % 16 == 15 else 1) + [EOS] for position in range(number)]


def in_order_of_finishing(engine, sources, monkeypatch):
    """Return the places of sources in the order in which they are done, if they enter in the given
    order.
    """
    monkeypatch.setattr(engine_module, "sorted", lambda items, **_: [*items], raising=False)
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
    options = {"num_beams": beams, "max_new_tokens_beyond_source": 0, "min_new_tokens": 70}
    engine, steps = engine_of(slots=20, max_new_tokens=None, **options), []
    run = engine.steps.run
    engine.steps.run = lambda count, *arguments: (
        steps.append(engine.buffers.size),
        run(count, *arguments),
    )
    finished = in_order_of_finishing(engine, short_ones_and(60), monkeypatch)
    assert sorted(finished[-3:]) == [15, 31, 47]
    assert {size.room for size in steps[1:4]} == {16}  # the long ones wait
    assert {size.room for size in steps} == {16, 64} and len(steps) < 2 * 61
    assert_engine_gives_hypotheses_of_library(
        Case(engine.model, short_ones_and(40, 34), 20, options, 1)
    )


def test_engine_returns_long_sentences_once_they_could_fill_the_slots(monkeypatch):
    engine = engine_of(slots=20, num_beams=1, max_new_tokens=2)
    finished = in_order_of_finishing(engine, short_ones_and(60, 16 * 25), monkeypatch)
    assert sorted(finished) == [*range(400)]
    assert (
        finished.index(15) < 20 * 16
    )  # where there are twenty long ones, not at the end of the stream


@pytest.mark.parametrize("kind", ["wu", "power"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, rare(2.0), rare(-0.5)])
def test_engine_with_enough_beams_matches_exhaustive_search(kind, alpha):
    model, source = build(vocab_size=5), [3, 4, EOS]
    engine = engine_of(
        model, num_beams=350, length_penalty=alpha, length_penalty_type=kind, max_new_tokens=4
    )
    (found,) = engine.decode([source], 12)
    expected = all_hypotheses(model, source, 4, kind, alpha)[:12]
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == close_to([score for score, _ in expected])


STOPS = itertools.product(["wu", "power"], [-0.5, 0.6, 2.0], [True, False, "never"])


@pytest.mark.parametrize(
    ("kind", "alpha", "early_stopping"),
    sample(STOPS, ("wu", -0.5, "never"), ("power", -0.5, True), ("power", 2.0, False)),
)
def test_engine_stops_when_the_library_stops(kind, alpha, early_stopping):
    model = partly_trained_model()  # long and short hypotheses compete
    options = {"num_beams": 4, "early_stopping": early_stopping, "max_new_tokens_beyond_source": 9}
    options |= {"length_penalty": alpha, "length_penalty_type": kind}
    for returned in (4, 2, 1):
        assert_engine_gives_hypotheses_of_library(Case(model, SOURCES, 2, options, returned))


@pytest.mark.parametrize(
    ("early_stopping", "alpha", "saves"), [("never", 0.6, True), (False, 0.6, False)]
)
def test_engine_stops_once_nothing_can_beat_the_hypotheses_that_it_returns(
    early_stopping, alpha, saves
):
    limits = {"max_new_tokens": None, "max_new_tokens_beyond_source": 9}
    search = {"num_beams": 4, "early_stopping": early_stopping, "length_penalty": alpha} | limits
    found, steps = {}, {}
    for returned in (1, 4):
        engine = engine_of(partly_trained_model(), slots=len(SOURCES), **search)
        found[returned] = [hypotheses[0] for hypotheses in engine.decode(SOURCES, returned)]
        steps[returned] = engine._schedule.steps_run
    assert [each.tokens for each in found[1]] == [each.tokens for each in found[4]]
    assert (steps[1] < steps[4]) == saves


def test_engine_looks_for_other_sizes_only_when_sentences_enter_or_leave_or_grow(monkeypatch):
    engine, resized = engine_of(slots=2, min_new_tokens=15, max_new_tokens=15), []
    resize = engine._schedule._resize
    monkeypatch.setattr(
        engine._schedule, "_resize", lambda size: (resized.append(size), resize(size))
    )
    engine.decode([[7, 8, EOS]])
    assert engine._schedule.steps_run == 15 and len(resized) <= 4


@pytest.mark.parametrize("beams", [2, 4])
def test_engine_continues_while_every_beam_could_end_in_two_ways(beams):
    model = model_of()
    model.lm_head.weight.data *= 0.05
    model.lm_head.bias.data[[EOS, 4]] = (
        1.0  # more likely than all others, but long hypotheses get better scores
    )
    options = {"num_beams": beams, "eos_token_id": [EOS, 4], "max_new_tokens": LIMIT}
    options |= {"length_penalty": 2.0, "length_penalty_type": "power", "early_stopping": "never"}
    assert_engine_gives_hypotheses_of_library(Case(model, random_sources(4), 2, options, beams))


def test_engine_attends_to_no_eos_unless_there_is_nothing_else():
    model = model_of(source_eos=False)
    expected = model.generate(torch.tensor([[7, EOS, 9, EOS]]), num_beams=2, max_new_tokens=LIMIT)
    (found,), (lone,) = engine_of(model).decode([[7, EOS, 9, EOS], [EOS]])
    assert found.tokens == expected[0, 1:].tolist()
    assert (
        lone.tokens and IMPOSSIBLE < lone.score < 0.0
    )  # where the library would attend to nothing


CONFIGS_AND_CALLS = [
    ({"max_new_tokens": 3}, {"max_new_tokens_beyond_source": 4}),
    ({"max_new_tokens": 3}, {"max_length": 9}),
    ({"max_new_tokens": None, "max_new_tokens_beyond_source": 4}, {"max_length": 9}),
    ({"max_new_tokens": None, "max_new_tokens_beyond_source": 4}, {"max_new_tokens": 2}),
    ({"max_new_tokens": None, "max_new_tokens_beyond_source": 1, "max_length": 5}, {}),
    ({"max_new_tokens": None, "max_new_tokens_beyond_source": None, "max_length": 5}, {}),
]


@pytest.mark.parametrize(("configured", "given"), CONFIGS_AND_CALLS)
def test_engine_takes_limit_that_is_closest_to_the_call(configured, given):
    model = model_of()
    model.lm_head.bias.data[EOS] = -100.0  # every translation reaches the limit
    model.generation_config.update(**configured, num_beams=1)
    engine = Engine(model, slots=2, compile=False, **given)
    source = [7, 8, EOS]
    expected = hypotheses_of_library(Case(model, [source], 2, {"num_beams": 1} | given, 1), source)
    assert engine.decode([source])[0][0].tokens == expected[0].tokens


def test_engine_gives_hypotheses_of_the_sentence_alone_in_slots_used_before():
    """With 3 target tokens and 5 beams there are fewer hypotheses than beams, and the rest are
    impossible.
    """
    model = build(vocab_size=5)
    engine = engine_of(model, slots=1, num_beams=5, max_new_tokens=1, min_new_tokens=1)
    alone = engine.decode([[3, EOS]], 5)
    engine = engine_of(model, slots=1, num_beams=5, max_new_tokens=1, min_new_tokens=1)
    assert engine.decode([[4, 4, 4, EOS], [3, EOS]], 5)[1:] == alone
    assert [len(each.tokens) for each in alone[0]][:4] == [1, 1, 1, 1]


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
    case = Case(engine.model, [[EOS], [7]], 2, {"num_beams": 2, "max_new_tokens": LIMIT}, 2)
    assert_engine_gives_hypotheses_of_library(case)


# --- Errors ---------------------------------------------------------------------------------------


def test_engine_stops_at_the_last_learned_position():
    model = model_of(position_embedding_type="learned", max_position_embeddings=12)
    model.lm_head.bias.data[EOS] = -100.0
    options = {"max_new_tokens": None, "max_new_tokens_beyond_source": 30}
    (found,) = engine_of(model, **options).decode([[7, EOS]])
    assert len(found[0].tokens) == 11


def test_engine_of_greedy_search_does_not_warn_of_options_of_beam_search(monkeypatch):
    model, warnings = model_of(), list[str]()
    monkeypatch.setattr(
        logging.Logger, "warning_once", lambda _, message, *values: warnings.append(message)
    )
    engine_of(model, num_beams=1, early_stopping="never", length_penalty=0.6)
    assert not warnings
