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
SOURCES, TRANSLATIONS, REFERENCES = (
    [each[side] for each in SAMPLES] for side in ("src", "mt", "ref")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_comet(tmp_path_factory.mktemp("comet") / "model", REGRESSION)


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_equal_the_ones_of_comet(name, tmp_path):
    model = Comet.load(write_comet(tmp_path / "model", VARIANTS[name]))
    found = model.score(SOURCES, TRANSLATIONS, REFERENCES)
    assert found.tolist() == pytest.approx(EXPECTED[name], abs=1e-5)
    one_by_one = [
        model.score([s], [t], [r]).item()
        for s, t, r in zip(SOURCES, TRANSLATIONS, REFERENCES, strict=True)
    ]
    assert one_by_one == pytest.approx(EXPECTED[name], abs=1e-5)


def test_variants_have_different_scores():
    first = sorted(scores[0] for name, scores in EXPECTED.items() if name != "unified_words")
    assert min(b - a for a, b in pairwise(first)) > 1e-3


def textbook_vector(text, options, name):
    """Return the mean over tokens of γ Σ_l sparsemax(w)_l h_l, of one text."""
    encoder = XLMRobertaModel(XLMRobertaConfig(**ENCODER), add_pooling_layer=False).eval()
    weights = {
        key: formula(f"encoder.model.{key}", value.shape)
        for key, value in encoder.state_dict().items()
    }
    encoder.load_state_dict(weights)
    ids = load_tokenizer(name)(text)["input_ids"]
    with torch.no_grad():
        hidden = encoder(torch.tensor([ids]), output_hidden_states=True).hidden_states
    scores = [
        formula(f"layerwise_attention.scalar_parameters.{layer}", (1,)).item() for layer in range(4)
    ]
    shares, gamma = project(scores), formula("layerwise_attention.gamma", (1,)).item()
    return gamma * sum(
        share * states[0].mean(dim=0) for share, states in zip(shares, hidden, strict=True)
    )


def project(scores):
    """Return max(z - τ, 0) with the τ at which these numbers have the sum 1, found by bisection."""
    low, high = min(scores) - 1, max(scores)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if sum(max(each - middle, 0) for each in scores) > 1 else (low, middle)
        )
    return [max(each - low, 0) for each in scores]


def test_regression_follows_the_formula(folder):
    source, translation, reference = (
        textbook_vector(text, REGRESSION, f"{folder}-encoder")
        for text in ("A man.", "Ein Mann.", "man")
    )
    values = torch.cat(
        [
            *(translation, reference, translation * reference, abs(translation - reference)),
            *(translation * source, abs(translation - source)),
        ]
    )
    for place, shape in ((0, (12, 96)), (3, (7, 12)), (6, (1, 7))):
        weight, bias = (
            formula(f"estimator.ff.{place}.weight", shape),
            formula(f"estimator.ff.{place}.bias", shape[:1]),
        )
        values = weight @ (values if place == 0 else values.tanh()) + bias
    assert Comet.load(folder).score(["A man."], ["Ein Mann."], ["man"]) == pytest.approx(
        values.item(), abs=1e-5
    )


@pytest.mark.parametrize("scores", [[0.1, 1.4, 0.2, 0.9], [0.0, 0.0, 0.0], [5.0, 1.0], [-0.3]])
def test_sparsemax_is_the_projection_on_the_simplex(scores):
    assert sparsemax(torch.tensor(scores)).tolist() == pytest.approx(project(scores), abs=1e-6)


def test_a_long_corpus_is_scored_in_windows(folder):
    model = Comet.load(folder)
    texts = [f"man {'a' * (place % 9)}{'b' * (place // 9)}" for place in range(300)]
    scores = model.score(texts, texts[::-1], texts)
    for place in (0, 17, 299):
        alone = model.score([texts[place]], [texts[299 - place]], [texts[place]])
        assert scores[place] == pytest.approx(alone.item(), abs=1e-5)
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
    (model / "hparams.yaml").write_text("class_identifier: regression_metric\npool: max\n")
    found = Comet.load(model).score(SOURCES, TRANSLATIONS, REFERENCES)
    assert found.tolist() == pytest.approx(EXPECTED["regression"], abs=1e-5)


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

    refused(content, "The weights of .* lack layerwise_attention.gamma. Copy or download")
    weights["layerwise_attention.gamma"] = gamma * torch.nan
    refused(content, "The scores of .* must be numbers")
    refused(
        {**content, "state_dict": {**weights, "pickled": Path("x")}},
        r"model.ckpt cannot be read safely",
    )
    refused(weights, "must be a COMET checkpoint with the entry 'state_dict'")
    (tmp_path / "model-encoder" / "config.json").write_text('{"model_type": "bert"}')
    refused(content, "The `pretrained_model` of .* must be an xlm-roberta model, got bert")
    (model / "hparams.yaml").unlink()
    refused(content, r"must have the files hparams.yaml and checkpoints/model.ckpt, not so")


def test_quality_needs_a_model_without_references(folder):
    with pytest.raises(
        ValueError, match="must be a unified_metric, which needs no references, but .* is a regres"
    ):
        Comet.load(folder, without_references=True)


def test_load_finds_a_model_of_the_hub(folder, monkeypatch):
    asked = []

    def snapshot_download(name, allow_patterns):
        if name == "none/such":
            raise LocalEntryNotFoundError(
                "Cannot find the requested files.\nCheck your connection."
            )
        asked.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(comet, "snapshot_download", snapshot_download)
    assert Comet.load("Unbabel/wmt22-comet-da").name == "Unbabel/wmt22-comet-da"
    assert asked == [("Unbabel/wmt22-comet-da", ["hparams.yaml", "checkpoints/model.ckpt"])]
    with pytest.raises(
        FileNotFoundError,
        match=r"no folder none/such, and the Hub .*: Cannot find the requested fi",
    ):
        Comet.load("none/such")


def test_corpus_scores_are_of_quality_or_of_two_models(tmp_path, monkeypatch):
    model = write_comet(tmp_path / "model", UNIFIED)
    pairs = [*zip(SOURCES, TRANSLATIONS, strict=True)]
    found = low_scores.corpus_scores([str(model)], pairs, NO_DIRECTION)
    assert found.tolist() == pytest.approx(EXPECTED["unified"], abs=1e-5)
    monkeypatch.setattr(low_scores, "dual_scores", lambda *given: given)
    assert low_scores.corpus_scores(["a", "b"], pairs, NO_DIRECTION) == (
        "a",
        "b",
        pairs,
        NO_DIRECTION,
    )


def test_hash_model_knows_the_files_of_comet(folder):
    assert hash_model(folder).keys() == {"hparams.yaml", "model.ckpt"}
