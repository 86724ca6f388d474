"""Conversion from and to MarianMTModel: the same logits and translations."""

import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel, MarianTokenizer

from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.cli import main
from vanilla_transformer.conversion.marian import from_marian, model_from_marian, model_to_marian, to_marian
from vanilla_transformer.publishing.card import read_facts, render_card
from vanilla_transformer.publishing.checks import check_folder, failed_checks
from vanilla_transformer.training.checkpoint import save_model_folder

SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Grass"]
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4}
SIZES |= {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 24, "init_std": 0.3}


@pytest.fixture(scope="module")
def marian_tokenizer(tmp_path_factory):
    """Build a tokenizer as OPUS-MT does: two SentencePiece models, and a vocabulary with other ids."""
    folder = tmp_path_factory.mktemp("tokenizer")
    text = folder / "text"
    text.write_text("\n".join(SENTENCES * 3))
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / side), vocab_size=40, hard_vocab_limit=False, minloglevel=2
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [model.id_to_piece(index) for index in range(3, len(model))]
    names = ["</s>", "<unk>", *pieces, "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    return MarianTokenizer(str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json"))


def marian(size, **changes):
    """Return a random model with a nonzero logit bias."""
    torch.manual_seed(0)
    ids = {
        "pad_token_id": size - 1,
        "eos_token_id": 0,
        "decoder_start_token_id": size - 1,
        "forced_eos_token_id": None,
    }
    model = MarianMTModel(MarianConfig(vocab_size=size, activation_function="swish", **SIZES, **ids, **changes)).eval()
    model.final_logits_bias.normal_()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


@pytest.mark.parametrize(
    "changes", [{}, {"scale_embedding": True}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}]
)
def test_model_from_marian_has_the_logits_of_marian(changes):
    original = marian(31, **changes)
    converted = model_from_marian(original)
    source, target = torch.randint(1, 30, (3, 9)), torch.randint(1, 30, (3, 7))
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 2 + [0] * 7])
    given = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": target}
    torch.testing.assert_close(converted(**given).logits, original(**given).logits)
    assert converted.lm_head.weight.data_ptr() != original.lm_head.weight.data_ptr(), "the original must not change"


def test_from_marian_translates_as_marian(marian_tokenizer, tmp_path):
    original = marian(len(marian_tokenizer))
    original.generation_config.num_beams = 3
    save_model_folder(original, marian_tokenizer, tmp_path / "opus")
    comparison = from_marian(tmp_path / "opus", tmp_path / "ours", SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3) and comparison.max_logit_difference < 1e-4
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours"),
        AutoTokenizer.from_pretrained(tmp_path / "ours"),
    )
    assert type(tokenizer) is MarianTokenizer and model.generation_config.num_beams == 3
    ours = TranslationPipeline(model, tokenizer, task="translation")(SENTENCES)
    theirs = TranslationPipeline(original, marian_tokenizer, task="translation")(SENTENCES)
    assert ours == theirs


def test_from_marian_writes_a_publishable_folder(marian_tokenizer, tmp_path):
    original = marian(len(marian_tokenizer))
    save_model_folder(original, marian_tokenizer, tmp_path / "opus")
    from_marian(tmp_path / "opus", tmp_path / "ours", SENTENCES)
    root = Path(__file__).parents[3]
    facts = read_facts(root / "model_card" / "demo.yaml")
    render_card(tmp_path / "ours", facts, root / "model_card" / "template.md", "1").save(
        tmp_path / "ours" / "README.md"
    )
    assert not failed_checks(check_folder(tmp_path / "ours"))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("bias", [False, True])
def test_model_to_marian_has_our_logits(layout, bias):
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=31, sinusoid_layout=layout, attention_bias=bias, lm_head_bias=bias, layer_norm_eps=1e-5, **SIZES
    )
    original = VanillaTransformerForConditionalGeneration(config).eval()
    for name, parameter in original.named_parameters():
        if name.endswith(("bias", "norm.weight")):
            torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.3)
    converted = model_to_marian(original)
    source, target = torch.randint(3, 31, (3, 9)), torch.randint(3, 31, (3, 7))
    given = {"input_ids": source, "attention_mask": torch.ones_like(source), "decoder_input_ids": target}
    torch.testing.assert_close(converted(**given).logits, original(**given).logits, atol=1e-4, rtol=1e-4)


def test_to_marian_writes_a_folder_without_custom_code(tiny_model, tiny_tokenizer, tmp_path):
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    comparison = to_marian(tmp_path / "ours", tmp_path / "marian", SENTENCES)
    assert comparison.num_identical == 3 and comparison.max_logit_difference < 1e-2
    assert not list((tmp_path / "marian").glob("*.py"))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "marian")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "marian")
    assert type(model) is MarianMTModel and type(tokenizer).__module__.startswith("transformers.")
    for text in (SENTENCES[0], "Öl kostet 3 €."):
        assert tokenizer(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_to_marian_lists_every_reason_and_writes_nothing(tiny_config, tiny_tokenizer, tmp_path):
    config = VanillaTransformerConfig(
        **tiny_config.to_dict() | {"normalize_before": True, "position_embedding_type": "learned"}
    )
    folder = save_model_folder(VanillaTransformerForConditionalGeneration(config), tiny_tokenizer, tmp_path / "ours")
    with pytest.raises(ValueError, match="normalizes before .*; its positions are learned"):
        to_marian(folder, tmp_path / "marian", SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


def test_from_marian_refuses_another_model_type(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    with pytest.raises(ValueError, match="must be a model of type 'marian', got type 'vanilla_transformer'"):
        from_marian(folder, tmp_path / "out", SENTENCES)


def test_to_marian_leaves_no_file_on_a_full_disk(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")

    def fail(self, path):
        (path / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MarianMTModel, "save_pretrained", fail)
    with pytest.raises(OSError, match="No space left"):
        to_marian(folder, tmp_path / "marian", SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


def test_convert_command_prints_the_comparison(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours"))
    (tmp_path / "text").write_text("\n".join(SENTENCES))
    command = ["convert", folder, str(tmp_path / "marian"), "--target_format", "marian"]
    assert main([*command, "--sentences", str(tmp_path / "text")]) == 0
    assert "3 of 3 outputs identical, largest logit difference" in capsys.readouterr().out
    assert main(command) == 2
    assert "is not empty" in capsys.readouterr().err
    for flags, said in (
        ([], "either --source_format or --target_format, got 0"),
        (["--target_format", "word"], "must be one of marian"),
    ):
        assert main(["convert", folder, str(tmp_path / "out"), *flags]) == 2
        assert said in capsys.readouterr().err
