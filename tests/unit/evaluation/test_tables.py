"""Tables of scores in each format, and the scores of runs."""

import json

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.errors import MissingFileError, UserError
from vanilla_transformer.evaluation import plots
from vanilla_transformer.evaluation.tables import compare_runs, render_table

ROWS = [{"run": "a_b & c", "step": 1000, "bleu": 12.345}]
ROWS.append({"run": "d, e", "step": 20, "bleu": None})


@pytest.fixture
def runs(tmp_path):
    during = {"step": 10, "minutes": 1.0, "validation_loss": 3.0}
    during |= {"bleu": 1.0, "chrf": 2.0, "bleu_signature": "x"}
    final = during | {"step": 20, "validation_loss": 2.5, "model": "last checkpoint"}
    entries_of_runs = {"done": [{"step": 5, "loss": 4.0}, during, final]}
    entries_of_runs |= {"begun": [during], "none": []}
    for name, entries in entries_of_runs.items():
        (tmp_path / name).mkdir()
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
        (tmp_path / name / "metrics.jsonl").write_text(text)
    return tmp_path


def cells_of(line):
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_tables_have_one_row_of_each_format():
    lines = render_table(ROWS, "csv").splitlines()
    assert lines == ["run,step,bleu", "a_b & c,1000,12.345", '"d, e",20,']
    latex = render_table(ROWS, "latex")
    assert r"a\_b \& c" in latex and "1,000" in latex
    assert "12.3" in latex and r"\toprule" in latex
    header, line, first, _ = render_table(ROWS).splitlines()
    assert cells_of(header) == ["run", "step", "bleu"] and set(line) == {*"|-"}
    assert cells_of(first) == ["a_b & c", "1,000", "12.35"]


@pytest.mark.parametrize("format", ["markdown", "latex"])
def test_tables_keep_text_that_looks_like_a_number(format):
    separator = {"markdown": "|", "latex": "&"}[format]
    for name in ("007", "1e5", "2024", "0.0004", "nan"):
        table = render_table([{"run": name, "bleu": 1.0}], format)
        assert name in table.replace(separator, " ").split()


def test_compare_runs_takes_the_final_model_or_the_last_validation(runs):
    done, begun = compare_runs([runs / "done", runs / "begun"])
    assert (done["step"], done["validation_loss"], begun["step"]) == (20, 2.5, 10)
    with pytest.raises(UserError, match="none must have a validation, got none"):
        compare_runs([runs / "none"])
    with pytest.raises(MissingFileError, match="missing must be the folder of a training run"):
        compare_runs([runs / "missing"])


def test_compare_runs_leaves_out_scores_that_a_run_has_not(runs):
    entry = '{"step": 10, "minutes": 1.0, "validation_loss": 3.0}\n'
    (runs / "begun" / "metrics.jsonl").write_text(entry)
    (row,) = compare_runs([runs / "begun"])
    assert (row["validation_loss"], row["bleu"], row["chrf"]) == (3.0, None, None)


def test_compare_runs_draws_over_the_chosen_axis(runs, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "plot_runs", lambda *arguments: drawn.append(arguments))
    words = [str(runs / "done"), "--plot", str(runs / "runs.png"), "--over", "step"]
    assert main(["compare-runs", *words]) == 0
    assert drawn == [([str(runs / "done")], str(runs / "runs.png"), "step")]


def test_compare_runs_prints_a_table_and_draws_a_picture(runs, capsys):
    words = [str(runs / "done"), str(runs / "begun"), "--format", "csv"]
    words += ["--plot", str(runs / "runs.png")]
    assert main(["compare-runs", *words]) == 0
    assert capsys.readouterr().out.startswith("run,step,minutes,validation_loss,bleu,chrf\n")
    assert (runs / "runs.png").exists()
    assert main(["compare-runs", str(runs / "missing")]) == 2
