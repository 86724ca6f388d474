"""Conversion from fairseq and FSMT on the 200 sentences of the table in docs/convert.md."""

import logging

import pytest

from tests.fairseq_files import build_fsmt_tokenizer, fairseq_folder, fsmt
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.conversion.fairseq import from_fairseq, from_fsmt

LOGGER = logging.getLogger(__name__)
SENTENCES = [pair.source for pair in read_demo_corpus("test", 200)]


def assert_identical(comparison):
    LOGGER.info(comparison)
    assert (comparison.num_sentences, comparison.num_identical) == (200, 200)
    assert comparison.max_logit_difference < 1e-3


def test_from_fsmt_translates_200_sentences_as_fsmt(tmp_path):
    tokenizer = build_fsmt_tokenizer(tmp_path)
    fsmt(len(tokenizer.encoder)).save_pretrained(tmp_path / "fsmt")
    tokenizer.save_pretrained(tmp_path / "fsmt")
    assert_identical(from_fsmt(tmp_path / "fsmt", tmp_path / "ours", SENTENCES))


@pytest.mark.parametrize("old", [False, True])
def test_from_fairseq_translates_200_sentences_as_fsmt(old, tmp_path):
    folder = fairseq_folder(tmp_path / "fairseq", old)
    assert_identical(from_fairseq(folder, tmp_path / "ours", SENTENCES))
