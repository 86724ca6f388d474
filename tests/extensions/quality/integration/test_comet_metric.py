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
    mean = Comet.load(comet).score(*texts).mean()
    assert load_metric(f"comet:{comet}")(*texts) == pytest.approx(mean, abs=1e-6)
    monkeypatch.setattr(named_metrics, "COMET_MODEL", str(comet))
    assert load_metric("comet")(*texts) == load_metric(f"comet:{comet}")(*texts)


def test_evaluate_and_train_take_comet(comet, corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("A man.\n\nTwo dogs\n")
    Path("a.de").write_text("Ein Mann.\n\nHunde\n")
    Path("ours.de").write_text("Mann\n\nx\n")
    words = ["--hypotheses", "ours.de", "--source", "a.en", "--target", "a.de"]
    words += ["--bootstrap_samples", "10", "--metric"]
    name = f"comet:{comet}"
    assert main(["evaluate", *words, name]) == 0
    texts = ["A man.", "Two dogs"], ["Mann", "x"], ["Ein Mann.", "Hunde"]
    expected = Comet.load(comet).score(*texts).mean()
    assert f"{name} {expected:.4f}" in capsys.readouterr().out
    assert main(["evaluate", *words, "comet:nowhere/at all"]) == 2
    message = "error: There is no folder nowhere/at all, and the Hub gives no such model"
    assert message in capsys.readouterr().err
    options = {"best_metric": name, "max_steps": 4, "eval_steps": 2}
    folder = tmp_path / "a run"
    assert main(["train", *flags(corpus, folder, **options)]) == 0
    printed = capsys.readouterr().out
    assert f"The model is in {folder}." in printed
    assert printed.endswith(f"vanilla-transformer translate '{folder}' 'A sentence.'\n")
    scores = [entry[name] for entry in entries(folder) if name in entry]
    assert len(scores) >= 2
    assert all(map(math.isfinite, scores))
