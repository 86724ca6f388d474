"""A converted model whose outputs differ is refused."""

import pytest

from vanilla_transformer.extensions.conversion.common import Comparison, require_same


@pytest.mark.parametrize("comparison", [Comparison(10, 9, None, 1.0), Comparison(3, 2, 1e-4, 1.0)])
def test_require_same_accepts_rounding(comparison, tiny_model, tiny_tokenizer):
    assert require_same(comparison, tiny_model, tiny_tokenizer, ["A dog.", "Two men."]) is comparison


@pytest.mark.parametrize("comparison", [Comparison(10, 8, None, 1.0), Comparison(3, 3, 2.6, 1.0)])
def test_require_same_refuses_other_outputs(comparison, tiny_model, tiny_tokenizer):
    with pytest.raises(ValueError, match="must compute what the original does"):
        require_same(comparison, tiny_model, tiny_tokenizer, ["A dog."])


def test_require_same_refuses_nan(tiny_model, tiny_tokenizer):
    with pytest.raises(ValueError, match="must compute what the original does"):
        require_same(Comparison(3, 3, float("nan"), 1.0), tiny_model, tiny_tokenizer, ["A dog."])
