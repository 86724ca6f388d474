"""Score translations: BLEU, chrF, the paper's BLEU, confidence intervals and significance."""

from pathlib import Path


def metric_path() -> str:
    """Return the path of this package's metric for the `evaluate` library:
    `evaluate.load(metric_path())`, offline.
    """
    return str(Path(__file__).parent / "translation_scores" / "translation_scores.py")
