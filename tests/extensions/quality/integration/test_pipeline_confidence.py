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
from vanilla_transformer.decoding.protection.stand_ins import StandIns
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.languages import NO_DIRECTION
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

TEXTS = [*TINY_SENTENCES, "Two dogs\n\nrun. Across 1999 grasses.", "", " \n"]


def translator(tokenizer, **options):
    return TranslationPipeline(calibrated_model(), tokenizer, compile=False, **options)


OPTIONS = [{"num_beams": 1}, {"num_beams": 2, "num_return_sequences": 2}]


def as_row(answers):
    """Return the answers to a text as a list."""
    return answers if isinstance(answers, list) else [answers]


@pytest.mark.parametrize("options", OPTIONS)
def test_pipeline_returns_confidence_and_warnings(tiny_tokenizer, options):
    translate = translator(tiny_tokenizer)
    both = {"return_confidence": True, "return_warnings": True}
    details = {"return_tokens": True, "return_alignments": True}
    answered = translate(TEXTS, protect=False, **both, **options)
    scored = translate(TEXTS, protect=False, **details, **options)
    warned, confidences = set(), set()
    for text, answers, others in zip(TEXTS, answered, scored, strict=True):
        text = text.strip()
        for answer, other in zip(as_row(answers), as_row(others), strict=True):
            assert [*answer] == ["translation_text", "confidence", "warnings"]
            translation = answer["translation_text"]
            values = [token["log_probability"] for token in other["tokens"]]
            features = measure_features(text, translation, values, other["alignment"])
            assert answer["confidence"] == close_to(CALIBRATION.predict(features))
            assert answer["warnings"] == find_warnings(text, translation, LIMITS)
            warned |= {*answer["warnings"]}
            confidences.add(answer["confidence"])
    assert {"length", "numbers"} <= warned
    assert len(confidences) > 3
    assert answered[-1] == answered[-2]
    assert scored[-1] == scored[-2]


def test_pipeline_needs_a_calibration_and_names_damaged_limits(tiny_tokenizer):
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)
    message = "A model must be calibrated to return confidence. `vanilla-transformer cali"
    with pytest.raises(ValueError, match=message):
        translate("A man.", return_confidence=True)
    (answer,) = translate("A man.", return_warnings=True, num_beams=1)
    translation = answer["translation_text"]
    assert answer["warnings"] == find_warnings("A man.", translation, WarningLimits())
    translate.model.config.warning_limits = {"shortest": "a"}
    message = "`warning_limits` in the configuration is damaged. `vanilla-transformer cal"
    with pytest.raises(ValueError, match=message):
        translate("A man.", return_warnings=True, num_beams=1)


def test_translate_prints_confidence_as_json(tiny_tokenizer, tmp_path, capsys):
    model = calibrated_model()
    folder = str(save_model_folder(model, tiny_tokenizer, tmp_path / "model"))
    flags = ["--num_beams", "1", "--no_protect", "--json"]
    assert main(["translate", folder, "A man in 1999.", *flags]) == 0
    (translation,) = json.loads(capsys.readouterr().out)["translations"]
    assert 0 < translation["confidence"] < 1
    assert "numbers" in translation["warnings"]


def write_pairs(folder, count, targets=None):
    sources = [f"{TINY_SENTENCES[number % 2]} {number}" for number in range(count)]
    targets = [f"{source} ja\n" for source in sources[:targets]]
    (folder / "en").write_text("\n".join([*sources, ""]))
    (folder / "de").write_text("".join(targets))
    return ["--source", str(folder / "en"), "--target", str(folder / "de")]


def test_calibrate_stores_the_calibration(tiny_tokenizer, tmp_path, capsys):
    model = tiny_model()
    model.config.alignment_heads, model.generation_config.num_beams = [[0, 1]], 2
    folder = save_model_folder(model, tiny_tokenizer, tmp_path / "model")
    assert main(["calibrate", str(folder), *write_pairs(tmp_path, 100)]) == 0
    printed = capsys.readouterr().out
    assert "mean_log_probability: weight " in printed
    assert "length ratio: 1.0" in printed
    assert "Spearman's correlation " in printed
    assert "has `confidence`, `warning_limits` and `stand_ins`" in printed
    assert "stand-ins for text to keep: none" in printed
    config = VanillaTransformerConfig.from_pretrained(folder)
    assert Calibration.from_config(config).needs_alignments
    assert config.alignment_heads == [[0, 1]]
    assert WarningLimits.from_config(config).scripts == ["LATIN"]
    assert StandIns.from_config(config, NO_DIRECTION) == StandIns(quotation_marks=())
    assert main(["translate", str(folder), "A man.", "--json"]) == 0
    assert '"confidence": 0.' in capsys.readouterr().out


def test_calibrate_checks_its_input(tiny_tokenizer, tmp_path, capsys, monkeypatch):
    folder = str(save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "model"))

    def error(*arguments):
        assert main(["calibrate", *arguments]) == 2
        return capsys.readouterr().err

    message = "There must be 100 sentences or more, such as the validation text, to calibrate"
    few = write_pairs(tmp_path, 99)
    assert f"{message} a model, got 99." in error(folder, *few)
    uneven = write_pairs(tmp_path, 100, 99)
    assert "must have the same number of lines" in error(folder, *uneven)
    files = write_pairs(tmp_path, 100)
    message = "The model must be a folder, whose config.json can be changed"
    assert message in error("a/b", *files)
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder)
    message = "The model's folder must be writable, to store"
    assert message in error(folder, *files)
