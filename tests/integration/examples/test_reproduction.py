"""The scripts of experiments run each run once, continue, and write table and picture."""

import itertools
import json
import math
import shutil
import sys
from pathlib import Path

import datasets
import figures
import positions
import pytest
import recurrent_baseline
import table2
import table3
import yaml
from experiment import ROWS as PAPER_ROWS
from experiment import markdown_table
from recurrent_model import RecurrentConfig, RecurrentForConditionalGeneration

from tests.tiny import tiny_long_model, tiny_model
from tests.tiny_runs import ROOT, no_scores
from vanilla_transformer.cli import run
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.signals import TrainingInterrupted
from vanilla_transformer.training.train_state import TrainState

pytestmark = pytest.mark.usefixtures("short_translations")

ROWS = {
    "recipe": {"vocab_size": 280, "max_tokens": 64, "average_checkpoints": 1},
    "base": {"layers": 1, "d_model": 16, "ffn_dim": 16, "attention_heads": 2, "dropout": 0.1},
    "rows": {
        "base": {"paper": [4.5, 25.5]},
        "one head": {"attention_heads": 1},
        "narrow keys": {"attention_key_dim": 4},
    },
}


PAPER = PAPER_ROWS["rows"][0]


PNG = b"\x89PNG"
TABLE3 = ROOT / "docs" / "results" / "table3" / "results.json"


def start(module, *words):
    """Run a script, and return its exit status."""
    return run(module.EXPERIMENT.main, words)


def results_of(module, folder="results"):
    return json.loads(Path(folder, module.EXPERIMENT.name, "results.json").read_text())


@pytest.fixture
def words(corpus, tmp_path, monkeypatch):
    """Return flags for a small table 3, and change to a folder for its results."""
    for name, tiny in (("train", "train"), ("val", "validation")):
        for end, letters in (("en", "a"), ("de", "b")):
            text = (corpus / f"{tiny}.{letters}").read_text()
            (corpus / f"{name}.{end}").write_text(text)
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(ROWS, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    files = ["--data", str(corpus), "--rows", "rows.yaml", "--output", "results"]
    return [*files, "--budget", "2"]


def test_table3_trains_each_row_once(words, monkeypatch, capsys, real_figures):
    trained, train = [], table3.train

    def train_two(recipe, evaluate):
        if len(trained) == 2:
            raise TrainingInterrupted("Interrupted after step 1.")
        trained.append((recipe.model.encoder_attention_heads, recipe.optimization.seed))
        return train(recipe, evaluate)

    monkeypatch.setattr(table3, "train", train_two)
    assert start(table3, *words) == 75
    results = results_of(table3)
    assert [*results["runs"]] == ["base-seed-0", "one-head-seed-0"]
    assert results["rows"] == []

    def train_all(recipe, evaluate):
        trained.append(recipe)
        return train(recipe, evaluate)

    monkeypatch.setattr(table3, "train", train_all)
    assert start(table3, *words) == 0 and len(trained) == 3
    assert start(table3, *words, "--seeds", "2") == 0 and len(trained) == 6
    assert trained[:2] == [(2, 0), (1, 0)]
    assert [recipe.optimization.seed for recipe in trained[2:]] == [0, 1, 1, 1]
    results = results_of(table3)
    runs, (base, one_head, _) = results["runs"], results["rows"]
    assert [row["row"] for row in results["rows"]] == [*ROWS["rows"]] and len(runs) == 6
    first, second = runs["base-seed-0"], runs["base-seed-1"]
    perplexities = [math.exp(run["validation_loss"]) for run in (first, second)]
    assert base["perplexity"] == pytest.approx(sum(perplexities) / 2)
    assert base["seeds"] == first["step"] == 2
    assert base["±"] == pytest.approx((max(perplexities) - min(perplexities)) / 2)
    assert first["mixed_precision"] == "no" and "torch uses" in first["hardware"]
    assert (base["paper: perplexity"], base["paper: BLEU"]) == (4.5, 25.5)
    assert one_head["paper: BLEU"] is None
    assert Path("results/table3/figure.png").read_bytes().startswith(PNG)
    last = Path("results/table3/table.md").read_text().splitlines()[-1]
    assert last.startswith("| narrow keys | 7,808 | ")
    message = "Results, table and picture are in results/table3."
    assert message in capsys.readouterr().out


def test_readme_has_the_table_of_the_committed_runs():
    results = json.loads(TABLE3.read_text())
    assert results["identity"]["rows"] == table3.read_rows(PAPER)
    readme = (ROOT / "examples" / "reproduction" / "README.md").read_text()
    assert markdown_table(table3.rows(results["runs"])) in readme


def test_table3_draws_half_of_the_range_of_bleu_as_bars():
    table = table3.rows(json.loads(TABLE3.read_text())["runs"])
    here, paper = table3.draw(table).axes[0].containers
    segments = here.lines[2][0].get_segments()
    bars = [(right - left) / 2 for (left, _), (right, _) in segments]
    assert bars == pytest.approx([row["± "] for row in table])
    assert not paper.has_xerr


def test_a_first_run_that_was_interrupted_keeps_its_budget(words, monkeypatch, capsys):
    def interrupt(recipe, evaluate):
        Path(recipe.output.output_dir).mkdir(parents=True)  # with a checkpoint
        raise TrainingInterrupted("Interrupted after step 1.")

    monkeypatch.setattr(table3, "train", interrupt)
    assert start(table3, *words) == 75
    assert start(table3, *words, "--budget", "3") == 2
    assert "results/table3 has results of another budget" in capsys.readouterr().err


DRY_RUNS = [(table3, 3, "6 steps, about"), (recurrent_baseline, 4, "4 steps, then")]


@pytest.mark.parametrize(("module", "runs", "steps"), DRY_RUNS)
def test_dry_run_writes_nothing(words, capsys, module, runs, steps):
    assert start(module, *words, "--dry_run") == 0
    shown = capsys.readouterr().out
    assert f"{runs} runs, 0 of them finished" in shown
    assert steps in shown and "about 0.0 hours here" in shown
    assert f", on {Path(words[1]).name}: {runs} runs" in shown
    assert not Path("results").exists()


def test_table3_plans_each_row_by_its_name(words, capsys):
    """And a log, which is no terminal, gets no bars."""
    datasets.enable_progress_bars()
    assert start(table3, *words, "--dry_run") == 0
    shown = capsys.readouterr()
    for name in ROWS["rows"]:
        assert f"{name}:\nabout 0.0 hours for each seed\n" in shown.out
    assert "Tokenizing" not in shown.err


def test_recurrent_baseline_trains_once(words, monkeypatch, capsys):
    """Train for equal steps and for equal minutes, and continue."""
    trained, train = [], recurrent_baseline.train
    text = Path(words[1], "val.en")
    text.write_text(text.read_text().replace(" ", "\u2028", 1))  # which ends no line

    def train_one(recipe, evaluate, model_class):
        if len(trained) == 1:
            raise TrainingInterrupted("Interrupted after step 1.")
        return train_all(recipe, evaluate, model_class)

    def train_all(recipe, evaluate, model_class):
        limits = recipe.optimization
        run = (limits.max_steps, limits.max_minutes, model_class.__name__)
        trained.append(run)
        return train(recipe, evaluate=evaluate, model_class=model_class)

    # Another test translates.
    monkeypatch.setattr(recurrent_baseline, "validation_scores", no_scores)
    monkeypatch.setattr(TrainState, "minutes", lambda state: state.step / 1000)
    monkeypatch.setattr(recurrent_baseline, "train", train_one)
    assert start(recurrent_baseline, *words) == 75 and len(trained) == 1
    monkeypatch.setattr(recurrent_baseline, "train", train_all)
    assert start(recurrent_baseline, *words) == 0
    folder = Path("results/recurrent_baseline")
    results = results_of(recurrent_baseline)
    ours = "VanillaTransformerForConditionalGeneration"
    lstm = "RecurrentForConditionalGeneration"
    assert trained == [(2, None, ours), (2, None, lstm), (None, 0.002, lstm)]
    transformer, steps, same_minutes = results["rows"]
    assert transformer["steps"] == steps["steps"] == 2
    assert transformer["minutes"] == same_minutes["minutes"] == 0.002
    speeds = [row["target tokens/s"] for row in results["rows"]]
    assert min(speeds) > 0 and speeds[0] != speeds[1] == speeds[2]
    assert {len(row["gradients end"]) for row in results["rows"]} == {3}
    assert not (folder / "runs" / "speed").exists()
    assert (folder / "figure.png").read_bytes().startswith(PNG)
    assert start(recurrent_baseline, *words) == 0 and len(trained) == 3
    shutil.rmtree(folder / "runs")
    del results["runs"]["lstm-equal-minutes-seed-0"]
    (folder / "results.json").write_text(json.dumps(results))
    assert start(recurrent_baseline, *words) == 2
    run = "results/recurrent_baseline/runs/transformer-seed-0"
    assert f"There is no run {run}, whose" in capsys.readouterr().err


MAPPINGS = "wrong.yaml must have the mappings base, recipe, rows"
NO_TEXT = "There is no file nowhere/train.en. Get the text by"
NO_FLAG = "The row worse is wrong: There is no flag 'dropuot'. Did you mean"
MISTAKES = [
    (table3, ["--budget", "0"], "--budget and --seeds must be 1 or more"),
    (table3, ["--budget", "3"], "results/table3 has results of another budget"),
    (table3, ["--rows", "other.yaml"], "results/table3 has results of another rows"),
    (table3, ["--rows", "wrong.yaml"], MAPPINGS),
    (table3, ["--rows", "none.yaml"], "none.yaml"),
    (table3, ["--rows", "key.yaml"], NO_FLAG),
    (table3, ["--rows", "same.yaml"], "must differ in letters or digits, got worse +, worse -"),
    (table3, ["--data", "nowhere"], NO_TEXT),
    (recurrent_baseline, ["--data", "nowhere"], NO_TEXT),
    (recurrent_baseline, ["--rows", "wrong.yaml"], MAPPINGS),
]


@pytest.mark.parametrize(("module", "changed", "message"), MISTAKES)
def test_mistakes_end_before_the_first_run(words, capsys, module, changed, message):
    Path("results/table3/runs").mkdir(parents=True)
    identity = {"budget": 2, **table3.identity(table3.EXPERIMENT.parse(words))}
    results = json.dumps({"identity": identity, "runs": {}})
    Path("results/table3/results.json").write_text(results)
    for name, content in (
        ("other.yaml", ROWS | {"base": ROWS["base"] | {"dropout": 0.2}}),
        ("wrong.yaml", {"rows": {}}),
        ("key.yaml", ROWS | {"rows": {"worse": {"dropuot": 0.2}}}),
        ("same.yaml", ROWS | {"rows": {"worse +": {}, "worse -": {}}}),
    ):
        Path(name).write_text(yaml.safe_dump(content))
    assert start(module, *words, *changed) == 2
    assert message in capsys.readouterr().err


def test_rows_of_any_script_have_folders(words):
    rows = ROWS | {"rows": {"größer": {}, "больше": {}}}
    Path("rows.yaml").write_text(yaml.safe_dump(rows, allow_unicode=True))
    runs = table3.runs(table3.EXPERIMENT.parse(words))
    assert {*runs} == {"größer-seed-0", "больше-seed-0"}


def test_rows_of_the_package_are_recipes(words):
    rows = table3.read_rows(PAPER)
    assert len(rows) == 20
    assert all(len(row["paper"]) == 2 for row in rows.values())
    models = {}
    for name, row in rows.items():
        recipe = table3.recipe_of(row, 1, 100, words[1], Path("run"))
        models[name] = recipe.model
    widths = {"A, 1 head": 128, "A, 4 heads": 32, "A, 16 heads": 8, "A, 32 heads": 4}
    assert widths.keys() == {name for name in models if name.startswith("A")}
    for name, width in widths.items():
        model = models[name]
        assert model.d_model // model.encoder_attention_heads == width
    assert models["E, learned positions"].position_embedding_type == "learned"


WIDTHS = [{}, {"attention_key_dim": 4, "attention_value_dim": 3}]


@pytest.mark.parametrize("changes", WIDTHS, ids=str)
def test_parameters_are_counted_as_the_model_has_them(changes):
    model = tiny_model(**changes)
    names = ["d_model", "attention_key_dim", "attention_value_dim"]
    for side in ("encoder", "decoder"):
        names += [f"{side}_layers", f"{side}_attention_heads", f"{side}_ffn_dim"]
    flags = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]
    for name in names:
        value = getattr(model.config, name)
        if value is not None:
            flags.append(f"--{name}={value}")
    recipe = parse_recipe(flags)
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    expected = sum(weight.numel() for weight in matrices)
    assert table3.count_parameters(recipe.model, model.config.vocab_size) == expected


def test_figures_show_the_heads_of_the_last_layers(tmp_path, tiny_tokenizer, capsys):
    model = tiny_model(encoder_layers=3)
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    words = ["--model", str(folder), "--sentence", "Two dogs run.", "--output"]
    assert start(figures, *words, str(tmp_path)) == 0
    results = results_of(figures, tmp_path)
    heads = tiny_model().config.encoder_attention_heads
    shown = [(row["layer"], row["head"]) for row in results["rows"]]
    assert shown == [*itertools.product((2, 3), range(1, heads + 1))]
    weights = results["runs"]["attention"]["weights"]
    size = len(results["runs"]["attention"]["tokens"])
    for row in weights[0][0]:
        assert len(row) == size and sum(row) == pytest.approx(1.0, rel=1e-4)
    for row in results["rows"]:
        assert 0 <= row["mean distance in tokens"] < size
    assert start(figures, "--output", str(tmp_path / "other")) == 2
    assert "Name a trained model by --model" in capsys.readouterr().err
    save_model_folder(tiny_long_model(), tiny_tokenizer, folder)
    assert start(figures, *words, str(tmp_path)) == 2
    assert "figures has results of another files" in capsys.readouterr().err
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
    config = RecurrentConfig(vocab_size=len(tiny_tokenizer), **sizes)
    for model in (tiny_long_model(), RecurrentForConditionalGeneration(config)):
        save_model_folder(model, tiny_tokenizer, folder)
        assert start(figures, *words, str(tmp_path / "other")) == 2
        message = f"must have softmax attention, got {model.config.model_type}"
        assert message in capsys.readouterr().err
    save_model_folder(tiny_model(encoder_layers=1), tiny_tokenizer, folder)
    assert start(figures, *words, str(tmp_path / "other")) == 0, "no run had finished"


def test_table2_has_the_run_beside_the_rows_of_the_paper(tmp_path, capsys):
    run_folder = tmp_path / "mine"
    run_folder.mkdir()
    words = ["--model", str(run_folder), "--output", str(tmp_path), "--budget", "1"]
    assert start(table2, *words) == 2
    assert "Name the folder of a run of `train`" in capsys.readouterr().err
    metrics = run_folder / "metrics.jsonl"
    metrics.write_text('{"step": 1, "minutes": 3.0, "loss": 2.0}\n')
    assert start(table2, *words) == 2
    assert "must have validated BLEU" in capsys.readouterr().err
    metrics.write_text('{"step": 1, "minutes": 3.0, "bleu": 30.0}\n')
    (run_folder / "machine.json").write_text('{"processes": 2}')
    assert start(table2, *words) == 0
    results = results_of(table2, tmp_path)
    measured = results["runs"]["run"]
    operations = 180 * 2 * measured["operations_per_second"]
    assert measured["operations"] == pytest.approx(operations)
    big, mine = results["rows"][-2:]
    assert (big["model"], mine["model"]) == ("Transformer (big)", "mine, 0.05 hours")
    assert mine["BLEU here"] == 30.0 and big["FLOPs EN-DE"] == 2.3e19


def test_experiments_need_matplotlib_before_they_start(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert start(positions, "--output", str(tmp_path / "results")) == 2
    assert "vanilla-transformer[plots]" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
