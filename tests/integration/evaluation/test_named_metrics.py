"""Metrics by name choose the best model of a run, and `evaluate` reports them."""

import json
import math
from pathlib import Path

import pytest
import sacrebleu
import torch

from tests.tiny_runs import entries, flags
from vanilla_transformer.cli import main
from vanilla_transformer.evaluation.named_metrics import Accuracy, load_metric
from vanilla_transformer.evaluation.test_sets import evaluate_test_set, read_test_set
from vanilla_transformer.loading.model_folders import save_model_folder

pytestmark = pytest.mark.usefixtures("short_translations")

SAME_WORDS = str(Path(__file__).parents[2] / "same_words.py")
SHORTNESS = "tests.same_words:shortness"


def raising(*_):
    raise RuntimeError("no GPU\nno memory")


def as_text(*_):
    return "0.5"


def nothing(*_):
    return math.nan


def one_tensor(*_):
    return torch.tensor(0.5)


def sources_first(sources, hypotheses, references):
    return float(sources == ["a"] and hypotheses == ["b"] and references == ["c"])


def test_metric_is_a_function_or_of_the_evaluate_library():
    assert load_metric(f"{__name__}:sources_first")(("a",), ["b"], ["c"]) == 1.0
    assert load_metric(SAME_WORDS)(["", ""], ["a b", "c"], ["b a", "d"]) == 0.5


def test_metrics_of_sacrebleu_have_names():
    texts = ["Ein Mann läuft weit."], ["Ein Mann geht weit."]
    hypotheses, references = texts
    ter = load_metric("ter")(["A man"], *texts)
    assert ter == sacrebleu.corpus_ter(hypotheses, [references]).score == 25.0
    chrf = sacrebleu.corpus_chrf(hypotheses, [references], word_order=2).score
    assert load_metric("chrf++")(["A man"], *texts) == chrf


def test_accuracy_counts_whole_texts_and_no_blank_references():
    accuracy = load_metric("accuracy")
    assert accuracy([], ["a b", "c", "x", "y"], ["a b", "c ", "", "z"]) == pytest.approx(200 / 3)
    assert accuracy([], ["x"], [""]) == 0.0
    second = Accuracy().corpus_score(["a", "b", "c"], [["a", "x", "x"], [None, "b", "y"]])
    assert second.score == pytest.approx(200 / 3)
    assert Accuracy(2).corpus_score(["x\na", "x\ny\nb"], [["a", "b"]]).score == 50.0


def test_training_refuses_a_metric_of_n_best():
    with pytest.raises(ValueError, match="^accuracy@5 must be measured by `evaluate --metric"):
        load_metric("accuracy@5")


KNOWN = "A metric must be bleu, chrf, chrf\\+\\+, ter, accuracy, loss,"
NO_MODULE = "'no_such_module:name' cannot be loaded: No module named 'no_such_module'"
NO_NAME = "'math:no_such_name' cannot be loaded: module 'math' has no attribute"
UNKNOWN = [
    ("no_such_metric", f"{KNOWN} .*'no_such_metric' cannot be loaded"),
    ("no_such_module:name", NO_MODULE),
    ("math:no_such_name", NO_NAME),
    ("math:pi", "'math:pi' is not a function but float"),
    (":", "':' cannot be loaded: Empty module name"),
]


@pytest.mark.parametrize(("name", "message"), UNKNOWN)
def test_unknown_metric_is_refused_at_first(corpus, tmp_path, capsys, name, message):
    """Refuse it before training and decoding."""
    with pytest.raises(ValueError, match=message):
        load_metric(name)
    assert main(["train", *flags(corpus, tmp_path / "run", best_metric=name)]) == 2
    files = ["--source", str(corpus / "train.a"), "--target", str(corpus / "train.b")]
    assert main(["evaluate", "nowhere", *files, "--metric", name]) == 2
    shown = capsys.readouterr().err
    assert shown.count("error: A metric must be bleu") == shown.count("\n") == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raising", "failed: RuntimeError: no GPU$"),
        ("as_text", "must return one finite number, got '0.5'"),
        ("nothing", "must return one finite number, got nan"),
        ("one_tensor", r"must return one finite number, got tensor\(0.5000\)"),
    ],
)
def test_metric_that_fails_is_named(function, message):
    with pytest.raises(ValueError, match=f"The metric {__name__}:{function} {message}"):
        load_metric(f"{__name__}:{function}")(["a"], ["b"], ["c"])


def test_train_keeps_the_best_model_by_a_function(corpus, tmp_path):
    run = tmp_path / "run"
    options = {"best_metric": SHORTNESS, "max_steps": 6, "eval_steps": 2}
    assert main(["train", *flags(corpus, run, **options)]) == 0
    validations = [entry for entry in entries(run) if SHORTNESS in entry]
    greedy = [entry for entry in validations if "model" not in entry]
    assert len(greedy) == 3 and all("bleu" in entry for entry in greedy)
    best = max(greedy, key=lambda entry: entry[SHORTNESS])
    assert (run / f"best-{best['step']}").exists()


@pytest.mark.parametrize("source", [None, "a.en"])
def test_evaluate_passes_metrics_no_blank_references(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {"a.en": "a\n\nb\n", "a.de": "x\n\ny\n", "ours.de": "x\nz\ny z\n"}
    for name, text in texts.items():
        Path(name).write_text(text)
    seen = []
    metrics = {"any": lambda *sides: seen.append(sides) or 1.0}
    test_set = read_test_set(source, "a.de", "ours.de")
    report = evaluate_test_set(test_set, metrics=metrics, samples=10).report
    assert seen == [([] if source is None else ["a", "b"], ["x", "y z"], ["x", "y"])]
    assert report.metrics == {"any": 1.0}


def test_evaluate_reports_further_metrics(
    tiny_model, tiny_tokenizer, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    for name in ("a.en", "a.de"):
        Path(name).write_text("A man is sleeping.\n\nTwo dogs.\n")
    words = ["--source", "a.en", "--target", "a.de", "--json", "scores.json"]
    words += ["--bootstrap_samples", "10", "--metric", "loss"]
    further = ["bleu", SAME_WORDS, SHORTNESS]
    assert main(["evaluate", "model", *words, *further]) == 0
    report = json.loads(Path("scores.json").read_text())
    assert report["metrics"].keys() == {"loss", SAME_WORDS, SHORTNESS}
    assert report["scores"].keys() == {"bleu", "chrf"}
    total = count = 0
    for text in ("A man is sleeping.", "Two dogs."):
        inputs = tiny_tokenizer(text, text_target=text, return_tensors="pt")
        number = inputs["labels"].numel()
        total += float(tiny_model(**inputs).loss) * number
        count += number
    assert report["metrics"]["loss"] == pytest.approx(total / count, rel=1e-4)
    assert f"loss {report['metrics']['loss']:.4f}" in capsys.readouterr().out
    words = ["--hypotheses", "a.de", "--overwrite", *words]
    assert main(["evaluate", *words]) == 2
    assert "--name and the metric loss are of a model" in capsys.readouterr().err
