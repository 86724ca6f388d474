"""Confidence and warnings in the answers of the pipeline and on the command line."""

import json
import os

import pytest

from tests.closeness import close_to
from tests.model_variants import CALIBRATION, LIMITS, calibrated_model
from tests.tiny import TINY_SENTENCES, tiny_model
from vanilla_transformer import TranslationPipeline, VanillaTransformerConfig
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.confidence import Calibration, measure_features
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

TEXTS = [*TINY_SENTENCES, "Two dogs\n\nrun. Across 1999 grasses.", "", " \n"]


def translator(tokenizer, **options):
    return TranslationPipeline(calibrated_model(), tokenizer, compile=False, **options)


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 2, "num_return_sequences": 2}])
def test_pipeline_returns_confidence_and_warnings(tiny_tokenizer, options):
    translate = translator(tiny_tokenizer)
    both, options = (
        {"return_confidence": True, "return_warnings": True},
        {"protect": False, **options},
    )
    found = translate(TEXTS, **both, **options)
    scored = translate(TEXTS, return_tokens=True, return_alignments=True, **options)
    warned, found_values = set(), set()
    for text, answers, others in zip(TEXTS, found, scored, strict=True):
        answers, others = (each if isinstance(each, list) else [each] for each in (answers, others))
        for answer, other in zip(answers, others, strict=True):
            assert [*answer] == ["translation_text", "confidence", "warnings"]
            values = [token["log_probability"] for token in other["tokens"]]
            features = measure_features(
                text.strip(), answer["translation_text"], values, other["alignment"]
            )
            assert answer["confidence"] == close_to(CALIBRATION.predict(features))
            assert answer["warnings"] == find_warnings(
                text.strip(), answer["translation_text"], LIMITS
            )
            warned |= {*answer["warnings"]}
            found_values.add(answer["confidence"])
    assert {"length", "numbers"} <= warned and len(found_values) > 3
    assert found[-1] == found[-2] and scored[-1] == scored[-2]


def test_pipeline_needs_a_calibration_for_confidence_and_names_damaged_limits(tiny_tokenizer):
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)
    with pytest.raises(
        ValueError,
        match="A model must be calibrated to return confidence. `vanilla-transformer cali",
    ):
        translate("A man.", return_confidence=True)
    (answer,) = translate("A man.", return_warnings=True, num_beams=1)
    assert answer["warnings"] == find_warnings(
        "A man.", answer["translation_text"], WarningLimits()
    )
    translate.model.config.warning_limits = {"shortest": "a"}
    with pytest.raises(
        ValueError,
        match="`warning_limits` in the configuration is damaged. `vanilla-transformer cal",
    ):
        translate("A man.", return_warnings=True, num_beams=1)


def test_translate_prints_confidence_and_warnings_as_json(tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(calibrated_model(), tiny_tokenizer, tmp_path / "model"))
    assert (
        main(["translate", folder, "A man in 1999.", "--num_beams", "1", "--no_protect", "--json"])
        == 0
    )
    (translation,) = json.loads(capsys.readouterr().out)["translations"]
    assert 0 < translation["confidence"] < 1 and "numbers" in translation["warnings"]


def write_pairs(folder, count, targets=None):
    sources = [f"{TINY_SENTENCES[number % 2]} {number}" for number in range(count)]
    (folder / "en").write_text("".join(f"{each}\n" for each in sources))
    (folder / "de").write_text("".join(f"{each} ja\n" for each in sources[:targets]))
    return ["--source", str(folder / "en"), "--target", str(folder / "de")]


def test_calibrate_stores_the_calibration(tiny_tokenizer, tmp_path, capsys):
    model = tiny_model()
    model.config.alignment_heads, model.generation_config.num_beams = [[0, 1]], 2
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    assert main(["calibrate", str(folder), *write_pairs(tmp_path, 100)]) == 0
    printed = capsys.readouterr().out
    assert "mean_log_probability: weight " in printed and "length ratio: 1.0" in printed
    assert (
        "Spearman's correlation " in printed and "has `confidence` and `warning_limits`" in printed
    )
    config = VanillaTransformerConfig.from_pretrained(folder)
    assert Calibration.from_config(config).needs_alignments and config.alignment_heads == [[0, 1]]
    assert WarningLimits.from_config(config).scripts == ["LATIN"]
    assert main(["translate", str(folder), "A man.", "--json"]) == 0
    assert '"confidence": 0.' in capsys.readouterr().out


def test_calibrate_checks_its_input(tiny_tokenizer, tmp_path, capsys, monkeypatch):
    folder = str(save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "model"))

    def error(*arguments):
        assert main(["calibrate", *arguments]) == 2
        return capsys.readouterr().err

    assert (
        "There must be 100 sentences or more, such as the validation text, to calibrate a model, "
        "got 99." in error(folder, *write_pairs(tmp_path, 99))
    )
    assert "must have the same number of lines" in error(folder, *write_pairs(tmp_path, 100, 99))
    assert "The model must be a folder, whose config.json can be changed" in error(
        "a/b", *write_pairs(tmp_path, 100)
    )
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    assert "The model's folder must be writable, to store" in error(
        folder, *write_pairs(tmp_path, 100)
    )
