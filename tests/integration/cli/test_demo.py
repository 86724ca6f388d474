"""`demo` on a small part of its corpus: scores, sentences, pictures, and a word where the model is
undertrained.
"""

import pytest

from tests.tiny import TINY_SIZES
from tests.tiny_runs import ROOT, entries
from vanilla_transformer.cli import main
from vanilla_transformer.cli import train as train_commands
from vanilla_transformer.data import demo_corpus
from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.training import trainer
from vanilla_transformer.training.signals import TrainingInterrupted

pytestmark = pytest.mark.usefixtures("short_translations")


@pytest.fixture
def run_demo(tmp_path, monkeypatch, capsys):
    """Return a function that runs `demo` with a corpus of 300 pairs and returns its status and what
    it printed.
    """
    write = demo_corpus.write_demo_corpus
    sizes = {"train": 300, "validation": 4, "test": 11}

    def write_few(folder):
        return write(folder, **sizes)

    monkeypatch.setattr(demo_corpus, "write_demo_corpus", write_few)

    def run(*flags):
        status = main(["demo", "--output_dir", str(tmp_path / "demo"), *flags])
        return status, capsys.readouterr()

    return run


def shorten(monkeypatch, **changes):
    """Change values of the recipe."""
    flags_of_demo = train_commands._demo_flags
    words = []
    for name, value in changes.items():
        words += [f"--{name}", str(value)]

    def flags(*arguments):
        return [*flags_of_demo(*arguments), *words]

    monkeypatch.setattr(train_commands, "_demo_flags", flags)


def test_demo_that_the_time_limit_stops_is_undertrained(
    run_demo, tmp_path, monkeypatch, real_pictures
):
    shorten(monkeypatch, vocab_size=400, **TINY_SIZES)
    status, shown = run_demo("--max_minutes", "0.03")
    made = entries(tmp_path / "demo")[-1]["step"]
    assert status == 0
    message = f"undertrained: the time limit ended training after {made:,} of "
    assert message in shown.out
    assert "BLEU must be at least" in shown.out and "higher --max_minutes" in shown.out
    assert "BLEU" in shown.out and shown.out.count("reference:") == 6
    assert "tatoeba_en_de" in shown.out and find_recipe("tatoeba_en_de").exists()
    assert "models/en-de" in shown.out and (ROOT / "models/en-de").exists()
    # In the table of scores and times.
    assert "`tatoeba_en_de`" in (ROOT / "README.md").read_text()
    assert "rank 1, chrF" in shown.out and "rank 11, chrF" in shown.out
    assert (tmp_path / "demo" / "attention.png").exists()
    assert (tmp_path / "demo" / "corpus" / "README.md").exists()


def test_demo_that_ends_with_a_good_score_is_not_undertrained(run_demo, monkeypatch):
    shorten(monkeypatch, vocab_size=400, **TINY_SIZES, max_steps=3, save_steps=1)
    monkeypatch.setattr(train_commands, "_DEMO_LEAST_BLEU", 0.0)
    status, shown = run_demo()
    assert status == 0 and "undertrained" not in shown.out
    monkeypatch.setattr(train_commands, "_DEMO_LEAST_BLEU", 99.0)
    _, shown = run_demo()
    assert "undertrained: BLEU must be at least 99, got " in shown.out
    assert "time limit" not in shown.out


def test_demo_that_is_interrupted_says_that_it_is_undertrained(run_demo, monkeypatch):
    def interrupt(*_, **__):
        raise TrainingInterrupted("Interrupted after step 3.")

    monkeypatch.setattr(trainer, "train", interrupt)
    status, shown = run_demo()
    message = "Interrupted after step 3. A model of fewer than "
    assert status == 75 and shown.err.startswith(message)
    assert "is undertrained" in shown.err and "BLEU" not in shown.out


def test_choose_ranks_goes_from_the_best_to_the_worst():
    ranks = train_commands.choose_ranks([0.5, 0.9, 0.1, 0.9, 0.3], 3)
    assert ranks == [(1, 1), (3, 0), (5, 2)]
