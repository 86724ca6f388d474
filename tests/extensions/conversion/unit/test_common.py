"""Helpers that the converters share."""

import pytest
import torch
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding

from vanilla_transformer.decoding.pickled_checkpoint import load_pickled_checkpoint
from vanilla_transformer.extensions.conversion.common import (
    check_supported,
    fairseq_sinusoids,
    find_sentencepiece_model,
)


def test_check_supported_lists_every_reason_that_applies():
    with pytest.raises(ValueError, match=r"^ONNX cannot represent this model: first; third\.$"):
        check_supported("ONNX", {"first": True, "second": False, "third": True})
    check_supported("ONNX", {"first": False})


def test_fairseq_sinusoids_equal_fsmt():
    expected = SinusoidalPositionalEmbedding.get_embedding(20, 16, padding_idx=None)
    torch.testing.assert_close(fairseq_sinusoids(17, 16, first_position=3), expected[3:20], atol=1e-5, rtol=1e-5)


def test_find_sentencepiece_model_prefers_the_path_of_the_configuration(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "sp.model").touch()
    assert find_sentencepiece_model("elsewhere/sp.model", inside) == inside / "sp.model"
    (tmp_path / "sp.model").touch()
    assert find_sentencepiece_model(tmp_path / "sp.model", inside) == tmp_path / "sp.model"
    with pytest.raises(FileNotFoundError, match="other.model"):
        find_sentencepiece_model("other.model", inside)


def test_load_pickled_checkpoint_requires_the_entry(tmp_path):
    torch.save({"weights": torch.zeros(1)}, tmp_path / "model.pt")
    assert load_pickled_checkpoint(tmp_path / "model.pt", "fairseq", "weights").keys() == {"weights"}
    with pytest.raises(ValueError, match="must be a fairseq checkpoint with the entry 'model'"):
        load_pickled_checkpoint(tmp_path / "model.pt", "fairseq", "model")
