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

MODELS = {"a": {}, "b": {"d_model": 24, "decoder_layers": 2}}
MODELS["c"] = {"normalize_before": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models of different sizes with one vocabulary, in folders."""
    folders_of_models = {}
    for seed, (name, sizes) in enumerate(MODELS.items()):
        folders_of_models[name] = str(tmp_path_factory.mktemp(name))
        tiny_model(seed, **sizes).save_pretrained(folders_of_models[name])
        tiny_tokenizer().save_pretrained(folders_of_models[name])
    return folders_of_models


def load(folders, *others, **options):
    ensemble = [folders[name] for name in others]
    return load_pipeline(folders["a"], device="cpu", ensemble=ensemble, **options)


def models_of_folders():
    return [tiny_model(seed, **sizes) for seed, sizes in enumerate(MODELS.values())]


def answers_of_engine(weights, **options):
    """Return the texts and scores that an engine of the same models finds."""
    tokenizer = tiny_tokenizer()
    engine = Engine(Ensemble(models_of_folders(), weights), compile=False, **options)
    sources = encode_sentences(tokenizer, TINY_SENTENCES)
    best = [hypotheses[0] for hypotheses in engine.decode(sources)]
    tokens = [hypothesis.tokens for hypothesis in best]
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return [text.strip() for text in texts], [hypothesis.score for hypothesis in best]


@pytest.fixture
def flags(folders):
    models = ["--ensemble", folders["b"], folders["c"]]
    return [*models, "--ensemble_weights", "0.2", "0.5", "0.3"]


@pytest.mark.parametrize("weights", [None, [0.2, 0.5, 0.3]])
def test_pipeline_decodes_with_an_ensemble(folders, weights):
    translate = load(folders, "b", "c", ensemble_weights=weights)
    answers = translate(TINY_SENTENCES, num_beams=3, return_scores=True)
    texts, scores = answers_of_engine(weights, num_beams=3)
    assert [answer["translation_text"] for answer in answers] == texts
    assert [answer["score"] for answer in answers] == close_to(scores)
    plain = translate(TINY_SENTENCES, num_beams=3)
    assert [answer["translation_text"] for answer in plain] == texts


def test_commands_decode_with_an_ensemble(folders, flags, tmp_path, capsys):
    flags = [*flags, "--num_beams", "3"]
    texts, _ = answers_of_engine([0.2, 0.5, 0.3], num_beams=3)
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("\n".join(TINY_SENTENCES) + "\n")
    words = ["--input", str(source), "--quiet"]
    assert main(["translate", folders["a"], *words, *flags]) == 0
    assert capsys.readouterr().out.splitlines() == texts
    words = ["--source", str(source), "--target", str(source)]
    words += ["--output_file", str(target), "--bootstrap_samples", "2"]
    assert main(["evaluate", folders["a"], *words, *flags]) == 0
    assert target.read_text().splitlines() == texts


def test_score_command_averages_probabilities(folders, flags, tmp_path, capsys):
    path = tmp_path / "text"
    path.write_text("\n".join(TINY_SENTENCES) + "\n")
    files = ["--source", str(path), "--target", str(path)]
    assert main(["score", folders["a"], *files, *flags]) == 0
    scores = [float(line) for line in capsys.readouterr().out.splitlines()]
    ids = encode_sentences(tiny_tokenizer(), TINY_SENTENCES)
    expected = score_tokens(Ensemble(models_of_folders(), [0.2, 0.5, 0.3]), ids, ids)
    assert scores == close_to([sum(row) for row in expected])


@pytest.fixture(scope="module")
def others(folders, tmp_path_factory):
    """Models that are no ensemble with the others."""
    folders_of_others = dict(folders)
    for name in ("smaller", "causal", "renumbered"):
        folders_of_others[name] = str(tmp_path_factory.mktemp(name))
    tiny_model(vocab_size=290).save_pretrained(folders_of_others["smaller"])
    tiny_tokenizer(vocab_size=290).save_pretrained(folders_of_others["smaller"])
    tiny_causal_lm().save_pretrained(folders_of_others["causal"])
    tiny_model().save_pretrained(folders_of_others["renumbered"])
    tiny_tokenizer().save_pretrained(folders_of_others["renumbered"])
    path = Path(folders_of_others["renumbered"]) / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(content))
    return folders_of_others


ONE_VOCABULARY = "must have one vocabulary, but"
SIZES = f"{ONE_VOCABULARY} the first one has 300 entries and .* has 290"
NUMBERS = rf"{ONE_VOCABULARY} .* is token \d+ in the first one and token \d+ in"
WEIGHTS = "`ensemble_weights` must be 2 positive numbers, one for each model"
REFUSED = [
    ("--ensemble smaller", SIZES),
    ("--ensemble renumbered", NUMBERS),
    ("--ensemble causal", "A model with an encoder and a decoder translates, but"),
    ("--ensemble nowhere", "There is no model folder nowhere"),
    ("--ensemble b --ensemble_weights 1", WEIGHTS),
    ("--ensemble b --ensemble_weights 1 -1", WEIGHTS),
    ("--ensemble_weights 1 2", "`ensemble_weights` needs `ensemble`"),
]


@pytest.mark.parametrize(("flags", "words"), REFUSED)
def test_translate_refuses_models_that_are_no_ensemble(flags, words, others, capsys):
    command = ["translate", others["a"], "A man.", "--quiet"]
    command += [others.get(word, word) for word in flags.split()]
    capsys.readouterr()  # what saving the models printed
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(words, line)
