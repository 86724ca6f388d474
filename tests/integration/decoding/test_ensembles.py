"""Ensembles in the pipeline and on the command line, from folders."""

import json
import re
from pathlib import Path

import pytest

from tests.closeness import close_to
from tests.tiny import TINY_SENTENCES, tiny_causal_lm, tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.ensemble import Ensemble
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

MODELS = {"a": {}, "b": {"d_model": 24, "decoder_layers": 2}, "c": {"normalize_before": True}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models of different sizes with one vocabulary, in folders."""
    found = {}
    for seed, (name, sizes) in enumerate(MODELS.items()):
        found[name] = str(tmp_path_factory.mktemp(name))
        tiny_model(seed, **sizes).save_pretrained(found[name])
        tiny_tokenizer().save_pretrained(found[name])
    return found


def load(folders, *others, **options):
    return load_pipeline(
        folders["a"], device="cpu", ensemble=[folders[name] for name in others], **options
    )


def models_of_folders():
    return [tiny_model(seed, **sizes) for seed, sizes in enumerate(MODELS.values())]


def answers_of_engine(weights, **options):
    """Return the texts and scores that an engine of the same models finds."""
    tokenizer = tiny_tokenizer()
    engine = Engine(Ensemble(models_of_folders(), weights), compile=False, **options)
    sources = encode_sentences(tokenizer, TINY_SENTENCES)
    best = [hypotheses[0] for hypotheses in engine.decode(sources)]
    texts = tokenizer.batch_decode([each.tokens for each in best], skip_special_tokens=True)
    return [(text.strip(), each.score) for text, each in zip(texts, best, strict=True)]


@pytest.mark.parametrize("weights", [None, [0.2, 0.5, 0.3]])
def test_pipeline_decodes_with_an_ensemble(folders, weights):
    translate = load(folders, "b", "c", ensemble_weights=weights)
    answers = translate(TINY_SENTENCES, num_beams=3, return_scores=True)
    expected = answers_of_engine(weights, num_beams=3)
    assert [each["translation_text"] for each in answers] == [text for text, _ in expected]
    assert [each["score"] for each in answers] == close_to([score for _, score in expected])
    assert translate(TINY_SENTENCES, num_beams=3) == [
        {"translation_text": text} for text, _ in expected
    ]


def test_commands_decode_with_an_ensemble(folders, tmp_path, capsys):
    flags = [
        "--ensemble",
        folders["b"],
        folders["c"],
        "--ensemble_weights",
        "0.2",
        "0.5",
        "0.3",
        "--num_beams",
        "3",
    ]
    texts = [text for text, _ in answers_of_engine([0.2, 0.5, 0.3], num_beams=3)]
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("\n".join(TINY_SENTENCES) + "\n")
    assert main(["translate", folders["a"], "--input", str(source), "--quiet", *flags]) == 0
    assert capsys.readouterr().out.splitlines() == texts
    files = ["--source", str(source), "--target", str(source), "--output_file", str(target)]
    assert main(["evaluate", folders["a"], *files, "--bootstrap_samples", "2", *flags]) == 0
    assert target.read_text().splitlines() == texts


def test_score_command_averages_probabilities(folders, tmp_path, capsys):
    path = tmp_path / "text"
    path.write_text("\n".join(TINY_SENTENCES) + "\n")
    files = ["--source", str(path), "--target", str(path)]
    flags = ["--ensemble", folders["b"], folders["c"], "--ensemble_weights", "0.2", "0.5", "0.3"]
    assert main(["score", folders["a"], *files, *flags]) == 0
    found = [float(line) for line in capsys.readouterr().out.splitlines()]
    ids = encode_sentences(tiny_tokenizer(), TINY_SENTENCES)
    expected = score_tokens(Ensemble(models_of_folders(), [0.2, 0.5, 0.3]), ids, ids)
    assert found == close_to([sum(row) for row in expected])


@pytest.fixture(scope="module")
def others(folders, tmp_path_factory):
    """Models that are no ensemble with the others."""
    found = folders | {
        name: str(tmp_path_factory.mktemp(name)) for name in ("smaller", "causal", "renumbered")
    }
    tiny_model(vocab_size=290).save_pretrained(found["smaller"])
    tiny_tokenizer(vocab_size=290).save_pretrained(found["smaller"])
    tiny_causal_lm().save_pretrained(found["causal"])
    tiny_model().save_pretrained(found["renumbered"])
    tiny_tokenizer().save_pretrained(found["renumbered"])
    path = Path(found["renumbered"]) / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(content))
    return found


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            "--ensemble smaller",
            "must have one vocabulary, but the first one has 300 entries and .* has 290",
        ),
        (
            "--ensemble renumbered",
            r"must have one vocabulary, but .* is token \d+ in the first one and token \d+ in",
        ),
        ("--ensemble causal", "A model with an encoder and a decoder translates, but"),
        ("--ensemble nowhere", "There is no model folder nowhere"),
        (
            "--ensemble b --ensemble_weights 1",
            "`ensemble_weights` must be 2 positive numbers, one for each model",
        ),
        (
            "--ensemble b --ensemble_weights 1 -1",
            "`ensemble_weights` must be 2 positive numbers, one for each model",
        ),
        ("--ensemble_weights 1 2", "`ensemble_weights` needs `ensemble`"),
    ],
)
def test_translate_refuses_models_that_are_no_ensemble(flags, words, others, capsys):
    command = [
        "translate",
        others["a"],
        "A man.",
        "--quiet",
        *(others.get(word, word) for word in flags.split()),
    ]
    capsys.readouterr()  # what saving the models printed
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line)
