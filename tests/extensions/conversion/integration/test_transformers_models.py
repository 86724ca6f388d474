"""Conversion from Marian, FSMT and M2M-100 of transformers: the same logits and translations."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, FSMTTokenizer, MarianTokenizer

from tests.fairseq_files import FSMT_SENTENCES, build_fsmt_tokenizer, fsmt
from tests.local_hub import fork_checks
from tests.m2m_100_models import m2m_100
from tests.marian_files import MARIAN_SENTENCES, build_marian_tokenizer, marian_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.conversion import READERS
from vanilla_transformer.extensions.conversion.from_transformers import convert_model
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.publishing.card import render_card
from vanilla_transformer.publishing.checks import check_folder, failed_checks
from vanilla_transformer.publishing.facts import read_facts

# How to build an original, and its fields; tolerances are relative to their
# positional encodings.
EXACT, CLOSE = {}, {"atol": 1e-4, "rtol": 1e-4}
SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}
UNSCALED = {"scale_embedding": False}
MODELS = [
    (marian_model, {}, EXACT),
    (marian_model, {"scale_embedding": True}, EXACT),
    (marian_model, SEPARATE, EXACT),
    (fsmt, {}, CLOSE),
    (fsmt, UNSCALED | {"tgt_vocab_size": 29}, CLOSE),
    (fsmt, {"tie_word_embeddings": True}, CLOSE),
    (m2m_100, {}, CLOSE),
    (m2m_100, UNSCALED | {"activation_function": "gelu"}, CLOSE),
]


@pytest.mark.parametrize(("build", "changes", "tolerance"), MODELS)
def test_converted_model_has_the_logits_of_the_original(build, changes, tolerance):
    original = build(31, **changes)
    converted = convert_model(original)
    source, target = torch.randint(4, 29, (3, 9)), torch.randint(4, 29, (3, 7))
    mask = torch.arange(9) < torch.tensor([[9], [5], [2]])
    source = source.masked_fill(~mask, original.config.pad_token_id)
    inputs = {"input_ids": source, "attention_mask": mask.long(), "use_cache": False}
    inputs["decoder_input_ids"] = target
    expected = original(**inputs).logits
    torch.testing.assert_close(converted(**inputs).logits, expected, **tolerance)
    # They are no copies.
    places = {parameter.data_ptr() for parameter in original.parameters()}
    assert places.isdisjoint(map(torch.Tensor.data_ptr, converted.parameters()))


TOKENIZERS = {
    "marian": (build_marian_tokenizer, MarianTokenizer),
    "fsmt": (build_fsmt_tokenizer, FSMTTokenizer),
}


def save_original(form, tmp_path):
    """Write an original with its tokenizer, and return both, the sentences that they know, and
    their folder.
    """
    tokenizer = TOKENIZERS[form][0](tmp_path)
    size = len(tokenizer.encoder)
    if form == "marian":
        original, sentences = marian_model(size), MARIAN_SENTENCES
    else:
        original, sentences = fsmt(size), FSMT_SENTENCES
    original.generation_config.update(num_beams=3, max_new_tokens=20)
    folder = save_model_folder(original, tokenizer, tmp_path / "theirs")
    return original, tokenizer, sentences, folder


@pytest.mark.parametrize("form", TOKENIZERS)
def test_readers_write_a_folder_that_translates_as_the_original(form, tmp_path):
    original, tokenizer, sentences, folder = save_original(form, tmp_path)
    comparison = READERS[form](folder, tmp_path / "ours", sentences)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3)
    assert comparison.max_logit_difference < 1e-3
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert type(loaded) is TOKENIZERS[form][1]
    assert model.generation_config.num_beams == 3
    ours = TranslationPipeline(model, loaded)(sentences, max_new_tokens=20)
    theirs = TranslationPipeline(original, tokenizer)(sentences, max_new_tokens=20)
    assert ours == theirs


def test_converted_folder_is_publishable(tmp_path, monkeypatch):
    fork_checks(monkeypatch)
    _, _, sentences, folder = save_original("marian", tmp_path)
    READERS["marian"](folder, tmp_path / "ours", sentences)
    cards = Path(__file__).parents[4] / "model_card"
    facts = read_facts(cards / "demo.yaml")
    card = render_card(tmp_path / "ours", facts, cards / "template.md", "1")
    card.save(tmp_path / "ours" / "README.md")
    assert not failed_checks(check_folder(tmp_path / "ours"))
