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
    kept = [each.tokens for each in before if each.state == "kept"]
    assert all(each.tokens[:-1] in kept for each in step)
    assert [each.log_probability for each in step] == sorted(
        (each.log_probability for each in step), reverse=True
    )
    assert sum(each.state in ("kept", "unfinished") for each in step) <= beams


@pytest.mark.parametrize("seed", sample(range(25), 0, 7, 10, 14, 17, 18))
def test_record_search_finds_the_hypotheses_of_the_library(seed):
    case = random_case(seed)
    for source in case.sources[:2]:
        expected = hypotheses_of_library(case, source)
        found = record_search(case.model, source, **case.options).best
        for our, their in zip(found, expected, strict=False):
            tie = case.options["num_beams"] > 1 and our.score == close_to(their.score)
            assert list(our.tokens) == their.tokens or tie
            if case.options["num_beams"] > 1:
                assert our.score == close_to(their.score)


@pytest.mark.parametrize("beams", [1, 2, 4])
def test_record_search_records_every_step_with_the_log_probabilities_of_forced_decoding(beams):
    model = partly_trained_model()
    for source in SOURCES:
        steps, best = record_search(model, source, num_beams=beams)
        for before, step in zip([None, *steps], steps, strict=False):
            if before is not None:
                assert_step_continues(step, before, beams)
        candidates = [each for step in steps for each in step]
        expected = score_tokens(
            model, [source] * len(candidates), [each.tokens for each in candidates]
        )
        assert [each.log_probability for each in candidates] == close_to(
            [sum(row) for row in expected]
        )
        assert best and all(each.state == "finished" and each in candidates for each in best)
        assert all((each.tokens[-1] == EOS) or len(each.tokens) == len(source) + 4 for each in best)


@pytest.mark.parametrize("changes", LONG, ids=lambda changes: changes["layer_types"])
@pytest.mark.parametrize("beams", [1, 3])
def test_record_search_finds_the_translation_of_long_models(changes, beams):
    model = tiny_long_model(**changes)
    source = [*range(5, 15), 2]
    expected = model.generate(torch.tensor([source]), num_beams=beams)[0, 1:].tolist()
    found = list(record_search(model, source, num_beams=beams).best[0].tokens)
    assert found == expected[: len(found)] and set(expected[len(found) :]) <= {
        model.config.pad_token_id
    }


def test_record_search_refuses_samples_and_what_no_engine_decodes():
    with pytest.raises(ValueError, match="do_sample"):
        record_search(tiny_model(), [5, 6, 2], do_sample=True)
    with pytest.raises(
        ValueError, match="To record a search, greedy and beam search must do without `min_length`"
    ):
        record_search(tiny_model(), [5, 6, 2], min_length=3)
    with pytest.raises(ValueError, match="transfo_xl_attention"):
        record_search(tiny_long_model(layer_types="transfo_xl_attention"), [5, 6, 2])
