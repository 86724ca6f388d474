"""Conversion from OpenNMT-py and eole: models without EOS in the source, and folders that cannot be converted."""

import os

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.opennmt_files import eole_folder, opennmt_checkpoint
from vanilla_transformer import TranslationPipeline, VanillaTransformerConfig
from vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion.marian import model_to_marian
from vanilla_transformer.extensions.conversion.opennmt import (
    from_eole,
    from_opennmt_py,
    model_from_opennmt,
    read_eole,
    read_opennmt_py,
)


def test_from_opennmt_py_masks_source_eos(text_folder, tmp_path):
    from_opennmt_py(opennmt_checkpoint(text_folder, tmp_path), tmp_path / "ours", [])
    model, tokenizer = (kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    inputs = tokenizer(["The man sleeps.", "The old woman buys a red apple."], padding=True, return_tensors="pt")
    without = tokenizer.pad({"input_ids": [[*ids[:-1]] for ids in tokenizer(["The man sleeps."])["input_ids"]]})
    expected = model.generate(torch.tensor(without["input_ids"]), max_new_tokens=9, num_beams=3, eos_token_id=None)
    for mask in (inputs["attention_mask"], None):
        tokens = model.generate(
            inputs["input_ids"], attention_mask=mask, max_new_tokens=9, num_beams=3, eos_token_id=None
        )
        assert tokens[0].tolist() == expected[0].tolist()
    decoder_input_ids = torch.tensor([[2, 5, 6]])
    logits = model(torch.tensor(without["input_ids"]), decoder_input_ids=decoder_input_ids).logits
    with_eos = model(inputs["input_ids"][:1], decoder_input_ids=decoder_input_ids).logits
    torch.testing.assert_close(with_eos, logits)
    (answer,) = TranslationPipeline(model=model, tokenizer=tokenizer)(
        ["The man sleeps."], num_beams=3, max_new_tokens=9
    )
    assert isinstance(answer["translation_text"], str)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_model_without_source_eos_gives_finite_logits_for_eos_alone(attention):
    sizes = {"vocab_size": 9, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1}
    config = VanillaTransformerConfig(**sizes, source_eos=False, attn_implementation=attention)
    model = Model(config).eval()
    logits = model(torch.tensor([[4, 2], [2, 0]]), decoder_input_ids=torch.tensor([[1], [1]])).logits
    assert torch.isfinite(logits).all()


def test_writers_refuse_models_without_source_eos(text_folder, tmp_path):
    model = model_from_opennmt(read_opennmt_py(opennmt_checkpoint(text_folder, tmp_path)))
    with pytest.raises(ValueError, match="source_eos"):
        model_to_marian(model)
    from_opennmt_py(tmp_path / "model.pt", tmp_path / "ours", [])
    for form in ("onnx", "ctranslate2"):
        assert main(["convert", str(tmp_path / "ours"), str(tmp_path / form), "--target_format", form]) == 2
        assert not (tmp_path / form).exists()


def test_from_opennmt_py_lists_every_reason_and_writes_nothing(text_folder, tmp_path, capsys):
    path = opennmt_checkpoint(
        text_folder,
        tmp_path,
        pos_ffn_activation_fn="silu",
        max_relative_positions=20,
        data={"corpus": {"transforms": ["onmt_tokenize"]}},
        src_subword_model="",
    )
    assert main(["convert", str(path), str(tmp_path / "ours"), "--source_format", "opennmt-py"]) == 2
    message = capsys.readouterr().err
    for part in (
        "'silu'",
        "`max_relative_positions` is 20, not 0",
        "with onmt_tokenize",
        "not tokenize with SentencePiece",
    ):
        assert part in message
    assert not (tmp_path / "ours").exists()


def without_norm_bias(path):
    """Remove a tensor that, unlike the bias of a projection, every model has."""
    content = torch.load(path, weights_only=False)
    del content["model"]["encoder.layer_norm.bias"]
    torch.save(content, path)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (without_norm_bias, ValueError, "encoder.layer_norm.bias"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1000]), ValueError, "cannot be read safely"),
        (lambda path: path.unlink(), OSError, "model.pt"),
        (lambda path: torch.save({"generator": {}, "model": {}, "opt": os.getcwd}, path), ValueError, "safely"),
        (lambda path: path.with_name("sp.model").unlink(), OSError, "elsewhere/sp.model"),
    ],
    ids=["no bias", "truncated", "missing", "pickled function", "no SentencePiece"],
)
def test_from_opennmt_py_names_a_damaged_checkpoint(damage, error, message, text_folder, tmp_path):
    path = opennmt_checkpoint(text_folder, tmp_path)
    damage(path)
    with pytest.raises(error, match=message):
        from_opennmt_py(path, tmp_path / "ours", [])
    assert not (tmp_path / "ours").exists()


def test_read_eole_lists_every_reason(text_folder, tmp_path):
    folder = eole_folder(
        text_folder, tmp_path / "eole", position_encoding_type="Rotary", mlp_activation_fn="gated-silu"
    )
    with pytest.raises(
        ValueError, match="'Rotary', not 'SinusoidalInterleaved'; its activation function is 'gated-silu'"
    ):
        read_eole(folder)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda folder: (folder / "model.00.safetensors").write_bytes(b"\0" * 20), ValueError, "truncated or damaged"),
        (lambda folder: (folder / "vocab.json").unlink(), OSError, "vocab.json"),
        (lambda folder: (folder / "config.json").write_text("{"), ValueError, "must be JSON"),
        (lambda folder: (folder / "config.json").write_text("{}"), ValueError, "must have eole's format"),
        (lambda folder: None, ValueError, "must fill the model that the options declare"),
    ],
    ids=["truncated weights", "no vocabulary", "invalid JSON", "another configuration", "missing weights"],
)
def test_from_eole_names_a_damaged_file(damage, error, message, text_folder, tmp_path):
    folder = eole_folder(text_folder, tmp_path / "eole")
    damage(folder)
    with pytest.raises(error, match=message):
        from_eole(folder, tmp_path / "ours", [])
    assert not (tmp_path / "ours").exists()
