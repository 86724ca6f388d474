"""The progress bar of `translate` moves while a block is translated, and counts the lines of the whole input."""

import pytest

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import corpus_shards
from vanilla_transformer.utils.file_utils import save_model_folder

LINES = ["A man.", "", "Two dogs. Two dogs run. A man is sleeping.", "Two dogs.", "A man. Two dogs.", "Dogs."]


@pytest.fixture
def places(monkeypatch):
    """Return the places that the bar shows, in order."""
    shown = []
    progress_bar = corpus_shards.progress_bar

    def open_recorded(total, done, hidden):
        bar = progress_bar(total, done, hidden)
        update = bar.update

        def record(count):
            shown.append((shown[-1] if shown else done) + count)
            return update(count)

        bar.update = record
        return bar

    monkeypatch.setattr(corpus_shards, "progress_bar", open_recorded)
    return shown


@pytest.mark.parametrize(
    "flags",
    [("--num_beams", "1"), ("--precision", "float32"), ("--num_beams", "2", "--mbr", "chrf"), ("--n_best", "2"), ()],
    ids=lambda flags: "".join(flags),
)
def test_translate_bar_moves_within_a_block_to_the_number_of_lines(flags, places, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model(max_source_length=8), tiny_tokenizer, tmp_path / "model")
    (tmp_path / "text").write_text("\n".join(LINES) + "\n")
    command = ["translate", str(folder), "--input", str(tmp_path / "text"), "--batch_size", "2", *flags]
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    assert places == sorted(places) and places[-1] == len(LINES)
    assert len(set(places)) > 2, "all lines are in one block"


def test_translate_bar_survives_quiet(places, tiny_tokenizer, tmp_path, capsys):
    folder = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "model")
    assert main(["translate", str(folder), "A man.", "Two dogs.", "--quiet"]) == 0
    assert places[-1] == 2 and capsys.readouterr().out.count("\n") == 2


def test_pipeline_reports_progress(tiny_tokenizer):
    calls = []
    TranslationPipeline(tiny_model(), tiny_tokenizer)(LINES, batch_size=2, progress=lambda *call: calls.append(call))
    assert calls[-1] == (5, 5) and [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert len(calls) > 1
