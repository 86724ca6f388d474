"""Conversion from M2M-100 and NLLB: the same logits and translations, and the languages stay."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, M2M100Tokenizer, NllbTokenizer

from tests.m2m_100_models import M2M_SENTENCES, build_m2m_tokenizer, build_nllb_tokenizer, m2m_100
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import READERS
from vanilla_transformer.extensions.conversion.from_transformers import convert_model
from vanilla_transformer.loading.model_folders import save_model_folder

LANGUAGES = {NllbTokenizer: ("eng_Latn", "deu_Latn"), M2M100Tokenizer: ("en", "de")}
TARGETS = {NllbTokenizer: "deu_Latn", M2M100Tokenizer: "__de__"}
LAST_LANGUAGES = {NllbTokenizer: "zul_Latn", M2M100Tokenizer: "__zu__"}


@pytest.fixture(params=["nllb", "m2m_100"])
def tokenizer(request, tmp_path):
    if request.param == "nllb":
        return build_nllb_tokenizer()
    (tmp_path / "tokenizer").mkdir()
    return build_m2m_tokenizer(tmp_path / "tokenizer")


@pytest.fixture
def folder(tokenizer, tmp_path):
    vocab_size = tokenizer.convert_tokens_to_ids(LAST_LANGUAGES[type(tokenizer)]) + 1
    save_model_folder(m2m_100(vocab_size), tokenizer, tmp_path / "theirs")
    return tmp_path / "theirs"


def test_from_m2m_100_searches_as_the_original_between_two_languages(folder, tokenizer, tmp_path):
    languages, forced = (
        LANGUAGES[type(tokenizer)],
        tokenizer.convert_tokens_to_ids(TARGETS[type(tokenizer)]),
    )
    comparison = READERS["m2m_100"](folder, tmp_path / "ours", M2M_SENTENCES, languages=languages)
    further = (
        -(-len(tokenizer.extra_special_tokens) // 8) if tokenizer.is_fast else 0
    )  # have its added tokens
    assert comparison.num_sentences == comparison.num_identical == 3 + further
    assert comparison.max_logit_difference < 1e-3

    ours, theirs = (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name) for name in ("ours", "theirs")
    )
    assert type(ours) is VanillaTransformerForConditionalGeneration
    loaded = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert (loaded.src_lang, loaded.tgt_lang) == languages
    tokenizer.src_lang = languages[0]
    inputs = tokenizer(M2M_SENTENCES, padding=True, return_tensors="pt")
    assert loaded(M2M_SENTENCES)["input_ids"] == tokenizer(M2M_SENTENCES)["input_ids"]
    options = {"num_beams": 4, "max_new_tokens": 20, "num_return_sequences": 4}
    expected = theirs.generate(**inputs, **options, forced_bos_token_id=forced)
    assert torch.equal(ours.generate(**inputs, **options), expected)
    assert (expected[:, 1] == forced).all()


def test_convert_m2m_100_refuses_an_unknown_language(folder, tmp_path, capsys):
    command = [
        "convert",
        str(folder),
        str(tmp_path / "ours"),
        "--source_format",
        "m2m_100",
        "--languages",
        "en",
        "xx",
    ]
    assert main(command) != 0
    assert "language must be one of" in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()


def test_from_m2m_100_lists_every_reason(tmp_path):
    with pytest.raises(ValueError, match=r"its padding id is not 1; its embeddings are not tied"):
        convert_model(m2m_100(31, pad_token_id=3, tie_word_embeddings=False))
    former = build_nllb_tokenizer(former_layout=True)
    save_model_folder(m2m_100(len(former)), former, tmp_path / "former")
    with pytest.raises(ValueError, match="its sources end in the language, not in EOS"):
        READERS["m2m_100"](tmp_path / "former", tmp_path / "ours", M2M_SENTENCES)
    assert not (tmp_path / "ours").exists()
