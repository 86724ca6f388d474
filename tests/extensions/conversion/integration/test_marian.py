"""Conversion to MarianMTModel, the command, and comparisons that end with one line."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel
from transformers.models.marian.modeling_marian import MarianDecoder

from tests.marian_models import MARIAN_SENTENCES, MARIAN_SIZES, build_marian_tokenizer, marian_model
from tests.tiny import tiny_model
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine import engine
from vanilla_transformer.extensions.conversion import READERS, WRITERS, onnx
from vanilla_transformer.extensions.conversion.marian import model_to_marian
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerDecoder
from vanilla_transformer.utils.file_utils import save_model_folder


@pytest.fixture(scope="module")
def marian_tokenizer(tmp_path_factory):
    return build_marian_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("bias", [False, True])
def test_model_to_marian_has_our_logits(layout, bias):
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=31,
        sinusoid_layout=layout,
        attention_bias=bias,
        lm_head_bias=bias,
        layer_norm_eps=1e-5,
        **MARIAN_SIZES,
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
    comparison = WRITERS["marian"](tmp_path / "ours", tmp_path / "marian", MARIAN_SENTENCES)
    assert comparison.num_identical == 3 and comparison.max_logit_difference < 1e-2
    assert not list((tmp_path / "marian").glob("*.py"))
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "marian")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "marian")
    assert type(model) is MarianMTModel and type(tokenizer).__module__.startswith("transformers.")
    for text in (MARIAN_SENTENCES[0], "Öl kostet 3 €."):
        assert tokenizer(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_from_marian_refuses_another_model_type(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    with pytest.raises(ValueError, match="must be a model of type 'marian', got type 'vanilla_transformer'"):
        READERS["marian"](folder, tmp_path / "out", MARIAN_SENTENCES)


def test_to_marian_leaves_no_file_on_a_full_disk(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")

    def fail(self, path):
        (path / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MarianMTModel, "save_pretrained", fail)
    with pytest.raises(OSError, match="No space left"):
        WRITERS["marian"](folder, tmp_path / "marian", MARIAN_SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


def test_sentences_beyond_the_positions_of_marian_are_refused(marian_tokenizer, tiny_model, tiny_tokenizer, tmp_path):
    save_model_folder(marian_model(len(marian_tokenizer)), marian_tokenizer, tmp_path / "opus")
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    for convert, source in ((READERS["marian"], tmp_path / "opus"), (WRITERS["marian"], folder)):
        with pytest.raises(ValueError, match=r"must have at most \d+ tokens, .* in sentence 2. Leave it out of --sen"):
            convert(source, tmp_path / "out", ["dog", "dog " * 2000])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["marian", "onnx"])
def test_conversion_that_is_wrong_on_both_sides_writes_nothing(form, tiny_tokenizer, tmp_path, monkeypatch):
    """The decoders of both sides negate their states, which the engine, that has its own decoder, does not."""
    folder = save_model_folder(tiny_model(), tiny_tokenizer, tmp_path / "ours")
    for decoder in (VanillaTransformerDecoder, MarianDecoder):

        def wrong(self, *args, right=decoder.forward, **kwargs):
            found = right(self, *args, **kwargs)
            found.last_hidden_state = -found.last_hidden_state
            return found

        monkeypatch.setattr(decoder, "forward", wrong)
    # Exporting takes many seconds, so the wrong model stands for its graphs.
    monkeypatch.setattr(onnx, "export_graphs", lambda model: model)
    monkeypatch.setattr(onnx, "OnnxModel", lambda _: tiny_model())
    # Or the engine would see other methods, and leave the model to `generate()`.
    monkeypatch.setattr(engine, "is_supported", lambda model: True)
    with pytest.raises(ValueError, match="The engine of this package must translate as .*: 0 of 2 outputs identical"):
        WRITERS[form](folder, tmp_path / "out", ["A man is sleeping.", "Two dogs run."])
    assert not (tmp_path / "out").exists()


def test_convert_command_prints_the_comparison(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours"))
    (tmp_path / "text").write_text("\n".join(MARIAN_SENTENCES))
    command = ["convert", folder, str(tmp_path / "marian"), "--target_format", "marian"]
    assert main([*command, "--sentences", str(tmp_path / "text")]) == 0
    assert "3 of 3 outputs identical, chrF between both 100.0, largest logit difference" in capsys.readouterr().out
    assert main(command) == 2
    assert "is not empty" in capsys.readouterr().err
    for flags, said in (
        ([], "either --source_format or --target_format, got 0"),
        (["--target_format", "word"], "must be one of marian"),
    ):
        assert main(["convert", folder, str(tmp_path / "out"), *flags]) == 2
        assert said in capsys.readouterr().err
