"""The p-value of a gain over the mean of several systems, and the counts that BLEU is computed from."""

import pytest
import sacrebleu

from tests.unit.evaluation.test_significance import BAD, GOOD, REFERENCES
from vanilla_transformer.evaluation.bleu_counts import corpus_bleu, count_ngrams
from vanilla_transformer.evaluation.significance import compare_systems, compare_with_mean


@pytest.mark.parametrize("hypotheses", [GOOD, BAD, ["", "der", *REFERENCES[2:]]])
def test_corpus_bleu_of_counts_is_sacrebleus(hypotheses):
    counts = count_ngrams(hypotheses, REFERENCES)
    assert counts.shape == (len(REFERENCES), 10)
    expected = sacrebleu.BLEU().corpus_score(hypotheses, [REFERENCES]).score
    assert corpus_bleu(counts.sum(axis=0)) == pytest.approx(expected, abs=1e-9)


def test_compare_with_mean_of_one_system_is_sacrebleus_test():
    other = [text.replace("Buch", "Heft") if number % 5 == 1 else text for number, text in enumerate(REFERENCES)]
    for hypotheses, baseline in ((GOOD, BAD), (GOOD, other)):
        found = compare_with_mean(hypotheses, [baseline], REFERENCES, samples=200)
        expected = compare_systems(hypotheses, baseline, REFERENCES, samples=200)["bleu"]
        assert found.system == pytest.approx(expected.system.score)
        assert found.mean == pytest.approx(expected.baseline.score)
        assert found.p_value == pytest.approx(expected.p_value)


def test_compare_with_mean_takes_the_mean_of_scores():
    alone = [compare_with_mean(GOOD, [each], REFERENCES, samples=20).mean for each in (GOOD, BAD)]
    found = compare_with_mean(GOOD, [GOOD, BAD], REFERENCES, samples=200)
    assert found.mean == pytest.approx(sum(alone) / 2)
    assert found.p_value < 0.05
    assert compare_with_mean(GOOD, [GOOD, GOOD], REFERENCES, samples=200).p_value == 1.0


def test_compare_with_mean_refuses_no_systems():
    with pytest.raises(ValueError, match="There must be other systems and resamples, got 0 and 1000"):
        compare_with_mean(GOOD, [], REFERENCES)
