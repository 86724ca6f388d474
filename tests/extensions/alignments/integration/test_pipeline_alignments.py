"""Alignments in the answers of the pipeline and on the command line."""

import json

import pytest

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.unit_links import moses_pairs
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.text.units import split_units

TEXTS = ["A man is sleeping.", "  Two dogs\n\nrun. Across the grass. ", "A", "", " \n"]


def aligned_model(**changes):
    model = tiny_model(**changes)
    model.config.alignment_heads = [[0, 1]]
    return model


def translator(tokenizer, **options):
    return TranslationPipeline(aligned_model(), tokenizer, compile=False, **options)


def pieces(text, spans):
    return [text[start:end] for start, end in spans]


OPTIONS = [{"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}]


def as_row(answers):
    """Return the answers to a text as a list."""
    return answers if isinstance(answers, list) else [answers]


@pytest.mark.parametrize("options", OPTIONS)
def test_pipeline_links_units_of_text_and_translation(tiny_tokenizer, options):
    translate = translator(tiny_tokenizer)
    plain = translate(TEXTS, **options)
    aligned = translate(TEXTS, return_alignments=True, **options)
    count = 0
    for source, texts, answers in zip(TEXTS, plain, aligned, strict=True):
        source_units = pieces(source, split_units(source))
        for text, answer in zip(as_row(texts), as_row(answers), strict=True):
            target = answer["translation_text"]
            assert text == {"translation_text": target}
            units = pieces(target, split_units(target))
            for start, end, target_start, target_end, weight in answer["alignment"]:
                assert source[start:end] in source_units
                assert target[target_start:target_end] in units
                assert 0.2 <= weight <= 1.0 + 1e-5
                count += 1
    assert count > 10


def test_pipeline_shifts_links_of_segments(tiny_tokenizer):
    translate = translator(tiny_tokenizer, return_alignments=True, num_beams=1)
    texts = ["Two dogs.", "Across the grass.", "\n Two dogs.\n\n Across the grass.\n"]
    first, second, both = translate(texts)
    shift = len("\n Two dogs.\n\n ")
    target_shift = len(first["translation_text"] + "\n\n ")
    expected = [link.shift(2, 0) for link in first["alignment"]]
    expected += [link.shift(shift, target_shift) for link in second["alignment"]]
    spans = [link[:4] for link in expected]
    assert [link[:4] for link in both["alignment"]] == spans
    assert expected


def test_pipeline_names_how_to_get_alignment_heads(tiny_tokenizer):
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)
    message = "configuration must have `alignment_heads`, got none. `vanilla-transformer"
    with pytest.raises(ValueError, match=message):
        translate("A", return_alignments=True)


def test_translate_prints_pairs_of_words(tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(aligned_model(), tiny_tokenizer, tmp_path / "model"))
    sentences = ["A man is sleeping.", "Two dogs run across the green grass."]
    command = ["translate", folder, *sentences, "--num_beams", "1"]
    assert main([*command, "--alignments"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main([*command, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, row in zip(lines, rows, strict=True):
        (translation,) = row["translations"]
        text = translation["text"]
        pairs = moses_pairs(row["source"], text, translation["alignment"])
        assert pairs
        assert line == f"{text} ||| {pairs}"
