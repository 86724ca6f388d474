"""Target prefixes in the decoding engine: equal to a textbook search, and errors of one line."""

import random

import pytest

from tests.closeness import close_to
from tests.engine_cases import EOS, assert_engine_gives_hypotheses_of_library, random_case
from tests.sweeps import sample
from tests.textbook_search import Textbook, assert_same_hypotheses, forbid_repeats, force
from tests.tiny import tiny_causal_lm, tiny_model
from tests.tiny_engines import SOURCES, Recorder
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps
from vanilla_transformer.decoding.engine.requests import DecodeRequest


def limits_of(case):
    return [Textbook(case.model, source, case.options).limit for source in case.sources]


def random_prefixes(case, seed):
    """Return a prefix for each source, shorter than the limit of its target."""
    draw, vocab = random.Random(seed), case.model.lm_head.out_features
    prefixes = []
    for limit in limits_of(case):
        length = draw.randrange(min(limit, 5))
        prefixes.append([draw.randrange(5, vocab) for _ in range(length)])
    return prefixes


def decode(case, prefixes, count):
    """Return the hypotheses of an engine."""
    options = {"slots": case.slots, "compile": False, "target_prefix": "", **case.options}
    requests = [*map(DecodeRequest, case.sources, prefixes)]
    return Engine(case.model, **options).decode(requests, count)


@pytest.mark.parametrize("first", sample(range(0, 12, 3), 0))
def test_engine_forces_prefixes_as_a_textbook_does(first):
    for seed in range(first, first + 3):
        case = random_case(seed)
        prefixes = random_prefixes(case, seed)
        rows = decode(case, prefixes, case.num_return_sequences)
        for source, prefix, ours in zip(case.sources, prefixes, rows, strict=True):
            textbook = Textbook(case.model, source, case.options, force(prefix))
            assert_same_hypotheses(ours, textbook.search(case.options["num_beams"]))
            for hypothesis in ours:
                assert hypothesis.tokens[: len(prefix)] == prefix


@pytest.mark.parametrize("seed", sample(range(45), 1, 4))
def test_engine_repeats_no_ngram_but_of_a_prefix(seed):
    case, draw = random_case(seed), random.Random(seed)
    size, beams = draw.choice([1, 2, 3]), case.options["num_beams"]
    case.options["no_repeat_ngram_size"] = size
    prefixes = []
    for limit in limits_of(case):
        prefixes.append([7, 9, 7, 9, 7][: draw.randrange(6)][: limit - 1])
    rows = decode(case, prefixes, beams)
    for source, prefix, ours in zip(case.sources, prefixes, rows, strict=True):
        start = case.model.generation_config.decoder_start_token_id
        allowed = forbid_repeats(size, start, force(prefix))
        textbook = Textbook(case.model, source, case.options, allowed)
        assert_same_hypotheses(ours, textbook.search(beams))


@pytest.mark.parametrize("beams", [1, 3])
def test_engine_forces_prefixes_that_are_longer_than_the_room(beams):
    """Some sentences are set aside, and the buffers grow and shrink."""
    model = tiny_model(vocab_size=40, init_std=0.4)
    prefixes = [[7] * 40, [], [8, 9] * 10, [], [6]]
    options = {"num_beams": beams, "max_new_tokens": 44}
    engine = Engine(model, slots=2, compile=False, target_prefix="", **options)
    requests = [DecodeRequest([5, 6, EOS], prefix) for prefix in prefixes]
    for prefix, ours in zip(prefixes, engine.decode(requests), strict=True):
        textbook = Textbook(model, [5, 6, EOS], options, force(prefix))
        assert_same_hypotheses(ours, textbook.search(beams))


def test_engine_forces_prefixes_of_samples_and_of_continuations():
    sampling = {"do_sample": True, "target_prefix": "", "max_new_tokens": 6}
    engine = Engine(tiny_model(vocab_size=40), slots=3, compile=False, **sampling)
    (samples,) = engine.decode([DecodeRequest([5, EOS], [9, 7])], 8, 1)
    assert {tuple(sample.tokens[:2]) for sample in samples} == {(9, 7)}
    assert len({sample.tokens[2] for sample in samples}) > 1
    model, options = tiny_causal_lm(), {"compile": False, "num_beams": 2}
    prompts = Engine(model, max_new_tokens=6, target_prefix="", **options)
    ((best,),) = prompts.decode([DecodeRequest([5, 6], [9, 7])])
    ((same,),) = Engine(model, max_new_tokens=4, **options).decode([[5, 6, 9, 7]])
    assert best.tokens == [9, 7, *same.tokens]
    assert sum(best.token_log_probabilities[2:]) == close_to(same.log_probability)


def test_engine_forces_prefixes_in_captured_steps():
    options = {"slots": 2, "max_new_tokens": 8, "target_prefix": "", "compile": False}
    eager = Engine(tiny_model(vocab_size=40), **options)
    captured = Engine(tiny_model(vocab_size=40), **options)
    captured.steps = GraphedSteps(captured.steps.step, "auto", Recorder())
    requests = [*map(DecodeRequest, SOURCES, [[7, 9], [11], [], [5, 5, 5]])]
    rows = zip(captured.decode(requests, 2), eager.decode(requests, 2), strict=True)
    for ours, expected in rows:
        for one, other in zip(ours, expected, strict=True):
            assert one.tokens == other.tokens


def test_engine_without_prefixes_has_no_tensors_for_them():
    plain = Engine(tiny_model(), compile=False, target_prefix=None)
    guided = Engine(tiny_model(), compile=False, target_prefix="")
    assert not plain.buffers.state.features
    assert len(guided.buffers.state.features) == 1
    assert plain.steps.identity != guided.steps.identity


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("seed", sample(range(12), 0, 1, 4, 5, 11))
def test_engine_begins_with_forced_bos_as_the_library_does(seed):
    """The forced token, such as a language, adds nothing to the scores."""
    case = random_case(seed)
    case.options["forced_bos_token_id"] = 7
    assert_engine_gives_hypotheses_of_library(case)
