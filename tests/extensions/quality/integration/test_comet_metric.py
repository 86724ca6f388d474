"""COMET as a metric of evaluation and of training."""

import math
from pathlib import Path

import pytest

from tests.comet_files import REGRESSION, write_comet
from tests.tiny_runs import entries, flags
from vanilla_transformer.cli import main
from vanilla_transformer.evaluation import named_metrics
from vanilla_transformer.evaluation.named_metrics import load_metric
from vanilla_transformer.extensions.quality.comet import Comet

pytestmark = pytest.mark.usefixtures("short_translations")


@pytest.fixture(scope="module")
def comet(tmp_path_factory):
    return write_comet(tmp_path_factory.mktemp("comet") / "model", REGRESSION)


def test_comet_is_the_mean_of_its_scores(comet, monkeypatch):
    texts = ["A man.", "Two dogs"], ["Ein Mann.", "Hunde"], ["Der Mann.", "Zwei Hunde"]
    assert load_metric(f"comet:{comet}")(*texts) == pytest.approx(
        Comet.load(comet).score(*texts).mean(), abs=1e-6
    )
    monkeypatch.setattr(named_metrics, "COMET_MODEL", str(comet))
    assert load_metric("comet")(*texts) == load_metric(f"comet:{comet}")(*texts)


def test_evaluate_and_train_take_comet(comet, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("a.en", "A man.\n\nTwo dogs\n"),
        ("a.de", "Ein Mann.\n\nHunde\n"),
        ("ours.de", "Mann\n\nx\n"),
    ):
        Path(name).write_text(text)
    words = [
        "--hypotheses",
        "ours.de",
        "--source",
        "a.en",
        "--target",
        "a.de",
        "--metric",
        f"comet:{comet}",
    ]
    assert main(["evaluate", *words, "--bootstrap_samples", "10"]) == 0
    expected = (
        Comet.load(comet)
        .score(["A man.", "Two dogs"], ["Mann", "x"], ["Ein Mann.", "Hunde"])
        .mean()
    )
    assert f"comet:{comet} {expected:.4f}" in capsys.readouterr().out
    assert main(["evaluate", *words[:-1], "comet:nowhere/at all", "--bootstrap_samples", "10"]) == 2
    assert (
        "error: There is no folder nowhere/at all, and the Hub gives no such model"
        in capsys.readouterr().err
    )
    options = {"best_metric": f"comet:{comet}", "max_steps": 4, "eval_steps": 2}
    folder = tmp_path / "a run"
    assert main(["train", *flags(corpus, folder, **options)]) == 0
    printed = capsys.readouterr().out
    assert f"The model is in {folder}." in printed
    assert printed.endswith(f"vanilla-transformer translate '{folder}' 'A sentence.'\n")
    found = [entry[f"comet:{comet}"] for entry in entries(folder) if f"comet:{comet}" in entry]
    assert len(found) >= 2 and all(math.isfinite(value) for value in found)
