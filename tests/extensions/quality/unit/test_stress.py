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

PAIRS = [
    SentencePair(f"The small dog number {number} sleeps.", f"The dog {number}.")
    for number in range(8, 48)
]
PAIRS[3] = SentencePair("Yes, please!", "Ja, bitte!")


def test_stress_texts_have_the_pairs_that_change():
    texts = {text.name: text for text in stress_texts(PAIRS)}
    assert [*texts] == ["plain", *PERTURBATIONS, "short", "joined"]
    assert texts["plain"].pairs == PAIRS
    for name in PERTURBATIONS:
        assert len(texts[name].pairs) == len(texts[name].rows)
        changed = zip(texts[name].pairs, texts[name].rows, strict=True)
        assert all(pair.source != PAIRS[row].source for pair, row in changed)
    assert 3 not in texts["no_final_period"].rows and len(texts["no_final_period"].rows) == 39
    assert texts["other_numbers"].rows == [row for row in range(2, 40) if row != 3]
    assert texts["short"].rows == [1, 3] or texts["short"].rows == [0, 3]
    assert texts["joined"].rows is None and len(texts["joined"].pairs) == 8
    assert texts["joined"].pairs[7] == tuple(
        " ".join(side) for side in zip(*PAIRS[35:], strict=True)
    )
    assert [*stress_texts(PAIRS)] == [*stress_texts(PAIRS)]
    assert [*stress_texts(PAIRS)][4] != [*stress_texts(PAIRS, seed=1)][4]


class Copier:
    """Copies its sources, with a confidence that falls with the length."""

    def __init__(self, **config):
        self.model = SimpleNamespace(config=SimpleNamespace(**config))

    def __call__(self, sources, return_confidence=False):
        entries = [
            {"confidence": 1 / len(source)} if return_confidence else {} for source in sources
        ]
        return [
            {"translation_text": source} | entry
            for source, entry in zip(sources, entries, strict=True)
        ]


def test_measure_stress_scores_each_text():
    seen = []
    table = measure_stress(Copier(warning_limits={"scripts": ["GREEK"]}), PAIRS, seen.append)
    assert seen == table.rows and table.groups == []
    rows, texts = (
        {row.name: row for row in table.rows},
        {text.name: text for text in stress_texts(PAIRS)},
    )
    for name, text in texts.items():
        expected = score([pair.source for pair in text.pairs], [pair.target for pair in text.pairs])
        assert (rows[name].bleu, rows[name].chrf) == (expected.bleu, expected.chrf)
        assert rows[name].pairs == len(text.pairs) and rows[name].confidence is None
        assert rows[name].warnings["script"] >= 39 / 40  # "Yes, Please!" may be names
        assert rows[name].warnings["numbers"] == 0.0
    assert rows["plain"].warnings["copy"] == 39 / 40
    assert rows["lower_case"].chrf_change < 0 and rows["short"].bleu_change == 0.0
    assert rows["plain"].bleu_change is None and rows["joined"].chrf_change is None


def test_measure_stress_shows_the_confidence_of_calibrated_models():
    table = measure_stress(Copier(confidence={}), PAIRS)
    plain = table.rows[0]
    assert plain.confidence == pytest.approx(sum(1 / len(pair.source) for pair in PAIRS) / 40)
    assert -1 <= plain.correlation <= 1 and len(table.groups) == 5
    assert table.groups == sorted(table.groups, key=lambda group: group[0])
    assert sum(group[0] for group in table.groups) / 5 == pytest.approx(plain.confidence)
    assert sum(group[1] for group in table.groups) / 5 == pytest.approx(plain.chrf / 100, abs=0.05)


def test_measure_stress_leaves_out_changes_without_pairs():
    table = measure_stress(Copier(confidence={}), [SentencePair("!", "?")])
    assert [row.name for row in table.rows] == ["plain", "emoji", "html_tags", "short", "joined"]
    assert table.rows[0].correlation is None


def test_format_row_fits_the_header():
    table = measure_stress(Copier(confidence={}), PAIRS)
    lines = [format_header(), *map(format_row, table.rows)]
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split()[:5] == ["text", "pairs", "BLEU", "change", "chrF"]
    assert lines[1].split()[0:2] == ["plain", "40"] and lines[1].split()[3] == "–"
