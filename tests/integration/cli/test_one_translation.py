"""Every command that translates writes the same text for the same text and beams."""

import copy
import json

import pytest
from transformers import pipeline

from tests.tiny import tiny_model, write_tiny_corpus
from tests.tiny_runs import distillation_flags, flags
from vanilla_transformer.cli import COMMANDS, main, train
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.translation_pipeline import TranslationCall
from vanilla_transformer.extensions.distillation import teacher as teacher_module
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
    save_model_folder(tiny_model(vocab_size=len(tokenizer)), tokenizer, folder / "languages")
    write_tiny_corpus(folder)
    for name, count in (("lines", 1), ("many", 20)):
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in LINES * count))
        (folder / f"{name}.de").write_text("".join(f"{target}\n" for _, target in PAIRS * count))
    (folder / "corpus").mkdir()
    for code in ("en", "de"):
        (folder / "corpus" / f"test.{code}").write_text((folder / f"lines.{code}").read_text())
    return folder


@pytest.fixture
def written(monkeypatch):
    """Return the translations that any pipeline gives for each text, without white space around
    both.
    """
    written, answer = {}, TranslationCall.answer

    def record(self, text, *given):
        found = answer(self, text, *given)
        written.setdefault(text.strip(), []).append(found["translation_text"].strip())
        return found

    monkeypatch.setattr(TranslationCall, "answer", record)
    return written


def translate(model, folder, *words):
    """Return what `translate` writes for each line."""
    output = folder / "expected.txt"
    words = [
        "--input",
        str(folder / "lines.en"),
        "--output",
        str(output),
        "--overwrite",
        "--quiet",
        *words,
    ]
    assert main(["translate", str(model), *words]) == 0
    return [line.strip() for line in output.read_text().removesuffix("\n").split("\n")]


def run(*words):
    """Return a row that runs a command on the model."""
    return lambda folder: main([word.format(folder) for word in words])


# Rows that translate `lines.en`; each returns 0 or None.
SAME = {
    "translate": run(
        "translate", "{}/model", "--input", "{}/lines.en", "--output", "{}/json", "--json", *BEAMS
    ),
    "evaluate": run("evaluate", "{}/model", *SOURCES, *TARGETS, "--bootstrap_samples", "2", *BEAMS),
    "evaluate-directions": run("evaluate-directions", "{}/languages", "--text", "{}/lines", *BEAMS),
    "back-translate": run(
        "back-translate",
        "{}/model",
        "--input",
        "{}/lines.en",
        "--output",
        "{}/o.tsv",
        "--keep_warnings",
        *BEAMS,
    ),
    "calibrate": run(
        "calibrate", "{}/model", "--source", "{}/many.en", "--target", "{}/many.de", *BEAMS
    ),
    "check-model": run("check-model", "{}/model", *SOURCES, *TARGETS, *BEAMS),
    "demo": lambda folder: train._print_demo_scores(folder / "model", folder / "corpus") and 0,
    "serve": lambda folder: (
        translate_with(load_pipeline(folder / "model"))(LINES, BEAM_SEARCH) and 0
    ),
    # Doors of Python
    "pipeline": lambda folder: (
        pipeline("translation", model=str(folder / "model"))(LINES, num_beams=2) and 0
    ),
    "load_pipeline": lambda folder: load_pipeline(folder / "model", num_beams=2)(LINES) and 0,
}
OWN_BEAMS = {"demo": []}  # where the checkpoint's are used
MODELS = {
    "evaluate-directions": ("languages", ["--source_language", "en", "--target_language", "de"])
}
# Commands that run a training first, each with its own test below.
TRAIN = {"train", "distill"}
# Commands that differ, and what their help says about it.
DIFFER = {
    "tune-reranking": "`evaluate --no_protect`",
    "explain": "`translate --no_protect`",
    "create-space": "`translate --no_protect`",
}
# Commands that translate no text: they read both sides, compare token ids or write other files.
NONE = {
    "average-checkpoints",
    "score",
    "evaluate-alignments",
    "choose-alignment-head",
    "render-card",
    "push-to-hub",
}
NONE |= {
    "download-data",
    "write-corpus",
    "train-tokenizer",
    "write-alignments",
    "clean-corpus",
    "check-language",
}
NONE |= {"convert", "compile", "compare-runs"}


def test_each_command_is_in_one_table():
    tables = [SAME.keys() & COMMANDS, TRAIN, DIFFER.keys(), NONE]
    assert sum(map(len, tables)) == len(COMMANDS) and set().union(*tables) == COMMANDS.keys()


@pytest.mark.parametrize("name", SAME)
def test_commands_write_the_same_translations(name, folder, written, monkeypatch):
    monkeypatch.setattr(
        checks, "check_folder", lambda *_: [checks.CheckResult("files", True, "all")]
    )
    assert not SAME[name](folder)
    found = {line.strip(): set(written[line.strip()]) for line in LINES}
    model, languages = MODELS.get(name, ("model", []))
    expected = translate(folder / model, folder, *languages, *OWN_BEAMS.get(name, BEAMS))
    assert "https://a.example/x?y=1" in expected[0] and "{name}" in expected[1]
    assert [*found.values()] == [{text} for text in expected]


def test_evaluate_scores_the_validation_text_as_training_does(folder, written):
    texts = {"validation_source": folder / "lines.en", "validation_target": folder / "lines.de"}
    run = folder / "run"
    words = [*flags(folder, run, average_checkpoints=1, **texts)]
    assert main(["train", *words]) == 0
    found = [written[line.strip()][-1] for line in LINES]
    assert found == translate(run, folder)
    for beams, at_step in (
        ([], 6),
        (["--num_beams", "1"], 4),
    ):  # of the final model, and of validations before
        model = run if at_step == 6 else run / "best-4"
        files = [
            "--source",
            str(folder / "lines.en"),
            "--target",
            str(folder / "lines.de"),
            "--metric",
            "loss",
        ]
        words = [
            *files,
            "--json",
            str(folder / "scores.json"),
            "--overwrite",
            "--bootstrap_samples",
            "2",
            *beams,
        ]
        assert main(["evaluate", str(model), *words]) == 0
        report = json.loads((folder / "scores.json").read_text())
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        *_, logged = (entry for entry in lines if entry["step"] == at_step and "bleu" in entry)
        scored = [report["scores"][metric]["score"] for metric in ("bleu", "chrf")]
        assert scored == pytest.approx([logged["bleu"], logged["chrf"]])
        assert report["metrics"]["loss"] == pytest.approx(logged["validation_loss"], rel=1e-4)


def test_distill_translates_as_the_teacher_does(folder, written, monkeypatch):
    monkeypatch.setattr(teacher_module, "check_direction", lambda *_: None)
    texts = {
        "train_source": folder / "many.en",
        "train_target": folder / "many.de",
        "teacher": folder / "model",
    }
    texts |= {"test_source": folder / "lines.en", "test_target": folder / "lines.de"}
    assert (
        main(["distill", *distillation_flags(folder, folder / "student", **texts, **NO_LOSSES)])
        == 0
    )
    teachers = translate(folder / "model", folder, "--num_beams", "1")
    students = [translate(folder / "student", folder, "--num_beams", beams) for beams in ("1", "4")]
    for line, teacher, *others in zip(LINES, teachers, *students, strict=True):
        assert {teacher, others[1]} <= {*written[line.strip()]} <= {teacher, *others}


@pytest.mark.parametrize("name", DIFFER)
def test_help_says_how_a_command_differs(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert DIFFER[name] in " ".join(capsys.readouterr().out.split())


def test_explain_explains_what_translate_writes_without_protect(folder, tmp_path, capsys):
    assert (
        main(
            [
                "explain",
                str(folder / "model"),
                LINES[0],
                "--output",
                str(tmp_path / "page.html"),
                *BEAMS,
            ]
        )
        == 0
    )
    found = capsys.readouterr().out.split("\nThe page is")[0].strip()
    assert found == translate(folder / "model", folder, "--no_protect", *BEAMS)[0]
