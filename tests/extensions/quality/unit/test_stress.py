"""Stress tables: the changed texts, the scores of each one, and the table for a terminal."""

from types import SimpleNamespace

import pytest

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.extensions.augmentation.perturbations import PERTURBATIONS
from vanilla_transformer.extensions.quality.stress import (
    format_header,
    format_row,
    measure_stress,
    stress_texts,
)

PAIRS = []
for number in range(8, 48):
    source, target = f"The small dog number {number} sleeps.", f"The dog {number}."
    PAIRS.append(SentencePair(source, target))
PAIRS[3] = SentencePair("Yes, please!", "Ja, bitte!")


def test_stress_texts_have_the_pairs_that_change():
    texts = {text.name: text for text in stress_texts(PAIRS)}
    assert [*texts] == ["plain", *PERTURBATIONS, "short", "joined"]
    assert texts["plain"].pairs == PAIRS
    for name in PERTURBATIONS:
        assert len(texts[name].pairs) == len(texts[name].rows)
        for pair, row in zip(texts[name].pairs, texts[name].rows, strict=True):
            assert pair.source != PAIRS[row].source
    rows = texts["no_final_period"].rows
    assert 3 not in rows
    assert len(rows) == 39
    assert texts["other_numbers"].rows == [2, *range(4, 40)]
    assert texts["short"].rows in ([1, 3], [0, 3])
    joined = texts["joined"]
    assert joined.rows is None
    assert len(joined.pairs) == 8
    assert joined.pairs[7] == (*map(" ".join, zip(*PAIRS[35:], strict=True)),)
    first = [*stress_texts(PAIRS)]
    assert [*stress_texts(PAIRS)] == first
    assert [*stress_texts(PAIRS, seed=1)][4] != first[4]


class Copier:
    """Copies its sources, with a confidence that falls with the length."""

    def __init__(self, **config):
        self.model = SimpleNamespace(config=SimpleNamespace(**config))

    def __call__(self, sources, return_confidence=False):
        answers = []
        for source in sources:
            answer = {"translation_text": source}
            if return_confidence:
                answer["confidence"] = 1 / len(source)
            answers.append(answer)
        return answers


def test_measure_stress_scores_each_text():
    seen = []
    copier = Copier(warning_limits={"scripts": ["GREEK"]})
    table = measure_stress(copier, PAIRS, seen.append)
    assert seen == table.rows
    assert table.groups == []
    rows = {row.name: row for row in table.rows}
    for text in stress_texts(PAIRS):
        sources, targets = map(list, zip(*text.pairs, strict=True))
        expected, row = score(sources, targets), rows[text.name]
        assert (row.bleu, row.chrf) == (expected.bleu, expected.chrf)
        assert row.pairs == len(text.pairs)
        assert row.confidence is None
        assert row.warnings["script"] >= 39 / 40  # "Yes, Please!" may be names
        assert row.warnings["numbers"] == 0.0
    assert rows["plain"].warnings["copy"] == 39 / 40
    assert rows["plain"].bleu_change is None
    assert rows["lower_case"].chrf_change < 0
    assert rows["short"].bleu_change == 0.0
    assert rows["joined"].chrf_change is None


def test_measure_stress_shows_the_confidence_of_calibrated_models():
    table = measure_stress(Copier(confidence={}), PAIRS)
    plain = table.rows[0]
    mean = sum(1 / len(pair.source) for pair in PAIRS) / 40
    assert plain.confidence == pytest.approx(mean)
    assert -1 <= plain.correlation <= 1
    confidences, scores, *_ = zip(*table.groups, strict=True)
    assert len(confidences) == 5
    assert [*confidences] == sorted(confidences)
    assert sum(confidences) / 5 == pytest.approx(plain.confidence)
    assert sum(scores) / 5 == pytest.approx(plain.chrf / 100, abs=0.05)


def test_measure_stress_leaves_out_changes_without_pairs():
    table = measure_stress(Copier(confidence={}), [SentencePair("!", "?")])
    names = ["plain", "emoji", "html_tags", "short", "joined"]
    assert [row.name for row in table.rows] == names
    assert table.rows[0].correlation is None


def test_format_row_fits_the_header():
    table = measure_stress(Copier(confidence={}), PAIRS)
    lines = [format_header(), *map(format_row, table.rows)]
    assert len({*map(len, lines)}) == 1
    assert lines[0].split()[:5] == ["text", "pairs", "BLEU", "change", "chrF"]
    words = lines[1].split()
    assert words[:2] == ["plain", "40"]
    assert words[3] == "–"
