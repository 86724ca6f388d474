"""`evaluate` scores a model or a file of translations, alone or against a baseline."""

import json
from pathlib import Path

import pytest
import sacrebleu

from vanilla_transformer.cli import main
from vanilla_transformer.evaluation.scores import score, score_paper_bleu
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing.eval_results import find_eval_results

ROOT = Path(__file__).parents[3]
SOURCE = ["A man is sleeping.", "Two dogs.", "", "A man runs across the grass."]
TARGET = ["Ein Mann schläft.", "Zwei Hunde.", ""]
OURS = [*TARGET, "Ein Mann läuft heute sehr schnell über das E-Post-Gras."]
TARGET += ["Ein Mann läuft heute sehr schnell über das E-Mail-Gras."]
THEIRS = ["Ein Mann.", "Hunde.", ""]
THEIRS += ["Ein Mann läuft über das E-Mail-Gras sehr schnell."]
TEXTS = {"a.en": SOURCE, "a.de": TARGET, "ours.de": OURS, "theirs.de": THEIRS}


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.fixture
def texts(tmp_path):
    for name, lines in TEXTS.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return tmp_path


def flags(texts, **options):
    options = {"target": texts / "a.de", "bootstrap_samples": 20} | options
    words = []
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


def test_evaluate_scores_a_file_of_translations(texts, capsys):
    files = {"hypotheses": texts / "ours.de", "json": texts / "scores.json"}
    assert main(["evaluate", *flags(texts, **files)]) == 0
    shown, scores = capsys.readouterr().out, score(OURS, TARGET)
    assert f"BLEU {scores.bleu:.2f} ±" in shown
    assert f"chrF {scores.chrf:.2f} ±" in shown and "tok:13a" in shown
    data = json.loads((texts / "scores.json").read_text())
    assert data["scores"]["bleu"]["score"] == pytest.approx(scores.bleu)
    assert data["sentences"] == len(TARGET)


def test_evaluate_adds_metrics_of_sacrebleu_without_a_source(texts, capsys):
    words = ["--metric", "ter", "--metric", "chrf++"]
    assert main(["evaluate", *flags(texts, hypotheses=texts / "ours.de"), *words]) == 0
    shown = capsys.readouterr().out
    assert f"TER {sacrebleu.corpus_ter(OURS, [TARGET]).score:.2f} ± " in shown
    chrf = sacrebleu.corpus_chrf(OURS, [TARGET], word_order=2).score
    assert f"chrF++ {chrf:.2f} ± " in shown


def test_evaluate_counts_right_texts_among_the_n_best(folder, texts, capsys):
    """References are the third best translations, so each one counts from three on."""
    search = ["--num_beams", "4", "--max_new_tokens", "3"]
    lines = ["translate", folder, "--input", f"{texts}/a.en", *search]
    assert main([*lines, "--num_return_sequences", "3"]) in (0, None)
    third_best = capsys.readouterr().out.split("\n")[2::3]
    (texts / "a.de").write_text("\n".join(third_best) + "\n")
    files = flags(texts, source=texts / "a.en", json=texts / "scores.json", name="third")
    names = ["accuracy", "accuracy@2", "accuracy@3"]
    assert main(["evaluate", folder, *files, *search, "--metric", *names]) == 0
    assert "\naccuracy@3 100.00 ± 0.00  nrefs:1|bs:20|" in capsys.readouterr().out
    data = json.loads((texts / "scores.json").read_text())
    assert [data["scores"][name]["score"] for name in names] == [0.0, 0.0, 100.0]
    assert data["scores"]["bleu"]["score"] < 100
    benchmark = {"third": {"type": "a/b", "task_id": "c", "metric": "accuracy@3"}}
    (entry,) = find_eval_results(folder, {"evaluation_datasets": benchmark})
    assert entry.value == 100.0 and entry.notes.startswith("nrefs:1|bs:20|")


def test_evaluate_compares_with_a_baseline(texts, capsys):
    files = {"hypotheses": texts / "ours.de", "compare_with": texts / "theirs.de"}
    files["json"] = texts / "scores.json"
    assert main(["evaluate", *flags(texts, **files)]) == 0
    assert f"against {score(THEIRS, TARGET).bleu:.2f}" in capsys.readouterr().out
    compared = json.loads((texts / "scores.json").read_text())["comparison"]
    chrf = score(THEIRS, TARGET).chrf
    assert compared["chrf"]["baseline"]["score"] == pytest.approx(chrf)
    assert 0 < compared["bleu"]["p_value"] <= 1


@pytest.mark.parametrize("words", [["--paper_bleu"], ["--paper_bleu", "de"]])
def test_evaluate_paper_bleu_defaults_to_german(words, texts, capsys):
    assert main(["evaluate", *flags(texts, hypotheses=texts / "ours.de"), *words]) == 0
    shown, paper = capsys.readouterr().out, score_paper_bleu(OURS, TARGET)
    assert f"paper's BLEU {paper.paper_bleu:.2f}" in shown
    assert f"tokenized BLEU {paper.tokenized_bleu:.2f}" in shown
    assert "tok:moses-de-compounds" in shown


def test_evaluate_output_file_keeps_blank_lines(folder, texts, capsys):
    """The third line is blank; dropping it would misalign the following lines."""
    path = texts / "new" / "out.de"
    output = flags(texts, source=texts / "a.en", output_file=path, num_beams=2)
    assert main(["evaluate", folder, *output]) == 0
    decoded = capsys.readouterr().out
    lines = path.read_text().removesuffix("\n").split("\n")
    assert len(lines) == len(SOURCE) and lines[2] == "" and any(lines)
    assert main(["evaluate", *flags(texts, hypotheses=path)]) == 0
    assert capsys.readouterr().out == decoded


def test_evaluate_decodes_by_the_search_that_flags_name(folder, texts):
    search = ["--do_sample", "--seed", "3", "--max_new_tokens", "5"]
    files = flags(texts, source=texts / "a.en", output_file=texts / "out.de")
    assert main(["evaluate", folder, *files, *search]) == 0
    files = ["--input", f"{texts}/a.en", "--output", f"{texts}/same.de"]
    assert main(["translate", folder, *files, *search]) in (0, None)
    assert (texts / "out.de").read_text() == (texts / "same.de").read_text()


COMMANDS = [["evaluate", "model", "--source", "a", "--target", "a"]]
COMMANDS.append(["evaluate-directions", "model", "--text", "a"])
COMMANDS.append(["compare-models", "model", "model", "--source", "a", "--target", "a"])


@pytest.mark.parametrize("words", COMMANDS)
def test_evaluate_refuses_several_processes_of_a_launcher(words, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: This command must be started once")
    assert line.endswith("got 2. Use --workers for several processes.")


SECOND = ["Ein Mann ruht.", "Zwei Hunde.", "", ""]


def test_evaluate_scores_by_several_references(texts, capsys):
    (texts / "b.de").write_text("\n".join(SECOND) + "\n")
    words = flags(texts, hypotheses=texts / "theirs.de", json=texts / "scores.json")
    words += ["--target", str(texts / "b.de"), "--report", str(texts / "report.html")]
    assert main(["evaluate", *words]) == 0
    second = [text or None for text in SECOND]  # as sacreBLEU leaves references out
    value = sacrebleu.corpus_bleu(THEIRS, [TARGET, second]).score
    shown = capsys.readouterr().out
    assert f"BLEU {value:.2f} ±" in shown and shown.count("nrefs:var|") == 2
    chrf = sacrebleu.corpus_chrf(THEIRS, [TARGET, second]).score
    assert f"chrF {chrf:.2f} ±" in shown
    assert "Reference 2" in (texts / "report.html").read_text()


def test_evaluate_compares_by_several_references(texts, capsys):
    files = {"hypotheses": texts / "ours.de", "compare_with": texts / "theirs.de"}
    words = [*flags(texts, **files), "--target", str(texts / "a.de")]
    assert main(["evaluate", *words]) == 0
    assert capsys.readouterr().out.count("nrefs:var") == 2  # blank lines


ONE = "takes one reference, got 2."
METRICS = [(["--metric", "comet"], f"The metric comet {ONE}")]
METRICS.append((["--metric", "ter", "math:fsum"], f"The metric math:fsum {ONE}"))


@pytest.mark.parametrize(("words", "message"), METRICS)
def test_evaluate_names_a_metric_of_one_reference(texts, capsys, words, message):
    words = [*words, "--target", str(texts / "a.de"), "--source", str(texts / "a.en")]
    assert main(["evaluate", *flags(texts, hypotheses=texts / "ours.de"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_evaluate_names_a_reference_of_another_length(texts, capsys):
    (texts / "b.de").write_text("Ein Mann.\n")
    words = flags(texts, hypotheses=texts / "ours.de")
    words += ["--target", str(texts / "b.de")]
    assert main(["evaluate", *words]) == 2
    assert "b.de must have one translation for each line of" in capsys.readouterr().err


def test_evaluate_scores_a_model_by_several_references(folder, texts, capsys):
    (texts / "b.de").write_text("\n".join(SECOND) + "\n")
    words = flags(texts, source=texts / "a.en", max_new_tokens=4)
    words += ["--target", str(texts / "b.de"), "--name", "both"]
    assert main(["evaluate", folder, *words]) == 0
    assert "nrefs:var" in capsys.readouterr().out
