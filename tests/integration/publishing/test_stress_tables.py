"""`check-model` measures a stress table, and the card shows it."""

import pytest

from tests.publishable import add_card
from tests.tiny import TINY_SENTENCES, tiny_causal_lm, tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks


@pytest.fixture
def files(tmp_path):
    (tmp_path / "en").write_text("".join(f"{each}\n" for each in TINY_SENTENCES[:2] * 2))
    (tmp_path / "de").write_text("".join(f"{each}\n" for each in TINY_SENTENCES[2:] * 2))
    return ["--source", str(tmp_path / "en"), "--target", str(tmp_path / "de")]


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    """Leave out the checks of behavior, which take seconds and have their own tests."""
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])


def test_check_model_prints_and_records_a_stress_table(tiny_tokenizer, files, tmp_path, capsys):
    model = tiny_model()
    model.config.confidence = {
        "weights": {"mean_log_probability": 0.1},
        "intercept": 0.5,
        "sums": [-1.0, 0.5],
        "confidences": [0.1, 0.9],
    }
    folder = add_card(save_model_folder(model, tiny_tokenizer, tmp_path / "model"))
    assert main(["translate", str(folder), TINY_SENTENCES[0]]) == 0
    (tmp_path / "de").write_text(f"{capsys.readouterr().out.splitlines()[0]}\nJa\nJa\nJa\n")
    assert main(["check-model", str(folder), *files, "--max_pairs", "3", "--name", "my test"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("text "))
    assert [line.split()[0] for line in lines[start + 1 :]][:3] == [
        "plain",
        "title_case",
        "upper_case",
    ]
    assert lines[start + 1].split()[1] == "3" and lines[-1].split()[:2] == ["joined", "1"]
    text = (add_card(folder) / "README.md").read_text()
    assert "## Changed input: my test" in text and '--name "my test"` measured this.' in text
    assert "| text | pairs | BLEU | change | chrF | change | copy % | repetition % |" in text
    assert (
        "| plain | 3 |" in text
        and "has Spearman's correlation" in text
        and "| confidence | chrF |" in text
    )
    assert main(["check-model", str(folder)]) == 0


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--source", "en"], "Give both --source and --target, or none."),
        (
            ["--name", "a"],
            "--name is for a stress test. Give --source and --target, or leave it out.",
        ),
        (
            ["--source", "a", "--target", "b", "--max_pairs", "0"],
            "`max_pairs` must be an integer from 1 to 100,000, got 0.",
        ),
        (["--source", "a", "--target", "b", "--name", "a/b"], "--name may hold letters, digits"),
        (["--source", "none", "--target", "b"], "none"),
    ],
)
def test_check_model_refuses_flags_of_a_stress_test(flags, said, tmp_path, capsys):
    assert main(["check-model", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err


def test_check_model_names_models_that_do_not_translate(tiny_tokenizer, files, tmp_path, capsys):
    folder = save_model_folder(tiny_causal_lm(), tiny_tokenizer, tmp_path / "model")
    assert main(["check-model", str(folder), *files]) == 2
    assert "translat" in capsys.readouterr().err
