"""Every command that translates writes the same text for the same text and beams."""

import copy
import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from transformers import pipeline

from tests.sweeps import sample
from tests.tiny import tiny_model, write_tiny_corpus
from tests.tiny_runs import distillation_flags, flags
from vanilla_transformer.cli import COMMANDS, main, train
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.translation_pipeline import TranslationCall
from vanilla_transformer.evaluation import test_sets
from vanilla_transformer.extensions.distillation import teacher as teacher_module
from vanilla_transformer.extensions.memory import adaptation
from vanilla_transformer.extensions.serving.service import translate_with
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks
from vanilla_transformer.text.languages import Direction, add_language_tags

LINES = [
    "Dogs run to https://a.example/x?y=1 at 12:30.",
    "A man, {name}, has %s dogs 🙂.",
    "  A man is sleeping. Two dogs run.\t",
    "Write to me@mail.example before 2026-11-25.",
    "Two dogs run across the green grass.",
]
PAIRS = [(line, "Zwei Hunde laufen über das grüne Gras.") for line in LINES]
BEAMS = ["--num_beams", "2"]
BEAM_SEARCH = TranslationOptions.resolve({"num_beams": 2})
SOURCES, TARGETS = ["--source", "{}/lines.en"], ["--target", "{}/lines.de"]
NO_LOSSES = {"drop_lowest_scores": 0, "teacher_num_beams": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    folder = tmp_path_factory.mktemp("doors")
    save_model_folder(tiny_model(), tiny_tokenizer, folder / "model")
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, [Direction("en", "de"), Direction("de", "en")])
    model = tiny_model(vocab_size=len(tokenizer))
    save_model_folder(model, tokenizer, folder / "languages")
    write_tiny_corpus(folder)
    for name, count in (("lines", 1), ("many", 20)):
        sources, targets = zip(*PAIRS * count, strict=True)
        (folder / f"{name}.en").write_text("\n".join([*sources, ""]))
        (folder / f"{name}.de").write_text("\n".join([*targets, ""]))
    (folder / "corpus").mkdir()
    for code in ("en", "de"):
        shutil.copy(folder / f"lines.{code}", folder / "corpus" / f"test.{code}")
    return folder


@pytest.fixture
def written(monkeypatch):
    """Return the translations that any pipeline gives for each text, without white space around
    both.
    """
    written, answer = {}, TranslationCall.answer

    def record(self, text, *further):
        fields = answer(self, text, *further)
        written.setdefault(text.strip(), []).append(fields["translation_text"].strip())
        return fields

    monkeypatch.setattr(TranslationCall, "answer", record)
    return written


@cache
def translate(model, folder, *words):
    """Return what `translate` writes for each line, which is computed once."""
    output = folder / "expected.txt"
    files = ["--input", str(folder / "lines.en"), "--output", str(output)]
    words = [*files, "--overwrite", "--quiet", *words]
    assert main(["translate", str(model), *words]) == 0
    return [line.strip() for line in output.read_text().removesuffix("\n").split("\n")]


def run(*words):
    """Return a row that runs a command on the model."""
    return lambda folder: main([word.format(folder) for word in words])


# Rows that translate `lines.en`; each returns 0 or None.
def as_demo(folder):
    train._print_demo_scores(folder / "model", folder / "corpus")


def as_service(folder):
    translate_with(load_pipeline(folder / "model"))(LINES, BEAM_SEARCH)


def by_pipeline(folder):
    pipeline("translation", model=str(folder / "model"))(LINES, num_beams=2)


def by_load_pipeline(folder):
    load_pipeline(folder / "model", num_beams=2)(LINES)


INPUT = ["--input", "{}/lines.en", "--output"]
MANY = ["--source", "{}/many.en", "--target", "{}/many.de"]
FILES = [*SOURCES, *TARGETS]
DRY_RUN = ["user/name", "--dry_run", "--revision", "new", "--compare_with"]
SAME = {
    "translate": run("translate", "{}/model", *INPUT, "{}/json", "--json", *BEAMS),
    "evaluate": run("evaluate", "{}/model", *FILES, "--bootstrap_samples", "2", *BEAMS),
    "evaluate-directions": run("evaluate-directions", "{}/languages", "--text", "{}/lines", *BEAMS),
    "compare-models": run("compare-models", "{}/model", "{}/model", *FILES, *BEAMS),
    "back-translate": run(
        "back-translate", "{}/model", *INPUT, "{}/o.tsv", "--keep_warnings", *BEAMS
    ),
    "calibrate": run("calibrate", "{}/model", *MANY, *BEAMS),
    "check-model": run("check-model", "{}/model", *FILES, *BEAMS),
    "push-to-hub": run("push-to-hub", "{}/model", *DRY_RUN, "{}/model", *FILES, *BEAMS),
    "demo": as_demo,
    "serve": as_service,
    # Doors of Python
    "pipeline": by_pipeline,
    "load_pipeline": by_load_pipeline,
}
EN_DE = ["--source_language", "en", "--target_language", "de"]
OWN_BEAMS = {"demo": []}  # where the checkpoint's are used
MODELS = {"evaluate-directions": ("languages", EN_DE)}
# Commands that run a training first, each with its own test below.
TRAIN = {"train", "distill", "adapt"}
# Commands that differ, and what their help says about it.
DIFFER = {
    "tune-reranking": "`evaluate --no_protect`",
    "explain": "`translate --no_protect`",
    "create-space": "`translate --no_protect`",
}
# Commands that translate no text: they read both sides, compare token ids or write other files.
NONE = {"average-checkpoints", "score", "evaluate-alignments", "choose-alignment-head"}
NONE |= {"render-card", "download-data", "write-corpus", "train-tokenizer"}
NONE |= {"write-alignments", "clean-corpus", "check-language", "prepare"}
NONE |= {"convert", "compile", "compare-runs", "export-memory"}


def test_each_command_is_in_one_table():
    tables = [SAME.keys() & COMMANDS, TRAIN, DIFFER.keys(), NONE]
    assert sum(map(len, tables)) == len(COMMANDS)
    assert set().union(*tables) == COMMANDS.keys()


KEPT = ["translate", "evaluate", "demo", "serve", "pipeline", "load_pipeline"]


@pytest.mark.parametrize("name", sample(SAME, *KEPT))
def test_commands_write_the_same_translations(name, folder, written, monkeypatch):
    passed = [checks.CheckResult("files", True, "all")]
    monkeypatch.setattr(checks, "check_folder", lambda *_: passed)
    assert not SAME[name](folder)
    model, languages = MODELS.get(name, ("model", []))
    words = [*languages, *OWN_BEAMS.get(name, BEAMS)]
    expected = translate(folder / model, folder, *words)
    assert "https://a.example/x?y=1" in expected[0] and "{name}" in expected[1]
    for line, text in zip(LINES, expected, strict=True):
        assert set(written[line.strip()]) == {text}


@pytest.mark.usefixtures("short_translations")
def test_evaluate_scores_the_validation_text_as_training_does(folder, written):
    source, target, scores = folder / "lines.en", folder / "lines.de", folder / "scores.json"
    texts = {"validation_source": source, "validation_target": target}
    run = folder / "run"
    words = [*flags(folder, run, average_checkpoints=1, **texts)]
    assert main(["train", *words]) == 0
    assert [written[line.strip()][-1] for line in LINES] == translate(run, folder)
    words = ["--source", str(source), "--target", str(target), "--metric", "loss"]
    words += ["--json", str(scores), "--overwrite", "--bootstrap_samples", "2"]
    # Scores of the final model, and of validations before.
    for beams, at_step in (([], 6), (["--num_beams", "1"], 4)):
        model = run if at_step == 6 else run / "best-4"
        assert main(["evaluate", str(model), *words, *beams]) == 0
        report = json.loads(scores.read_text())
        for line in (run / "metrics.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if entry["step"] == at_step and "bleu" in entry:
                logged = entry  # the last one
        for metric in ("bleu", "chrf"):
            score = report["scores"][metric]["score"]
            assert score == pytest.approx(logged[metric])
        loss = pytest.approx(logged["validation_loss"], rel=1e-4)
        assert report["metrics"]["loss"] == loss


@pytest.mark.usefixtures("short_translations")
def test_distill_translates_as_the_teacher_does(folder, written, monkeypatch):
    monkeypatch.setattr(teacher_module, "check_direction", lambda *_: None)
    texts = {"train_source": folder / "many.en", "train_target": folder / "many.de"}
    texts |= {"test_source": folder / "lines.en", "test_target": folder / "lines.de"}
    student, options = folder / "student", {"teacher": folder / "model", **NO_LOSSES}
    words = distillation_flags(folder, student, **texts, **options)
    assert main(["distill", *words]) == 0
    teachers = translate(folder / "model", folder, "--num_beams", "1")
    students = []
    for beams in ("1", "4"):
        students.append(translate(student, folder, "--num_beams", beams))
    for line, teacher, *others in zip(LINES, teachers, *students, strict=True):
        assert {teacher, others[1]} <= {*written[line.strip()]} <= {teacher, *others}


def test_adapt_translates_as_translate_does(folder, written, monkeypatch):
    split = ([], test_sets.TestSet(LINES[:1], LINES[:1]))
    monkeypatch.setattr(adaptation, "split_memory", lambda *_: split)
    general = ([], test_sets.TestSet(LINES, LINES))
    monkeypatch.setattr(adaptation, "split_general_text", lambda *_: general)
    monkeypatch.setattr(adaptation, "train_adapter", lambda model, *_: Path(model))
    words = [word.format(folder) for word in FILES] + ["--output_dir", str(folder / "adapted")]
    assert main(["adapt", str(folder / "model"), "memory.tsv", *words, *BEAMS]) == 0
    expected = translate(folder / "model", folder, *BEAMS)
    for line, text in zip(LINES, expected, strict=True):
        assert {*written[line.strip()]} == {text}


@pytest.mark.parametrize("name", DIFFER)
def test_help_says_how_a_command_differs(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert DIFFER[name] in " ".join(capsys.readouterr().out.split())


def test_explain_explains_what_translate_writes(folder, tmp_path, capsys):
    """Compare with `translate` without `protect`."""
    words = [str(folder / "model"), LINES[0], "--output", str(tmp_path / "page.html")]
    assert main(["explain", *words, *BEAMS]) == 0
    explained = capsys.readouterr().out.split("\nThe page is")[0].strip()
    (expected, *_) = translate(folder / "model", folder, "--no_protect", *BEAMS)
    assert explained == expected
