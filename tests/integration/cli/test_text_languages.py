"""`calibrate`, `tune-reranking` and `check-model` translate in the direction of their flags."""

import copy

import pytest

from tests.tiny import TINY_SENTENCES, tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing import checks
from vanilla_transformer.text.languages import Direction, add_language_tags

PAIRS = [Direction("en", "de"), Direction("de", "en"), Direction("en", "fr")]


@pytest.fixture
def arguments(tiny_tokenizer, tmp_path):
    """Return the beginning of each command, with a model of several languages and a text of 100
    pairs.
    """
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_language_tags(tokenizer, PAIRS)
    folder = save_model_folder(tiny_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "model")
    text = tmp_path / "text"
    text.write_text("".join(f"{TINY_SENTENCES[number % 2]} {number}\n" for number in range(100)))
    files = ["--source", str(text), "--target", str(text)]
    return {
        "calibrate": ["calibrate", str(folder), *files],
        "tune-reranking": [
            "tune-reranking",
            str(folder),
            *files,
            "--rerank_reverse",
            str(folder),
            "--num_beams",
            "2",
        ],
        "check-model": ["check-model", str(folder), *files, "--max_pairs", "2"],
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
    monkeypatch.setattr(
        checks, "check_folder", lambda *_: [checks.CheckResult("all", True, "")]
    )  # before the text
    assert main([*arguments[command], "--source_language", "en", "--target_language", "de"]) == 0
    assert set(asked) == {("en", "de")}
    assert main(arguments[command]) == 2
    assert "The target language must be one of de, en, fr; got none." in capsys.readouterr().err
    assert main([*arguments[command], "--target_language", "it"]) == 2
    assert "The target language must be one of de, en, fr; got 'it'." in capsys.readouterr().err
