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


@pytest.mark.parametrize("options", [{"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}])
def test_pipeline_links_units_of_the_text_to_units_of_its_translation(tiny_tokenizer, options):
    translate = translator(tiny_tokenizer)
    plain, aligned = (
        translate(TEXTS, **options),
        translate(TEXTS, return_alignments=True, **options),
    )
    found = 0
    for source, texts, answers in zip(TEXTS, plain, aligned, strict=True):
        texts, answers = (each if isinstance(each, list) else [each] for each in (texts, answers))
        assert texts == [{"translation_text": each["translation_text"]} for each in answers]
        for answer in answers:
            target = answer["translation_text"]
            units = pieces(source, split_units(source)), pieces(target, split_units(target))
            for start, end, target_start, target_end, weight in answer["alignment"]:
                assert source[start:end] in units[0] and target[target_start:target_end] in units[1]
                assert 0.2 <= weight <= 1.0 + 1e-5
                found += 1
    assert found > 10


def test_pipeline_shifts_links_of_segments(tiny_tokenizer):
    translate = translator(tiny_tokenizer, return_alignments=True, num_beams=1)
    first, second, both = translate(
        ["Two dogs.", "Across the grass.", "\n Two dogs.\n\n Across the grass.\n"]
    )
    shift, target_shift = len("\n Two dogs.\n\n "), len(first["translation_text"] + "\n\n ")
    expected = [link.shift(2, 0) for link in first["alignment"]]
    expected += [link.shift(shift, target_shift) for link in second["alignment"]]
    assert [link[:4] for link in both["alignment"]] == [link[:4] for link in expected]
    assert expected


def test_pipeline_names_how_to_get_alignment_heads(tiny_tokenizer):
    with pytest.raises(
        ValueError,
        match="configuration must have `alignment_heads`, got none. `vanilla-transformer",
    ):
        TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)(
            "A", return_alignments=True
        )


def test_translate_prints_pairs_of_words(tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(aligned_model(), tiny_tokenizer, tmp_path / "model"))
    sentences = ["A man is sleeping.", "Two dogs run across the green grass."]
    assert main(["translate", folder, *sentences, "--num_beams", "1", "--alignments"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["translate", folder, *sentences, "--num_beams", "1", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for line, row in zip(lines, rows, strict=True):
        (translation,) = row["translations"]
        pairs = moses_pairs(row["source"], translation["text"], translation["alignment"])
        assert line == f"{translation['text']} ||| {pairs}" and pairs
