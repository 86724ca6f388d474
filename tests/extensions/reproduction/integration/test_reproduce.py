"""`reproduce` runs each run once, continues, refuses other experiments' folders, and writes table and picture."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.tiny import tiny_long_model, tiny_model
from tests.tiny_runs import ROOT, no_scores
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.reproduction import recurrent_baseline, table3
from vanilla_transformer.extensions.reproduction.experiments import (
    EXPERIMENTS,
    ReproductionOptions,
    markdown_table,
    reproduce,
)
from vanilla_transformer.extensions.reproduction.recurrent_model import (
    RecurrentConfig,
    RecurrentForConditionalGeneration,
)
from vanilla_transformer.extensions.reproduction.table3 import count_parameters, read_rows, recipe_of
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.signals import TrainingInterrupted
from vanilla_transformer.training.train_state import TrainState
from vanilla_transformer.utils.file_utils import save_model_folder

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


@pytest.fixture
def words(corpus, tmp_path, monkeypatch):
    """Return flags for a small table 3, and change to a folder for its results."""
    for name, own in (("train", "train"), ("val", "validation")):
        for end, letters in (("en", "a"), ("de", "b")):
            (corpus / f"{name}.{end}").write_text((corpus / f"{own}.{letters}").read_text())
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(ROWS, sort_keys=False))
    monkeypatch.chdir(tmp_path)
    return ["--data", str(corpus), "--rows", "rows.yaml", "--budget", "2", "--output", "results"]


def test_table3_trains_each_row_once_and_continues(words, monkeypatch, capsys, real_pictures):
    trained, train = [], table3.train

    def train_two(recipe, evaluate):
        if len(trained) == 2:
            raise TrainingInterrupted("Interrupted after step 1.")
        trained.append((recipe.model.encoder_attention_heads, recipe.optimization.seed))
        return train(recipe, evaluate)

    monkeypatch.setattr(table3, "train", train_two)
    assert main(["reproduce", "table3", *words]) == 75
    found = json.loads(Path("results/table3/results.json").read_text())
    assert [*found["runs"]] == ["base-seed-0", "one-head-seed-0"] and found["rows"] == []
    monkeypatch.setattr(table3, "train", lambda recipe, evaluate: trained.append(recipe) or train(recipe, evaluate))
    assert main(["reproduce", "table3", *words]) == 0 and len(trained) == 3
    assert main(["reproduce", "table3", *words, "--seeds", "2"]) == 0 and len(trained) == 6
    assert trained[:2] == [(2, 0), (1, 0)] and [recipe.optimization.seed for recipe in trained[2:]] == [0, 1, 1, 1]
    found = json.loads(Path("results/table3/results.json").read_text())
    assert [row["row"] for row in found["rows"]] == [*ROWS["rows"]] and len(found["runs"]) == 6
    base, one = found["rows"][0], found["runs"]["base-seed-0"]
    losses = [found["runs"][f"base-seed-{seed}"]["validation_loss"] for seed in (0, 1)]
    assert base["perplexity"] == pytest.approx(sum(map(math.exp, losses)) / 2) and base["seeds"] == 2
    assert base["±"] == pytest.approx(abs(math.exp(losses[0]) - math.exp(losses[1])) / 2) and one["step"] == 2
    assert one["mixed_precision"] == "no" and "torch uses" in one["hardware"]
    assert (base["paper: perplexity"], base["paper: BLEU"]) == (4.5, 25.5)
    assert found["rows"][1]["paper: BLEU"] is None
    assert Path("results/table3/figure.png").read_bytes().startswith(b"\x89PNG")
    assert Path("results/table3/table.md").read_text().splitlines()[-1].startswith("| narrow keys | 7,808 | ")
    assert "Results, table and picture are in results/table3." in capsys.readouterr().out


def test_docs_have_the_table_of_the_committed_runs():
    found = json.loads((ROOT / "docs" / "results" / "table3" / "results.json").read_text())
    assert found["identity"]["rows"] == read_rows(None)
    assert markdown_table(table3.rows(found["runs"])) in (ROOT / "docs" / "reproduce.md").read_text()


def test_table3_draws_half_of_the_range_of_bleu_as_bars():
    found = json.loads((ROOT / "docs" / "results" / "table3" / "results.json").read_text())
    table = table3.rows(found["runs"])
    here, paper = table3.draw(table).axes[0].containers
    bars = [(right - left) / 2 for (left, _), (right, _) in here.lines[2][0].get_segments()]
    assert bars == pytest.approx([row["± "] for row in table]) and not paper.has_xerr


def test_a_first_run_that_was_interrupted_keeps_its_budget(words, monkeypatch, capsys):
    def interrupt(recipe, evaluate):
        Path(recipe.output.output_dir).mkdir(parents=True)  # with a checkpoint
        raise TrainingInterrupted("Interrupted after step 1.")

    monkeypatch.setattr(table3, "train", interrupt)
    assert main(["reproduce", "table3", *words]) == 75
    assert main(["reproduce", "table3", *words, "--budget", "3"]) == 2
    assert "results/table3 has results of another budget, 2 and not 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "runs", "steps"), [("table3", 3, "6 steps, about"), ("recurrent-baseline", 4, "4 steps, then")]
)
def test_dry_run_writes_nothing(words, capsys, name, runs, steps):
    assert main(["reproduce", name, *words, "--dry_run"]) == 0
    shown = capsys.readouterr().out
    assert f"{runs} runs, 0 of them finished" in shown and steps in shown and "about 0.0 hours here" in shown
    assert not Path("results").exists()


def test_recurrent_baseline_trains_equal_steps_and_equal_minutes_and_continues(words, monkeypatch, capsys):
    trained, train = [], recurrent_baseline.train
    text = Path(words[1], "val.en")
    text.write_text(text.read_text().replace(" ", "\u2028", 1))  # which ends no line

    def train_one(recipe, evaluate, model_class):
        if len(trained) == 1:
            raise TrainingInterrupted("Interrupted after step 1.")
        return train_all(recipe, evaluate, model_class)

    def train_all(recipe, evaluate, model_class):
        trained.append((recipe.optimization.max_steps, recipe.optimization.max_minutes, model_class.__name__))
        return train(recipe, evaluate=evaluate, model_class=model_class)

    monkeypatch.setattr(recurrent_baseline, "validation_scores", no_scores)  # another test translates
    monkeypatch.setattr(TrainState, "minutes", lambda state: state.step / 1000)
    monkeypatch.setattr(recurrent_baseline, "train", train_one)
    assert main(["reproduce", "recurrent-baseline", *words]) == 75 and len(trained) == 1
    monkeypatch.setattr(recurrent_baseline, "train", train_all)
    assert main(["reproduce", "recurrent-baseline", *words]) == 0
    folder = Path("results/recurrent-baseline")
    found = json.loads((folder / "results.json").read_text())
    lstm = "RecurrentForConditionalGeneration"
    assert trained == [(2, None, "VanillaTransformerForConditionalGeneration"), (2, None, lstm), (None, 0.002, lstm)]
    transformer, steps, same_minutes = found["rows"]
    assert transformer["steps"] == steps["steps"] == 2 and transformer["minutes"] == same_minutes["minutes"] == 0.002
    assert all(row["target tokens/s"] > 0 and len(row["gradients end"]) == 3 for row in found["rows"])
    assert steps["target tokens/s"] == same_minutes["target tokens/s"] != transformer["target tokens/s"]
    assert not (folder / "runs" / "speed").exists()
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert main(["reproduce", "recurrent-baseline", *words]) == 0 and len(trained) == 3
    shutil.rmtree(folder / "runs")
    del found["runs"]["lstm-equal-minutes-seed-0"]
    (folder / "results.json").write_text(json.dumps(found))
    assert main(["reproduce", "recurrent-baseline", *words]) == 2
    assert "There is no run results/recurrent-baseline/runs/transformer-seed-0, whose" in capsys.readouterr().err


def test_list_names_all_experiments(capsys):
    assert main(["reproduce", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*EXPERIMENTS]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["table9"], "The experiment must be one of scaling-by-sqrt-dk, .*, got 'table9'"),
        ([], "Name one experiment, got 0"),
        (["table3", "--budget", "0"], "`budget` must be 1 or more, got 0"),
        (["table3", "--seeds", "0"], "`seeds` must be 1 or more, got 0"),
        (["table3", "--budget", "3"], "results/table3 has results of another budget, 2 and not 3"),
        (["table3", "--rows", "other.yaml"], "results/table3 has results of another dropout, 0.1 and not 0.2"),
        (["table3", "--rows", "wrong.yaml"], "wrong.yaml must have the mappings base, recipe, rows"),
        (["table3", "--rows", "list.yaml"], "`rows` in list.yaml must be mappings of settings, got"),
        (["table3", "--rows", "none.yaml"], "none.yaml"),
        (["table3", "--data", "nowhere"], "There is no file nowhere/train.en. Get the text by"),
        (["recurrent-baseline", "--data", "nowhere"], "There is no file nowhere/train.en. Get the text by"),
        (["recurrent-baseline", "--rows", "wrong.yaml"], "wrong.yaml must have the mappings base, recipe, rows"),
    ],
)
def test_mistakes_take_one_line(words, capsys, changed, message):
    Path("results/table3/runs").mkdir(parents=True)
    options = ReproductionOptions("results", 2, 1, words[1], "rows.yaml")
    identity = {"budget": 2, **table3.identity(options)}
    Path("results/table3/results.json").write_text(json.dumps({"identity": identity, "runs": {}}))
    for name, content in (
        ("other.yaml", ROWS | {"base": ROWS["base"] | {"dropout": 0.2}}),
        ("wrong.yaml", {"rows": {}}),
        ("list.yaml", ROWS | {"rows": {"a": [1]}}),
    ):
        Path(name).write_text(yaml.safe_dump(content))
    assert main(["reproduce", *changed[:1], *words, *changed[1:]]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message.split(", .*, ")[0] in error and message.split(", .*, ")[-1] in error


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"worse": {"dropuot": 0.2}}, "The row worse is wrong: There is no flag 'dropuot'. Did you mean 'dropout'?"),
        ({"worse": {"paper": 25.8}}, "`paper` of the row worse in rows.yaml must be [perplexity, BLEU], got 25.8"),
        ({"worse": {"paper": [25.8]}}, "`paper` of the row worse in rows.yaml must be [perplexity, BLEU], got [25.8]"),
        ({"worse +": {}, "worse -": {}}, "must differ in letters or digits, got 'worse +' and 'worse -'"),
    ],
)
def test_mistakes_in_rows_are_found_before_the_first_run(words, capsys, rows, message):
    Path("rows.yaml").write_text(yaml.safe_dump(ROWS | {"rows": {"base": {}, **rows}}, sort_keys=False))
    assert main(["reproduce", "table3", *words]) == 2
    assert message in capsys.readouterr().err and not Path("results").exists()


def test_rows_of_any_script_have_folders(words):
    Path("rows.yaml").write_text(yaml.safe_dump(ROWS | {"rows": {"größer": {}, "больше": {}}}, allow_unicode=True))
    options = ReproductionOptions("results", 2, 1, words[1], "rows.yaml")
    assert {*table3.runs(options, 2)} == {"größer-seed-0", "больше-seed-0"}


def test_rows_of_the_package_are_recipes(words):
    rows = read_rows(None)
    assert len(rows) == 20 and all(len(row["paper"]) == 2 for row in rows.values())
    recipes = {name: recipe_of(row, 1, 100, words[1], Path("run")) for name, row in rows.items()}
    widths = {name: each.model.d_model // each.model.encoder_attention_heads for name, each in recipes.items()}
    assert {name: width for name, width in widths.items() if name.startswith("A")} == {
        "A, 1 head": 128,
        "A, 4 heads": 32,
        "A, 16 heads": 8,
        "A, 32 heads": 4,
    }
    assert recipes["E, learned positions"].model.position_embedding_type == "learned"


@pytest.mark.parametrize("changes", [{}, {"attention_key_dim": 4, "attention_value_dim": 3}], ids=str)
def test_parameters_are_counted_as_the_model_has_them(changes):
    model = tiny_model(**changes)
    fields = {name: getattr(model.config, name) for name in ("d_model", "attention_key_dim", "attention_value_dim")}
    for side in ("encoder", "decoder"):
        names = (f"{side}_{name}" for name in ("layers", "attention_heads", "ffn_dim"))
        fields |= {name: getattr(model.config, name) for name in names}
    flags = [f"--{name}={value}" for name, value in fields.items() if value is not None]
    recipe = parse_recipe(["--train_source", "a", "--train_target", "b", "--output_dir", "c", *flags])
    matrices = {id(weight): weight.numel() for weight in model.parameters() if weight.dim() == 2}
    assert count_parameters(recipe.model, model.config.vocab_size) == sum(matrices.values())


def test_reproduce_returns_its_folder(tmp_path):
    reported = []
    folder = reproduce("positions", ReproductionOptions(str(tmp_path), budget=4), report=reported.append)
    assert folder == tmp_path / "positions" and len(reported) == 4
    assert reproduce("positions", ReproductionOptions(str(tmp_path), budget=4), report=reported.append) == folder
    assert len(reported) == 5, "the runs are not repeated"


def test_figures_show_the_heads_of_the_last_layers(tmp_path, tiny_tokenizer, capsys):
    folder = save_model_folder(tiny_model(encoder_layers=3), tiny_tokenizer, tmp_path / "model")
    words = ["--model", str(folder), "--sentence", "Two dogs run.", "--output", str(tmp_path)]
    assert main(["reproduce", "figures", *words]) == 0
    found = json.loads((tmp_path / "figures" / "results.json").read_text())
    heads = tiny_model().config.encoder_attention_heads
    assert [(row["layer"], row["head"]) for row in found["rows"]] == [
        (layer, head) for layer in (2, 3) for head in range(1, heads + 1)
    ]
    weights = found["runs"]["attention"]["weights"]
    size = len(found["runs"]["attention"]["tokens"])
    assert all(len(row) == size and sum(row) == pytest.approx(1.0, rel=1e-4) for row in weights[0][0])
    assert all(0 <= row["mean distance in tokens"] < size for row in found["rows"])
    assert main(["reproduce", "figures", "--output", str(tmp_path / "other")]) == 2
    assert "Name a trained model by --model" in capsys.readouterr().err
    save_model_folder(tiny_long_model(), tiny_tokenizer, folder)
    assert main(["reproduce", "figures", *words]) == 2
    assert "figures has results of another config.json" in capsys.readouterr().err
    assert main(["reproduce", "figures", *words, "--output", str(tmp_path / "other")]) == 2
    assert "must have softmax attention, got vanilla_transformer_long" in capsys.readouterr().err
    sizes = {"vocab_size": len(tiny_tokenizer), "encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
    save_model_folder(RecurrentForConditionalGeneration(RecurrentConfig(**sizes)), tiny_tokenizer, folder)
    assert main(["reproduce", "figures", *words, "--output", str(tmp_path / "other")]) == 2
    assert "must have softmax attention, got recurrent_baseline" in capsys.readouterr().err
    save_model_folder(tiny_model(encoder_layers=1), tiny_tokenizer, folder)
    assert main(["reproduce", "figures", *words, "--output", str(tmp_path / "other")]) == 0, "no run had finished"


def test_table2_has_the_run_beside_the_rows_of_the_paper(tmp_path, capsys):
    run = tmp_path / "mine"
    run.mkdir()
    words = ["reproduce", "table2", "--model", str(run), "--output", str(tmp_path), "--budget", "1"]
    assert main(words) == 2 and "Name the folder of a run of `train`" in capsys.readouterr().err
    (run / "metrics.jsonl").write_text('{"step": 1, "minutes": 3.0, "loss": 2.0}\n')
    assert main(words) == 2 and "must have validated BLEU" in capsys.readouterr().err
    (run / "metrics.jsonl").write_text('{"step": 1, "minutes": 3.0, "bleu": 30.0}\n')
    (run / "machine.json").write_text('{"processes": 2}')
    assert main(words) == 0
    found = json.loads((tmp_path / "table2" / "results.json").read_text())
    own = found["runs"]["run"]
    assert own["operations"] == pytest.approx(180 * 2 * own["operations_per_second"]) and own["hours"] == 0.05
    assert [row["model"] for row in found["rows"]][-2:] == ["Transformer (big)", "mine, 0.05 hours"]
    assert found["rows"][-1]["BLEU here"] == 30.0 and found["rows"][-2]["FLOPs EN-DE"] == 2.3e19
    (run / "metrics.jsonl").write_text('{"bleu": 35.0, "step": 1, "minutes": 3.0}\n')
    assert main(words) == 2 and "has results of another bleu, 30.0 and not 35.0" in capsys.readouterr().err


def test_reproduce_needs_matplotlib_before_it_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["reproduce", "positions", "--output", str(tmp_path / "results")]) == 2
    assert "vanilla-transformer[plots]" in capsys.readouterr().err and not (tmp_path / "results").exists()
