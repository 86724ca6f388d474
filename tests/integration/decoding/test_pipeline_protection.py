"""URLs, placeholders and long numbers survive a real model that never copies: pipeline and command
line.
"""

import copy
import json

import pytest

from tests.sweeps import rare
from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.protection.icu_messages import parse_message
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.loading.model_folders import save_model_folder

KEPT = ["http://a.de/x", "me@a.de", "{n}", "%s", "12,345.6", "2026-11-25", "🙂"]
TEXT = "Dogs " + " run ".join(KEPT) + " across."
PLAIN = ["A man is sleeping.", "Two dogs, 2 men.", ""]


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    options = {"compile": False, "max_new_tokens": 68}
    return TranslationPipeline(tiny_model(), tiny_tokenizer, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer):
    path = tmp_path_factory.mktemp("models") / "tiny"
    return str(save_model_folder(tiny_model(), tiny_tokenizer, path))


def has_all(text):
    return all(kept in text for kept in KEPT)


def texts_of(answers):
    answers = answers if isinstance(answers, list) else [answers]
    return [answer["translation_text"] for answer in answers]


@pytest.mark.parametrize(
    "options",
    [
        rare({}),
        {"num_beams": 3, "num_return_sequences": 2, "return_scores": True},
        rare({"do_sample": True, "num_beams": 1, "seed": 3}),
        {"mbr": "chrf", "mbr_samples": 3, "seed": 3},
        rare({"repetition_penalty": 1.2}),
        rare({"return_tokens": True, "return_warnings": True}),
        {"glossary": {"Dogs": "Hunde"}},
        rare({"split_sentences": True}),
    ],
    ids=str,
)
def test_pipeline_protects_texts_and_changes_no_others(translate, options):
    assert translate(PLAIN, **options) == translate(PLAIN, protect=False, **options)
    (protected, plain) = translate([TEXT, PLAIN[0]], **options)
    assert all(has_all(text) for text in texts_of(protected))
    (alone,) = translate(PLAIN[:1], **options)
    assert "seed" in options or texts_of(plain) == texts_of(alone)
    (lost,) = translate([TEXT], protect=False, **options)
    assert not has_all(texts_of(lost)[0])


def test_pipeline_protects_texts_of_a_model_without_an_engine(tiny_tokenizer):
    model = tiny_long_model(layer_types=["transfo_xl_attention"])
    translate = TranslationPipeline(model, tiny_tokenizer)
    assert has_all(translate(TEXT)[0]["translation_text"])


def test_translate_protects_unless_a_flag_turns_it_off(folder, capsys):
    assert main(["translate", folder, TEXT, "--quiet"]) == 0
    protected = capsys.readouterr().out
    assert main(["translate", folder, TEXT, "--no_protect", "--json", "--quiet"]) == 0
    (lost,) = json.loads(capsys.readouterr().out)["translations"]
    assert has_all(protected) and not has_all(lost["text"])


@pytest.mark.parametrize("options", [{}, {"split_sentences": True}])
def test_pipeline_translates_branches_of_an_icu_message(translate, options):
    text = "Dogs {n, plural,\n one {# man. A man.} other {# {x} men.}} run."
    (answer,) = translate(text, **options)
    syntax = parse_message(answer["translation_text"]).syntax[0][::2]
    assert syntax == parse_message(text).syntax[0][::2]


MASKS = [{"protect": True}, {"protect": False}, {"target_prefix": ""}]


@pytest.mark.parametrize("options", MASKS)
def test_pipeline_shows_masks_of_the_source_alone(options, tiny_tokenizer, monkeypatch):
    """Show a mask only if the source has it."""
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_tokens(["<ph0>"])
    translate = TranslationPipeline(tiny_model(vocab_size=len(tokenizer)), tokenizer)
    translation = Translation("Zwei <ph0> Hunde")

    def search(sentences, options, report):
        return [[translation] for _ in sentences]

    monkeypatch.setattr(translate, "search", search)
    assert texts_of(translate("Two dogs", **options)) == ["Zwei Hunde"]
    assert texts_of(translate("Two <ph0> dogs", **options)) == ["Zwei <ph0> Hunde"]
