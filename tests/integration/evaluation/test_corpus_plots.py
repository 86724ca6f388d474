"""Pictures of the lengths of a corpus; `test_clean_corpus.py` has one that is drawn."""

import json

import pytest

from vanilla_transformer.evaluation.plots import plot_lengths


def test_plot_lengths_refuses_a_report_without_lengths(tmp_path):
    (tmp_path / "corpus.json").write_text(json.dumps({"cleaning": {"read": 1}}))
    with pytest.raises(ValueError, match="corpus.json must count the lengths"):
        plot_lengths(tmp_path / "corpus.json", tmp_path / "lengths.png")
    with pytest.raises(FileNotFoundError, match="none.json"):
        plot_lengths(tmp_path / "none.json", tmp_path / "lengths.png")
