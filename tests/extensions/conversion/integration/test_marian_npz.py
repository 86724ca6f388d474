"""Conversion from Marian's own files, compared with CTranslate2, which reads the same files.

The tests write files in its layout with random weights.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianTokenizer

from tests.marian_files import (
    MARIAN_SENTENCES,
    MARIAN_VARIANTS,
    ctranslate2_translator,
    marian_folder,
)
from tests.sweeps import rare, sample
from vanilla_transformer.extensions.conversion import READERS
from vanilla_transformer.extensions.conversion.comparison import compare
from vanilla_transformer.extensions.conversion.formats import convert
from vanilla_transformer.extensions.conversion.marian_npz import (
    MARIAN_NPZ,
    read_marian_folder,
)

TIED_OPTIONS = {"target": "", "src": "-src", "all": "-all"}


def compare_with_ctranslate2(folder, ours):
    """Convert a folder, and compare the result with CTranslate2."""
    assert READERS["marian-npz"](folder, ours, MARIAN_SENTENCES) is None
    model, tokenizer = (
        kind.from_pretrained(ours) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    return compare(ctranslate2_translator(folder, tokenizer), model, tokenizer, MARIAN_SENTENCES)


@pytest.mark.parametrize(
    "changes",
    sample(MARIAN_VARIANTS.values(), MARIAN_VARIANTS["pre-norm"], MARIAN_VARIANTS["tied target"]),
    ids=MARIAN_VARIANTS.keys(),
)
def test_from_marian_npz_generates_the_tokens_of_ctranslate2(changes, tmp_path):
    folder = marian_folder(tmp_path / "marian", **changes)
    comparison = compare_with_ctranslate2(folder, tmp_path / "ours")
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3)
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    assert type(tokenizer) is MarianTokenizer and model.config.vocab_size == len(tokenizer)
    assert model.generation_config.decoder_start_token_id == tokenizer.pad_token_id
    assert (
        model(torch.ones(1, 2000, dtype=int), decoder_input_ids=torch.ones(1, 2, dtype=int))
        .logits.isfinite()
        .all()
    )


def test_from_marian_npz_reads_a_sentencepiece_vocabulary(tmp_path):
    folder = marian_folder(tmp_path / "marian", single=True)
    assert compare_with_ctranslate2(folder, tmp_path / "ours").num_identical == 3


def test_from_marian_npz_never_generates_the_added_entry(tmp_path):
    model = convert(MARIAN_NPZ, marian_folder(tmp_path / "marian")).model
    pad = model.config.pad_token_id
    assert model.lm_head.bias[pad] == -1e9 and not model.lm_head.weight[pad].any()


def test_from_marian_npz_reads_learned_positions(tmp_path):
    folder = marian_folder(tmp_path / "marian")
    table = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    np.savez(folder / "model.npz", Wpos=table, **np.load(folder / "model.npz"))
    assert compare_with_ctranslate2(folder, tmp_path / "ours").num_identical == 3
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert np.array_equal(model.model.decoder.embed_positions.weight.detach(), table)


@pytest.mark.parametrize("tied", ["src", rare("target"), "all", False])
def test_from_marian_npz_ties_what_marian_ties(tied, tmp_path):
    options = {f"tied-embeddings{suffix}": tied == name for name, suffix in TIED_OPTIONS.items()}
    folder = marian_folder(tmp_path / "marian", tied=tied, **options)
    READERS["marian-npz"](folder, tmp_path / "ours", MARIAN_SENTENCES)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    weights = read_marian_folder(folder).weights
    source, target = (
        weights.get("encoder_Wemb", weights.get("Wemb")),
        weights.get("decoder_Wemb", weights.get("Wemb")),
    )
    output = {
        "src": weights.get("decoder_ff_logit_out_Wt"),
        False: weights.get("decoder_ff_logit_out_W"),
    }.get(tied)
    output = target if output is None else output.T if not tied else output
    for parameter, expected in (
        (model.model.encoder.embed_tokens.weight, source),
        (model.model.decoder.embed_tokens.weight, target),
        (model.lm_head.weight, output),
    ):
        torch.testing.assert_close(
            parameter[:-1].detach(), torch.from_numpy(expected), rtol=0, atol=0
        )
    assert model.config.tie_word_embeddings == (tied in ("target", "all"))
    assert model.config.share_encoder_decoder_embeddings == (tied in ("src", "all"))
