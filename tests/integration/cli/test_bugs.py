"""A bug in the middle of any command is shown as one: a traceback, the request of a report, and
status 1.
"""

import shutil

import pytest

from tests.publishable import write_workplace
from vanilla_transformer.cli import COMMANDS, main

TEXT = ["--source", "a.en", "--target", "a.de"]
TRAINING = ["--train_source", "a.en", "--train_target", "a.de"]
TRAINING += ["--output_dir", "out", "--cache_dir", "cache"]
TRAINING += ["--vocab_size", "280", "--d_model", "16", "--max_steps", "1"]
DISTILLATION = ["--teacher", "model", "--test_source", "a.en", "--test_target", "a.de"]
DISTILLATION += ["--validation_source", "a.en", "--validation_target", "a.de"]
DISTILLATION += ["--no_drop_warnings"]
PACKAGE = "vanilla_transformer"
ENCODER = f"{PACKAGE}.modeling_vanilla_transformer.VanillaTransformerEncoder.forward"
TRAINER = f"{PACKAGE}.training.trainer"
ALIGNMENTS = f"{PACKAGE}.extensions.alignments"
OUTPUT = ["--output_dir", "out"]
MEAN = f"{PACKAGE}.training.averaging.average_state_dicts"
LINKS = [*TEXT, "--alignments", "links", "--gold_alignments", "links"]
MARIAN = ["model", "out", "--target_format", "marian", "--sentences", "a.en"]
RERANKING = ["model", "--rerank_reverse", "model", *TEXT]
REPORT = f"{PACKAGE}.extensions.quality.language_check.LanguageReport"
TOKENIZER = "tokenizers.Tokenizer.train_from_iterator"
SUGGESTIONS = f"{PACKAGE}.extensions.memory.suggestions.read_suggestions"
CARD = f"{PACKAGE}.publishing.card.ModelCard.from_template"
FILES = f"{PACKAGE}.publishing.checks.publishable_files"
# Words of each command, and what it calls in the middle.
MIDDLE = {
    "train": (TRAINING, f"{TRAINER}.create_model"),
    "average-checkpoints": (["model", "model", *OUTPUT], MEAN),
    "demo": (OUTPUT, f"{TRAINER}.load_texts"),
    "adapt": (
        ["model", "a.tsv", *OUTPUT],
        f"{PACKAGE}.extensions.memory.adaptation.split_memory",
    ),
    "distill": ([*TRAINING, *DISTILLATION], f"{TRAINER}.create_model"),
    "translate": (["model", "A text."], ENCODER),
    "compile": (["model"], f"{PACKAGE}.decoding.compile_model.Engine.supports"),
    "explain": (["model", "A text.", "--output", "out.html"], ENCODER),
    "evaluate": (["model", *TEXT], ENCODER),
    "compare-models": (["model", "model", *TEXT], ENCODER),
    "compare-runs": (["model", "model"], f"{PACKAGE}.evaluation.tables.compare_runs"),
    "evaluate-directions": (
        ["model", "--text", "text"],
        f"{PACKAGE}.text.languages.find_languages",
    ),
    "score": (["model", *TEXT], ENCODER),
    "evaluate-alignments": (LINKS, f"{ALIGNMENTS}.alignment_scores.score_alignments"),
    "choose-alignment-head": (["model", *TEXT], ENCODER),
    "calibrate": (["model", *TEXT], ENCODER),
    "tune-reranking": (RERANKING, ENCODER),
    "render-card": (["model", "--facts", "demo"], CARD),
    "check-model": (["model", *TEXT], FILES),
    "push-to-hub": (
        ["model", "user/name", "--dry_run"],
        f"{PACKAGE}.publishing.push.check_staged",
    ),
    "create-space": (["model", *OUTPUT], f"{PACKAGE}.publishing.space.SpaceCard"),
    "download-data": (["multi30k", *OUTPUT], f"{PACKAGE}.data.download.atomic_folder"),
    "write-corpus": (OUTPUT, f"{PACKAGE}.data.demo_corpus.read_demo_corpus"),
    "train-tokenizer": (["a.en", *OUTPUT, "--vocab_size", "280"], TOKENIZER),
    "write-alignments": (TEXT, f"{ALIGNMENTS}.word_alignments.align_lexically"),
    "clean-corpus": (TRAINING[:8], f"{PACKAGE}.data.prepare_data.load_cached_texts"),
    "prepare": (
        [*TRAINING[:4], "--output", "out"],
        f"{PACKAGE}.extensions.preparation.preparation.open_corpus",
    ),
    "back-translate": (["model", "--input", "a.de", "--output", "out.tsv"], ENCODER),
    "check-language": (["a.en", "a.de"], REPORT),
    "export-memory": (["log", "--output", "out.tmx"], SUGGESTIONS),
    "convert": (MARIAN, ENCODER),
    "serve": (["model", "--port", "0"], "uvicorn.Config"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template")
    write_workplace(folder, 70)
    (folder / "links").write_text("0-0\n" * 210)
    return folder


@pytest.fixture
def workplace(template, tmp_path, monkeypatch):
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_command_has_a_middle():
    assert MIDDLE.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", MIDDLE)
def test_a_bug_in_a_command_is_shown_as_a_bug(workplace, monkeypatch, capsys, name):
    words, function = MIDDLE[name]
    for error in (TypeError("seeded"), ValueError("seeded"), OSError("seeded")):

        def fail(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr(function, fail)
        assert main([name, *words]) == 1
        *_, fault, request = capsys.readouterr().err.splitlines()
        assert fault == f"{type(error).__name__}: seeded"
        message = "This is a bug of vanilla-transformer. Please report it"
        assert request.startswith(message)
        shutil.rmtree(workplace / "out", ignore_errors=True)
