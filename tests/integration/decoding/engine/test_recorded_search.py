"""`record_search` finds the translations of the library's own search, and records each hypothesis
that it compared.
"""

import pytest
import torch

from tests.closeness import close_to
from tests.engine_cases import EOS, hypotheses_of_library, random_case
from tests.generation_models import SOURCES, partly_trained_model
from tests.sweeps import sample
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer.decoding.engine.recorded_search import record_search
from vanilla_transformer.decoding.forced_decoding import score_tokens

LONG = [{"layer_types": "linear_attention"}, {"layer_types": "lsh_attention"}]


def assert_step_continues(step, before, beams):
    """Check that a step continues kept hypotheses only, from the best one to the worst one, and
    keeps few.
    """
    kept, running = [], 0
    for hypothesis in before:
        if hypothesis.state == "kept":
            kept.append(hypothesis.tokens)
    for hypothesis in step:
        assert hypothesis.tokens[:-1] in kept
        running += hypothesis.state in ("kept", "unfinished")
    assert running <= beams
    log_probabilities = [hypothesis.log_probability for hypothesis in step]
    assert log_probabilities == sorted(log_probabilities, reverse=True)


@pytest.mark.parametrize("seed", sample(range(25), 0, 7, 10, 14, 17, 18))
def test_record_search_finds_hypotheses_of_the_library(seed):
    case = random_case(seed)
    for source in case.sources[:2]:
        expected = hypotheses_of_library(case, source)
        best = record_search(case.model, source, **case.options).best
        for our, their in zip(best, expected, strict=False):
            tie = case.options["num_beams"] > 1 and our.score == close_to(their.score)
            assert list(our.tokens) == their.tokens or tie
            if case.options["num_beams"] > 1:
                assert our.score == close_to(their.score)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_record_search_records_every_step(beams):
    """Compare log-probabilities with forced decoding."""
    model = partly_trained_model()
    for source in SOURCES:
        steps, best = record_search(model, source, num_beams=beams)
        for before, step in zip([None, *steps], steps, strict=False):
            if before is not None:
                assert_step_continues(step, before, beams)
        candidates = sum(map(list, steps), [])
        tokens = [candidate.tokens for candidate in candidates]
        expected = score_tokens(model, [source] * len(candidates), tokens)
        for candidate, row in zip(candidates, expected, strict=True):
            assert candidate.log_probability == close_to(sum(row))
        assert best
        for hypothesis in best:
            assert hypothesis.state == "finished" and hypothesis in candidates
            tokens = hypothesis.tokens
            assert tokens[-1] == EOS or len(tokens) == len(source) + 4


@pytest.mark.parametrize("changes", LONG, ids=lambda changes: changes["layer_types"])
@pytest.mark.parametrize("beams", [1, 3])
def test_record_search_finds_the_translation_of_long_models(changes, beams):
    model = tiny_long_model(**changes)
    source = [*range(5, 15), 2]
    expected = model.generate(torch.tensor([source]), num_beams=beams)[0, 1:].tolist()
    best = list(record_search(model, source, num_beams=beams).best[0].tokens)
    assert best == expected[: len(best)]
    assert set(expected[len(best) :]) <= {model.config.pad_token_id}


def test_record_search_refuses_what_no_engine_decodes():
    with pytest.raises(ValueError, match="do_sample"):
        record_search(tiny_model(), [5, 6, 2], do_sample=True)
    message = "To record a search, greedy and beam search must do without `min_length`"
    with pytest.raises(ValueError, match=message):
        record_search(tiny_model(), [5, 6, 2], min_length=3)
    with pytest.raises(ValueError, match="transfo_xl_attention"):
        record_search(tiny_long_model(layer_types="transfo_xl_attention"), [5, 6, 2])
