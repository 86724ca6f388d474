"""A converted model whose outputs differ is refused."""

import pytest

from vanilla_transformer.extensions.conversion.common import Comparison, require_same


@pytest.mark.parametrize(
    ("comparison", "is_same"),
    [
        (Comparison(10, 9, None, 1.0), True),
        (Comparison(3, 2, 1e-4, 1.0), True),
        (Comparison(10, 8, None, 1.0), False),
        (Comparison(3, 3, 2.6, 1.0), False),
        (Comparison(3, 3, float("nan"), 1.0), False),
    ],
)
def test_require_same_accepts_rounding_only(comparison, is_same, tiny_model, tiny_tokenizer):
    sentences = ["A dog.", "Two men."]
    if is_same:
        assert require_same(comparison, tiny_model, tiny_tokenizer, sentences) is comparison
        return
    with pytest.raises(ValueError, match="must compute what the original does"):
        require_same(comparison, tiny_model, tiny_tokenizer, sentences)
