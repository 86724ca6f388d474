"""`calibrate`, `tune-reranking` and `check-model` translate in the direction of their flags."""

import copy

import pytest

from tests.tiny import TINY_SENTENCES, tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.extensions.quality import calibration
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks
from vanilla_transformer.text.languages import Direction, add_language_tags

PAIRS = [Direction("en", "de"), Direction("de", "en"), Direction("en", "fr")]


@pytest.fixture
def arguments(tiny_tokenizer, tmp_path, monkeypatch):
    """Return the beginning of each command, with a model of several languages and a text of 20
    pairs.
    """
    monkeypatch.setattr(calibration, "LEAST_SENTENCES", 20)
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, PAIRS)
    model = tiny_model(vocab_size=len(tokenizer))
    folder = str(save_model_folder(model, tokenizer, tmp_path / "model"))
    text = tmp_path / "text"
    one, two, *_ = TINY_SENTENCES
    lines = [f"{one} {number}\n{two} {number + 1}\n" for number in range(0, 20, 2)]
    text.write_text("".join(lines))
    files = [folder, "--source", str(text), "--target", str(text)]
    reranking = ["--rerank_reverse", folder, "--num_beams", "2"]
    return {
        "calibrate": ["calibrate", *files],
        "tune-reranking": ["tune-reranking", *files, *reranking],
        "check-model": ["check-model", *files, "--max_pairs", "2"],
    }


@pytest.mark.parametrize("command", ["calibrate", "tune-reranking", "check-model"])
def test_commands_on_text_take_languages(command, arguments, monkeypatch, capsys):
    asked = []
    translate = TranslationPipeline.__call__

    def record(pipeline, inputs, **options):
        resolved = pipeline.default_options | options
        asked.append((resolved.get("src_lang"), resolved.get("tgt_lang")))
        return translate(pipeline, inputs, **options)

    monkeypatch.setattr(TranslationPipeline, "__call__", record)
    # Checks come before the text.
    passed = [checks.CheckResult("all", True, "")]
    monkeypatch.setattr(checks, "check_folder", lambda *_: passed)
    languages = ["--source_language", "en", "--target_language", "de"]
    assert main([*arguments[command], *languages]) == 0
    assert set(asked) == {("en", "de")}
    assert main(arguments[command]) == 2
    message = "The target language must be one of de, en, fr; got"
    assert f"{message} none." in capsys.readouterr().err
    assert main([*arguments[command], "--target_language", "it"]) == 2
    assert f"{message} 'it'." in capsys.readouterr().err
