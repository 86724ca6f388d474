"""The flags of a request become arguments of the pipeline."""

import pytest
import torch

from vanilla_transformer.cli import main
from vanilla_transformer.cli.evaluate import EvaluateArguments
from vanilla_transformer.cli.flags import (
    FLAG_NAMES,
    CommandArguments,
    FurtherModelArguments,
    SentenceArguments,
    TranslationArguments,
    parse,
    request_settings,
)
from vanilla_transformer.cli.translate import TranslateArguments
from vanilla_transformer.decoding.options import FLAG, options_of
from vanilla_transformer.extensions.serving.commands import ServeArguments
from vanilla_transformer.machine import cores
from vanilla_transformer.user_input.command_line import CommandLine


def test_request_settings_leave_the_checkpoint_to_decide():
    assert request_settings(TranslationArguments(model="m")) == {"protect": True}
    assert request_settings(TranslationArguments(model="m", protect=False)) == {"protect": False}


def test_flags_of_options_parse():
    words = "--num_beams 3 --mbr bleu --top_p 0.5 --term_mode soft --no_protect"
    words += " --constraint Hund Katze --constraint Maus"
    parsed = parse(TranslateArguments, ["m", *words.split()])
    assert (parsed.num_beams, parsed.mbr) == (3, "bleu")
    assert (parsed.top_p, parsed.term_mode) == (0.5, "soft")
    assert parsed.constraint == ["Hund", "Katze", "Maus"]
    assert (parsed.protect, parsed.do_sample) == (False, False)
    with pytest.raises(ValueError, match="num_beams"):
        parse(TranslateArguments, ["m", "--num_beam", "3"])


def test_request_settings_sample_with_one_beam_unless_another_number_is_given():
    sampling = {"protect": True, "do_sample": True, "num_beams": 1}
    assert request_settings(TranslationArguments(model="m", do_sample=True)) == sampling
    settings = request_settings(TranslationArguments(model="m", do_sample=True, num_beams=2))
    assert settings["num_beams"] == 2


def test_request_settings_have_the_terms_of_a_glossary(tmp_path):
    (tmp_path / "terms.tsv").write_text("man\tMann\n")
    glossary = str(tmp_path / "terms.tsv")
    options = TranslateArguments(model="m", glossary=glossary, term_mode="exact", num_beams=3)
    settings = request_settings(options)
    assert len(settings["glossary"]) == 1 and settings["term_mode"] == "exact"


def test_all_commands_have_the_flags_of_options_except_of_single_sentences():
    declared = {FLAG_NAMES.get(name, name) for name in options_of(FLAG)}
    names = {*TranslationArguments.model_fields}
    names_of_sentences = {*SentenceArguments.model_fields}
    assert declared <= names | names_of_sentences
    assert names & names_of_sentences == {*CommandArguments.model_fields}


@pytest.mark.parametrize(
    ("group", "flag", "values"),
    [
        (ServeArguments, "cors", ["https://a.example", "https://b.example"]),
        (ServeArguments, "model", ["en-de=a", "de-en=b"]),
        (FurtherModelArguments, "ensemble_weights", [0.5, 0.25]),
    ],
)
def test_flags_take_values_together_or_one_by_one(group, flag, values):
    first, second = map(str, values)
    for words in ([f"--{flag}", first, second], [f"--{flag}", first, f"--{flag}={second}"]):
        options = group(**CommandLine({"": group.model_fields}, "usage").read(words))
        assert getattr(options, flag) == values, words


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("translate", ["--input", "a", "--output", "b"]),
        ("score", ["--source", "a", "--target", "a"]),
    ],
)
def test_commands_refuse_processes_of_a_launcher(command, words, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main([command, "nowhere", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "must be started once" in line
    assert "got 2. Use --engine ray for several GPUs or machines." in line


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({"ACCELERATE_MIXED_PRECISION": "no"}, [3]),
        ({"ACCELERATE_MIXED_PRECISION": "no", "WORLD_SIZE": "2"}, []),
        ({}, []),
    ],
    ids=str,
)
def test_train_uses_all_cores_in_one_process(environment, threads, monkeypatch):
    for name in ("ACCELERATE_MIXED_PRECISION", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(cores, "usable_cores", lambda: 3)
    cores.use_all_cores()
    assert used == threads


TEXT = ("--source", "en", "--target", "de")
RUNNING_MODELS = {
    "translate": ("model", "A man."),
    "explain": ("model", "A man.", "--output", "page.html"),
    "compile": ("model",),
    "evaluate": ("model", *TEXT),
    "evaluate-directions": ("model", "--text", "test"),
    "compare-models": ("model", "model", *TEXT),
    "push-to-hub": ("model", "user/name", "--compare_with", "model", *TEXT),
    "adapt": ("model", "memory.tsv", "--output_dir", "out"),
    "score": ("model", *TEXT),
    "calibrate": ("model", *TEXT),
    "tune-reranking": ("model", *TEXT, "--rerank_reverse", "reverse"),
    "choose-alignment-head": ("model", *TEXT),
    "check-model": ("model", *TEXT),
    "serve": ("model", "--api_key_file", "keys"),
    "convert": ("model", "out", "--target_format", "onnx"),
    "back-translate": ("model", "--input", "de", "--output", "out.tsv"),
    "write-alignments": ("model", *TEXT),
    "clean-corpus": ("--train_source", "en", "--train_target", "de", "--output_dir", "out"),
}


@pytest.mark.parametrize("command", RUNNING_MODELS)
def test_commands_with_a_model_have_threads(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cores, "usable_cores", lambda: 4)
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    assert main([command, *RUNNING_MODELS[command], "--threads", "3"]) == 2  # there is no model
    assert used[:1] == [3], capsys.readouterr().err
    assert main([command, *RUNNING_MODELS[command], "--threads", "5"]) == 2
    assert "`threads` must be from 1 to 4" in capsys.readouterr().err


# Flags of other commands and other toolkits.
OTHERS = ["batch_tokens", "min_length", "max_length", "source", "target", "hypotheses", "port"]
OTHERS += ["metric", "recipe", "gpu", "lenpen", "text", "save_steps", "d_model", "vocab", "x", ""]
NEAREST = {
    "translate": {
        "batch": "batch_size",
        "bach_size": "batch_size",
        "beam": "num_beams",
        "beams": "num_beams",
        "beam_size": "num_beams",
        "num-beam": "num_beams",
        "nbest": "n_best",
        "max_tokens": "max_new_tokens",
        "max_new_token": "max_new_tokens",
        "len_penalty": "length_penalty",
        "temp": "temperature",
        "precison": "precision",
        "imput": "input",
        "input_file": "input",
        "ouptut": "output",
        "output_dir": "output",
        "traget_language": "target_language",
        "language_target": "target_language",
        "no_protct": "no_protect",
        "num_threads": "threads",
        "glosary": "glossary",
        **dict.fromkeys(OTHERS),
    },
    "evaluate": {
        "hypothesis": "hypotheses",
        "sources": "source",
        "metrics": "metric",
        "reference": None,
    },
    "serve": {
        "modle": "model",
        "api_key": "api_key_file",
        "max_batch": "max_batch_size",
        "workers": None,
    },
}


HINTS = [(command, name) for command in NEAREST for name in NEAREST[command]]


@pytest.mark.parametrize(("command", "name"), HINTS)
def test_an_unknown_flag_gets_a_hint_at_a_related_one_alone(command, name, capsys):
    nearest = NEAREST[command][name]
    hint = f" Did you mean {nearest!r}?" if nearest else ""
    assert main([command, f"--{name}=1"]) == 2
    expected = f"error: There is no flag {name.replace('-', '_')!r}.{hint}\n"
    assert capsys.readouterr().err == expected


COMMANDS = ["translate", "train", "score", "evaluate", "clean-corpus"]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_takes_no_word_of_one_dash_for_text(command, capsys):
    assert main([command, "M", "-n", "2", "A dog."]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: There is no flag -n.") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["--", "-n"], ["-n"]),
        (["- Yes."], ["- Yes."]),
        (["-5"], ["-5"]),
        (["-No, he said."], ["-No, he said."]),
        (["--length_penalty", "-1.5", "-"], ["-"]),
    ],
)
def test_command_line_takes_text_that_begins_with_a_dash(words, sentences):
    command_line = CommandLine({"": TranslateArguments.model_fields}, "usage")
    read = command_line.read(["m", *words])
    assert read["sentences"] == sentences
    assert read.get("length_penalty", "-1.5") == "-1.5"


@pytest.mark.parametrize(
    ("command", "words", "name"),
    [
        ("translate", "M --input a --input b", "input"),
        ("translate", "M --num_beams=2 --num-beams 3", "num_beams"),
        ("translate", "M a --protect --no_protect", "no_protect"),
        ("train", "small --max_steps 3 --max_steps 3", "max_steps"),
        ("clean-corpus", "--drop empty --drop markup", "drop"),
        ("evaluate", "--target a --source b --source c", "source"),
    ],
)
def test_command_line_refuses_a_repeated_flag(command, words, name, capsys):
    assert main([command, *words.split()]) == 2
    expected = f"error: --{name} must be given once, got it again. Leave one out.\n"
    assert capsys.readouterr().err == expected


def test_command_line_takes_one_word_for_each_repeated_flag():
    words = ["--target", "a", "model", "--target", "b"]
    read = CommandLine({"": EvaluateArguments.model_fields}, "usage").read(words)
    assert read == {"target": ["a", "b"], "model": "model"}


def test_command_line_names_the_flags_of_a_direction(capsys):
    assert main(["translate", "M", "A dog.", "--direction", "en-de"]) == 2
    error = capsys.readouterr().err
    assert "no flag 'direction'" in error
    assert "--source_language en --target_language de" in error
