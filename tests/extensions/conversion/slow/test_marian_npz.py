"""Conversion from Marian's own files on the 200 sentences of the table in docs/convert.md."""

import logging

import pytest

from tests.marian_files import MARIAN_VARIANTS, marian_folder
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.conversion.marian_npz import from_marian_npz


@pytest.mark.parametrize("variant", ["OPUS-MT", "untied", "pre-norm", "tied source"])
def test_from_marian_npz_generates_the_tokens_of_ctranslate2_on_200_sentences(variant, tmp_path):
    changes = MARIAN_VARIANTS[variant]
    sentences = [pair.source for pair in read_demo_corpus("test", 200)]
    comparison = from_marian_npz(marian_folder(tmp_path / "marian", **changes), tmp_path / "ours", sentences)
    logging.getLogger(__name__).info(comparison)
    assert (comparison.num_sentences, comparison.num_identical) == (200, 200)
