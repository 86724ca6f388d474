"""`check-model` measures a stress table, and the card shows it."""

import pytest

from tests.publishable import add_card
from tests.tiny import TINY_SENTENCES, tiny_causal_lm, tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks


@pytest.fixture
def files(tmp_path):
    (tmp_path / "en").write_text("\n".join([*TINY_SENTENCES[:2] * 2, ""]))
    (tmp_path / "de").write_text("\n".join([*TINY_SENTENCES[2:] * 2, ""]))
    return ["--source", str(tmp_path / "en"), "--target", str(tmp_path / "de")]


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    """Leave out the checks of behavior, which take seconds and have their own tests."""
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])


def test_check_model_records_a_stress_table(tiny_tokenizer, files, tmp_path, capsys):
    """Print it as well."""
    model = tiny_model()
    model.config.confidence = {
        "weights": {"mean_log_probability": 0.1},
        "intercept": 0.5,
        "sums": [-1.0, 0.5],
        "confidences": [0.1, 0.9],
    }
    folder = add_card(save_model_folder(model, tiny_tokenizer, tmp_path / "model"))
    assert main(["translate", str(folder), TINY_SENTENCES[0]]) == 0
    translation, *_ = capsys.readouterr().out.splitlines()
    (tmp_path / "de").write_text(f"{translation}\nJa\nJa\nJa\n")
    flags = [*files, "--max_pairs", "3", "--name", "my test"]
    assert main(["check-model", str(folder), *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines]
    start = next(number for number, row in enumerate(rows) if row[:1] == ["text"])
    names = [row[0] for row in rows[start + 1 : start + 4]]
    assert names == ["plain", "title_case", "upper_case"]
    assert rows[start + 1][1] == "3" and rows[-1][:2] == ["joined", "1"]
    text = (add_card(folder) / "README.md").read_text()
    assert "## Changed input: my test" in text
    assert '--name "my test"` measured this.' in text
    head = "| text | pairs | BLEU | change | chrF | change | copy % | repetition % |"
    assert head in text and "| plain | 3 |" in text
    assert "has Spearman's correlation" in text and "| confidence | chrF |" in text
    assert main(["check-model", str(folder)]) == 0


PAIRS = ["--source", "a", "--target", "b"]
NO_PAIRS = "--name is for a stress test. Give --source and --target, or leave it out."
NUMBER = "`max_pairs` must be an integer from 1 to 100,000, got 0."
REFUSED = [
    (["--source", "en"], "Give both --source and --target, or none."),
    (["--name", "a"], NO_PAIRS),
    ([*PAIRS, "--max_pairs", "0"], NUMBER),
    ([*PAIRS, "--name", "a/b"], "--name may hold letters, digits"),
    (["--source", "none", "--target", "b"], "none"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_check_model_refuses_flags_of_a_stress_test(flags, message, tmp_path, capsys):
    assert main(["check-model", str(tmp_path), *flags]) == 2
    assert message in capsys.readouterr().err


def test_check_model_names_models_of_no_translation(tiny_tokenizer, files, tmp_path, capsys):
    folder = save_model_folder(tiny_causal_lm(), tiny_tokenizer, tmp_path / "model")
    assert main(["check-model", str(folder), *files]) == 2
    assert "translat" in capsys.readouterr().err
