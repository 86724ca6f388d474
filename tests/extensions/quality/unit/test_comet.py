"""COMET: the scores that unbabel-comet 2.2.7 returned for models of a formula, and the formulas of
its papers.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import XLMRobertaConfig, XLMRobertaModel

from tests.comet_files import ENCODER, REGRESSION, SAMPLES, UNIFIED, VARIANTS, formula, write_comet
from vanilla_transformer.decoding.pretrained import hash_model, load_tokenizer
from vanilla_transformer.extensions.cleaning import low_scores
from vanilla_transformer.extensions.quality import comet
from vanilla_transformer.extensions.quality.comet import Comet, sparsemax
from vanilla_transformer.text.languages import NO_DIRECTION

EXPECTED = json.loads((Path(__file__).parent / "comet_2_2_7.json").read_text())
SOURCES = [sample["src"] for sample in SAMPLES]
TRANSLATIONS = [sample["mt"] for sample in SAMPLES]
REFERENCES = [sample["ref"] for sample in SAMPLES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_comet(tmp_path_factory.mktemp("comet") / "model", REGRESSION)


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_equal_the_ones_of_comet(name, tmp_path):
    model = Comet.load(write_comet(tmp_path / "model", VARIANTS[name]))
    scores = model.score(SOURCES, TRANSLATIONS, REFERENCES)
    assert scores.tolist() == pytest.approx(EXPECTED[name], abs=1e-5)
    samples = zip(SOURCES, TRANSLATIONS, REFERENCES, strict=True)
    for (source, translation, reference), expected in zip(samples, EXPECTED[name], strict=True):
        alone = model.score([source], [translation], [reference])
        assert alone.item() == pytest.approx(expected, abs=1e-5)


def test_variants_have_different_scores():
    others = [scores for name, scores in EXPECTED.items() if name != "unified_words"]
    first = sorted(scores[0] for scores in others)
    for low, high in pairwise(first):
        assert high - low > 1e-3


def textbook_vector(text, options, name):
    """Return the mean over tokens of γ Σ_l sparsemax(w)_l h_l, of one text."""
    config = XLMRobertaConfig(**ENCODER)
    encoder = XLMRobertaModel(config, add_pooling_layer=False).eval()
    weights = {}
    for key, value in encoder.state_dict().items():
        weights[key] = formula(f"encoder.model.{key}", value.shape)
    encoder.load_state_dict(weights)
    ids = load_tokenizer(name)(text)["input_ids"]
    with torch.no_grad():
        hidden = encoder(torch.tensor([ids]), output_hidden_states=True).hidden_states
    scores = []
    for layer in range(4):
        score = formula(f"layerwise_attention.scalar_parameters.{layer}", (1,))
        scores.append(score.item())
    means = [states[0].mean(dim=0) for states in hidden]
    mean = sum(share * mean for share, mean in zip(project(scores), means, strict=True))
    return formula("layerwise_attention.gamma", (1,)).item() * mean


def project(scores):
    """Return max(z - τ, 0) with the τ at which these numbers have the sum 1, found by bisection."""
    low, high = min(scores) - 1, max(scores)
    for _ in range(80):
        middle = (low + high) / 2
        if sum(max(score - middle, 0) for score in scores) > 1:
            low = middle
        else:
            high = middle
    return [max(score - low, 0) for score in scores]


def test_regression_follows_the_formula(folder):
    texts, encoder = ("A man.", "Ein Mann.", "man"), f"{folder}-encoder"
    vectors = [textbook_vector(text, REGRESSION, encoder) for text in texts]
    source, translation, reference = vectors
    values = [translation, reference]
    values += [translation * reference, abs(translation - reference)]
    values += [translation * source, abs(translation - source)]
    values = torch.cat(values)
    for number, shape in ((0, (12, 96)), (3, (7, 12)), (6, (1, 7))):
        weight = formula(f"estimator.ff.{number}.weight", shape)
        bias = formula(f"estimator.ff.{number}.bias", shape[:1])
        values = weight @ (values if number == 0 else values.tanh()) + bias
    score = Comet.load(folder).score(["A man."], ["Ein Mann."], ["man"])
    assert score == pytest.approx(values.item(), abs=1e-5)


SCORES = [[0.1, 1.4, 0.2, 0.9], [0.0, 0.0, 0.0], [5.0, 1.0], [-0.3]]


@pytest.mark.parametrize("scores", SCORES)
def test_sparsemax_is_the_projection_on_the_simplex(scores):
    shares = sparsemax(torch.tensor(scores)).tolist()
    assert shares == pytest.approx(project(scores), abs=1e-6)


def test_a_long_corpus_is_scored_in_windows(folder):
    model = Comet.load(folder)
    texts = []
    for number in range(300):
        texts.append(f"man {'a' * (number % 9)}{'b' * (number // 9)}")
    scores = model.score(texts, texts[::-1], texts)
    for position in (0, 17, 299):
        text, translation = texts[position], texts[299 - position]
        alone = model.score([text], [translation], [text])
        assert scores[position] == pytest.approx(alone.item(), abs=1e-5)
    assert model.score([], [], []).shape == (0,)


OTHER_OPTIONS = [
    (
        REGRESSION,
        {"class_identifier": "ranking"},
        "`class_identifier` in .* must be regression_metric or unified_me",
    ),
    (
        REGRESSION,
        {"encoder_model": "MiniLM"},
        "`encoder_model` in .* must be 'XLM-RoBERTa', got 'MiniLM'. Score by",
    ),
    (REGRESSION, {"layer": 3}, "`layer` in .* must be 'mix', got 3"),
    (REGRESSION, {"pool": "max"}, "`pool` in .* must be 'avg' or 'cls', got 'max'"),
    (
        REGRESSION,
        {"layer_transformation": "entmax"},
        "must be 'softmax' or 'sparsemax', got 'entmax'",
    ),
    (REGRESSION, {"final_activation": "Relu"}, "must be None or 'Tanh' or 'Sigmoid', got 'Relu'"),
    (
        REGRESSION,
        {"hidden_sizes": "12"},
        "`hidden_sizes` in .* must be a list of positive integers, got '12'",
    ),
    (
        REGRESSION,
        {"hidden_sizes": [12]},
        "The weights of .* do not fit its options: .*estimator.ff.3.weight",
    ),
    (
        REGRESSION,
        {"pretrained_model": None},
        "`pretrained_model` in .* must name a model, got None",
    ),
    (UNIFIED, {"sent_layer": 3}, "`sent_layer` in .* must be 'mix', got 3"),
    (
        UNIFIED,
        {"input_segments": ["mt", "src", "ref"]},
        r"must be \['mt', 'src'\], got \['mt', 'src', 'ref'\]",
    ),
]


@pytest.mark.parametrize(("options", "changes", "message"), OTHER_OPTIONS)
def test_load_refuses_other_options(options, changes, message, tmp_path):
    model = write_comet(tmp_path / "model", options)
    content = torch.load(model / "checkpoints" / "model.ckpt")
    content["hyper_parameters"] |= changes
    torch.save(content, model / "checkpoints" / "model.ckpt")
    (model / "hparams.yaml").write_text(yaml.dump(content["hyper_parameters"]))
    with pytest.raises((ValueError, OSError), match=message):
        Comet.load(model)


def test_options_of_the_checkpoint_come_first(tmp_path):
    model = write_comet(tmp_path / "model", REGRESSION)
    options = "class_identifier: regression_metric\npool: max\n"
    (model / "hparams.yaml").write_text(options)
    scores = Comet.load(model).score(SOURCES, TRANSLATIONS, REFERENCES)
    assert scores.tolist() == pytest.approx(EXPECTED["regression"], abs=1e-5)


def test_load_refuses_incomplete_models(tmp_path):
    model = write_comet(tmp_path / "model", UNIFIED)
    path = model / "checkpoints" / "model.ckpt"
    content = torch.load(path)
    weights = content["state_dict"]
    gamma = weights.pop("layerwise_attention.gamma")

    def refused(saved, message):
        torch.save(saved, path)
        with pytest.raises(ValueError, match=message):
            Comet.load(model).score(["a"], ["b"])

    refused(content, "The weights of .* lack layerwise_attention.gamma. Copy or downl")
    weights["layerwise_attention.gamma"] = gamma * torch.nan
    refused(content, "The scores of .* must be numbers")
    pickled = content | {"state_dict": weights | {"pickled": Path("x")}}
    refused(pickled, r"model.ckpt cannot be read safely")
    refused(weights, "must be a COMET checkpoint with the entry 'state_dict'")
    (tmp_path / "model-encoder" / "config.json").write_text('{"model_type": "bert"}')
    message = "The `pretrained_model` of .* must be an xlm-roberta model, got bert"
    refused(content, message)
    (model / "hparams.yaml").unlink()
    message = r"must have the files hparams.yaml and checkpoints/model.ckpt, not so"
    refused(content, message)


def test_quality_needs_a_model_without_references(folder):
    message = "must be a unified_metric, which needs no references, but .* is a regres"
    with pytest.raises(ValueError, match=message):
        Comet.load(folder, without_references=True)


def test_load_finds_a_model_of_the_hub(folder, monkeypatch):
    asked = []

    def snapshot_download(name, allow_patterns):
        if name == "none/such":
            message = "Cannot find the requested files.\nCheck your connection."
            raise LocalEntryNotFoundError(message)
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(comet, "snapshot_download", snapshot_download)
    assert Comet.load("Unbabel/wmt22-comet-da").name == "Unbabel/wmt22-comet-da"
    patterns = ["hparams.yaml", "checkpoints/model.ckpt"]
    assert asked == [("Unbabel/wmt22-comet-da", patterns)]
    message = r"no folder none/such, and the Hub .*: Cannot find the requested fi"
    with pytest.raises(FileNotFoundError, match=message):
        Comet.load("none/such")


def test_corpus_scores_are_of_quality_or_of_two_models(tmp_path, monkeypatch):
    model = write_comet(tmp_path / "model", UNIFIED)
    pairs = [*zip(SOURCES, TRANSLATIONS, strict=True)]
    scores = low_scores.corpus_scores([str(model)], pairs, NO_DIRECTION)
    assert scores.tolist() == pytest.approx(EXPECTED["unified"], abs=1e-5)
    monkeypatch.setattr(low_scores, "dual_scores", lambda *options: options)
    scores = low_scores.corpus_scores(["a", "b"], pairs, NO_DIRECTION)
    assert scores == ("a", "b", pairs, NO_DIRECTION)


def test_hash_model_knows_the_files_of_comet(folder):
    assert hash_model(folder).keys() == {"hparams.yaml", "model.ckpt"}
