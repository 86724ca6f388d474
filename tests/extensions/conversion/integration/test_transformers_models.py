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
MODELS = [
    *(
        (marian_model, changes, EXACT)
        for changes in (
            {},
            {"scale_embedding": True},
            {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
        )
    ),
    (fsmt, {}, CLOSE),
    (fsmt, {"scale_embedding": False, "tgt_vocab_size": 29}, CLOSE),
    (fsmt, {"tie_word_embeddings": True}, CLOSE),
    (m2m_100, {}, CLOSE),
    (m2m_100, {"scale_embedding": False, "activation_function": "gelu"}, CLOSE),
]


@pytest.mark.parametrize(("build", "changes", "tolerance"), MODELS)
def test_converted_model_has_the_logits_of_the_original(build, changes, tolerance):
    original = build(31, **changes)
    converted = convert_model(original)
    source, target = torch.randint(4, 29, (3, 9)), torch.randint(4, 29, (3, 7))
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 2 + [0] * 7])
    source = source.masked_fill(mask == 0, original.config.pad_token_id)
    given = {
        "input_ids": source,
        "attention_mask": mask,
        "decoder_input_ids": target,
        "use_cache": False,
    }
    torch.testing.assert_close(converted(**given).logits, original(**given).logits, **tolerance)
    places = {parameter.data_ptr() for parameter in original.parameters()}
    assert places.isdisjoint(parameter.data_ptr() for parameter in converted.parameters()), (
        "they are no copies"
    )


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
    original, sentences = (
        (marian_model(size), MARIAN_SENTENCES) if form == "marian" else (fsmt(size), FSMT_SENTENCES)
    )
    original.generation_config.update(num_beams=3, max_new_tokens=20)
    return (
        original,
        tokenizer,
        sentences,
        save_model_folder(original, tokenizer, tmp_path / "theirs"),
    )


@pytest.mark.parametrize("form", TOKENIZERS)
def test_readers_write_a_folder_that_translates_as_the_original(form, tmp_path):
    original, tokenizer, sentences, folder = save_original(form, tmp_path)
    comparison = READERS[form](folder, tmp_path / "ours", sentences)
    assert (comparison.num_sentences, comparison.num_identical) == (
        3,
        3,
    ) and comparison.max_logit_difference < 1e-3
    model, loaded = (
        kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    assert type(loaded) is TOKENIZERS[form][1] and model.generation_config.num_beams == 3
    pipelines = ((model, loaded), (original, tokenizer))
    ours, theirs = (TranslationPipeline(*pair)(sentences, max_new_tokens=20) for pair in pipelines)
    assert ours == theirs


def test_converted_folder_is_publishable(tmp_path, monkeypatch):
    fork_checks(monkeypatch)
    _, _, sentences, folder = save_original("marian", tmp_path)
    READERS["marian"](folder, tmp_path / "ours", sentences)
    root = Path(__file__).parents[4]
    facts = read_facts(root / "model_card" / "demo.yaml")
    card = render_card(tmp_path / "ours", facts, root / "model_card" / "template.md", "1")
    card.save(tmp_path / "ours" / "README.md")
    assert not failed_checks(check_folder(tmp_path / "ours"))
