"""A bug in the middle of any command is shown as one: a traceback, the request of a report, and
status 1.
"""

import shutil

import pytest

from tests.publishable import CARDS, add_card
from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.loading.model_folders import save_model_folder

TEXT = ["--source", "a.en", "--target", "a.de"]
TRAINING = [
    "--train_source",
    "a.en",
    "--train_target",
    "a.de",
    "--output_dir",
    "out",
    "--cache_dir",
    "cache",
]
TRAINING += ["--vocab_size", "280", "--d_model", "16", "--max_steps", "1"]
DISTILLATION = ["--teacher", "model", "--test_source", "a.en", "--test_target", "a.de"]
DISTILLATION += ["--validation_source", "a.en", "--validation_target", "a.de", "--no_drop_warnings"]
ENCODER = "vanilla_transformer.modeling_vanilla_transformer.VanillaTransformerEncoder.forward"
# Words of each command, and what it calls in the middle.
MIDDLE = {
    "train": (TRAINING, "vanilla_transformer.training.trainer.create_model"),
    "average-checkpoints": (
        ["model", "model", "--output_dir", "out"],
        "vanilla_transformer.training.averaging.average_state_dicts",
    ),
    "demo": (["--output_dir", "out"], "vanilla_transformer.training.trainer.load_texts"),
    "distill": ([*TRAINING, *DISTILLATION], "vanilla_transformer.training.trainer.create_model"),
    "translate": (["model", "A text."], ENCODER),
    "compile": (["model"], "vanilla_transformer.decoding.compile_model.Engine.supports"),
    "explain": (["model", "A text.", "--output", "out.html"], ENCODER),
    "evaluate": (["model", *TEXT], ENCODER),
    "compare-runs": (["model", "model"], "vanilla_transformer.evaluation.tables.compare_runs"),
    "evaluate-directions": (
        ["model", "--text", "text"],
        "vanilla_transformer.text.languages.find_languages",
    ),
    "score": (["model", *TEXT], ENCODER),
    "evaluate-alignments": (
        [*TEXT, "--alignments", "links", "--gold_alignments", "links"],
        "vanilla_transformer.extensions.alignments.alignment_scores.score_alignments",
    ),
    "choose-alignment-head": (["model", *TEXT], ENCODER),
    "calibrate": (["model", *TEXT], ENCODER),
    "tune-reranking": (["model", "--rerank_reverse", "model", *TEXT], ENCODER),
    "render-card": (
        ["model", "--facts", "demo"],
        "vanilla_transformer.publishing.card.ModelCard.from_template",
    ),
    "check-model": (["model", *TEXT], "vanilla_transformer.publishing.checks.publishable_files"),
    "push-to-hub": (
        ["model", "user/name", "--dry_run"],
        "vanilla_transformer.publishing.push.check_staged",
    ),
    "create-space": (
        ["model", "--output_dir", "out"],
        "vanilla_transformer.publishing.space.SpaceCard",
    ),
    "download-data": (
        ["multi30k", "--output_dir", "out"],
        "vanilla_transformer.data.download.atomic_folder",
    ),
    "write-corpus": (
        ["--output_dir", "out"],
        "vanilla_transformer.data.demo_corpus.read_demo_corpus",
    ),
    "train-tokenizer": (
        ["a.en", "--output_dir", "out", "--vocab_size", "280"],
        "tokenizers.Tokenizer.train_from_iterator",
    ),
    "write-alignments": (
        TEXT,
        "vanilla_transformer.extensions.alignments.word_alignments.align_lexically",
    ),
    "clean-corpus": (TRAINING[:8], "vanilla_transformer.data.prepare_data.load_cached_texts"),
    "back-translate": (["model", "--input", "a.de", "--output", "out.tsv"], ENCODER),
    "check-language": (
        ["a.en", "a.de"],
        "vanilla_transformer.extensions.quality.language_check.LanguageReport",
    ),
    "convert": (["model", "out", "--target_format", "marian", "--sentences", "a.en"], ENCODER),
    "serve": (["model", "--port", "0"], "uvicorn.Config"),
}


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    add_card(save_model_folder(tiny_model(), tiny_tokenizer(), tmp_path / "model"))
    (tmp_path / "a.en").write_text("a b c\nb c d e\nc d\n" * 70)
    (tmp_path / "a.de").write_text("A B C\nB C D E\nC D\n" * 70)
    (tmp_path / "links").write_text("0-0\n" * 210)
    shutil.copy(CARDS / "demo.yaml", tmp_path / "facts.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_command_has_a_middle():
    assert MIDDLE.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", MIDDLE)
def test_a_bug_in_a_command_is_shown_as_a_bug(workplace, monkeypatch, capsys, name):
    words, place = MIDDLE[name]
    for error in (TypeError("seeded"), ValueError("seeded"), OSError("seeded")):

        def fail(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr(place, fail)
        assert main([name, *words]) == 1
        *_, fault, request = capsys.readouterr().err.splitlines()
        assert fault == f"{type(error).__name__}: seeded"
        assert request.startswith("This is a bug of vanilla-transformer. Please report it")
        shutil.rmtree(workplace / "out", ignore_errors=True)
