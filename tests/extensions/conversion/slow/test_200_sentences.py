"""Conversion from FSMT, fairseq and Marian's own files on the 200 sentences of the table in
docs/convert.md.
"""

import logging

import pytest
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.fairseq_files import build_fsmt_tokenizer, fairseq_folder, fsmt
from tests.marian_files import MARIAN_VARIANTS, ctranslate2_translator, marian_folder
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.extensions.conversion import READERS
from vanilla_transformer.extensions.conversion.comparison import compare

SENTENCES = [pair.source for pair in read_demo_corpus("test", 200)]


def fsmt_folder(folder):
    folder.mkdir()
    tokenizer = build_fsmt_tokenizer(folder)
    fsmt(len(tokenizer.encoder)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


MODELS = {
    "FSMT": ("fsmt", fsmt_folder, {}),
    "fairseq": ("fairseq", fairseq_folder, {"old": False}),
    "old fairseq": ("fairseq", fairseq_folder, {"old": True}),
}
for name in ("OPUS-MT", "untied", "pre-norm", "tied source"):
    MODELS[name] = ("marian-npz", marian_folder, MARIAN_VARIANTS[name])


@pytest.mark.parametrize(("form", "write", "options"), MODELS.values(), ids=MODELS)
def test_readers_translate_200_sentences_as_the_original(form, write, options, tmp_path):
    folder = write(tmp_path / "theirs", **options)
    comparison = READERS[form](folder, tmp_path / "ours", SENTENCES)
    if comparison is None:
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
        translate = ctranslate2_translator(folder, tokenizer)
        comparison = compare(translate, model, tokenizer, SENTENCES)
    logging.getLogger(__name__).info(comparison)
    assert (comparison.num_sentences, comparison.num_identical) == (200, 200)
    if form != "marian-npz":  # which CTranslate2 runs
        assert comparison.max_logit_difference < 1e-3
