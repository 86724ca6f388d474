"""Conversion from and to MarianMTModel: the same logits and translations."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, MarianTokenizer
from transformers.models.marian.modeling_marian import MarianDecoder

from tests.marian_models import MARIAN_SENTENCES, MARIAN_SIZES, build_marian_tokenizer, marian_model
from tests.tiny import tiny_model
from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine import engine
from vanilla_transformer.extensions.conversion import onnx
from vanilla_transformer.extensions.conversion.common import greedy_translator
from vanilla_transformer.extensions.conversion.marian import from_marian, model_from_marian, model_to_marian, to_marian
from vanilla_transformer.extensions.conversion.onnx import to_onnx
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerDecoder
from vanilla_transformer.utils.file_utils import save_model_folder


@pytest.fixture(scope="module")
def marian_tokenizer(tmp_path_factory):
    return build_marian_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize(
    "changes", [{}, {"scale_embedding": True}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}]
)
def test_model_from_marian_has_the_logits_of_marian(changes):
    original = marian_model(31, **changes)
    converted = model_from_marian(original)
    source, target = torch.randint(1, 30, (3, 9)), torch.randint(1, 30, (3, 7))
    mask = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 2 + [0] * 7])
    given = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": target}
    torch.testing.assert_close(converted(**given).logits, original(**given).logits)
    assert converted.lm_head.weight.data_ptr() != original.lm_head.weight.data_ptr(), "the original must not change"


def test_from_marian_translates_as_marian(marian_tokenizer, tmp_path):
    original = marian_model(len(marian_tokenizer))
    original.generation_config.num_beams = 3
    save_model_folder(original, marian_tokenizer, tmp_path / "opus")
    comparison = from_marian(tmp_path / "opus", tmp_path / "ours", MARIAN_SENTENCES)
    assert (comparison.num_sentences, comparison.num_identical) == (3, 3) and comparison.max_logit_difference < 1e-3
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours"),
        AutoTokenizer.from_pretrained(tmp_path / "ours"),
    )
    assert type(tokenizer) is MarianTokenizer and model.generation_config.num_beams == 3
    ours = TranslationPipeline(model, tokenizer, task="translation")(MARIAN_SENTENCES)
    theirs = TranslationPipeline(original, marian_tokenizer, task="translation")(MARIAN_SENTENCES)
    assert ours == theirs


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
    comparison = to_marian(tmp_path / "ours", tmp_path / "marian", MARIAN_SENTENCES)
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
        from_marian(folder, tmp_path / "out", MARIAN_SENTENCES)


def test_to_marian_leaves_no_file_on_a_full_disk(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")

    def fail(self, path):
        (path / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MarianMTModel, "save_pretrained", fail)
    with pytest.raises(OSError, match="No space left"):
        to_marian(folder, tmp_path / "marian", MARIAN_SENTENCES)
    assert list(tmp_path.iterdir()) == [folder]


def test_sentences_beyond_the_positions_of_marian_are_refused(marian_tokenizer, tiny_model, tiny_tokenizer, tmp_path):
    save_model_folder(marian_model(len(marian_tokenizer)), marian_tokenizer, tmp_path / "opus")
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours")
    for convert, source in ((from_marian, tmp_path / "opus"), (to_marian, folder)):
        with pytest.raises(ValueError, match=r"must have at most \d+ tokens, .* in sentence 2. Leave it out of --sen"):
            convert(source, tmp_path / "out", ["dog", "dog " * 2000])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("convert", [to_marian, to_onnx])
def test_conversion_that_is_wrong_on_both_sides_writes_nothing(convert, tiny_tokenizer, tmp_path, monkeypatch):
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
    monkeypatch.setattr(onnx, "onnx_greedy_translator", lambda _, *given: greedy_translator(tiny_model(), *given))
    # Or the engine would see other methods, and leave the model to `generate()`.
    monkeypatch.setattr(engine, "is_supported", lambda model: True)
    with pytest.raises(ValueError, match="The engine of this package must translate as .*: 0 of 2 outputs identical"):
        convert(folder, tmp_path / "out", ["A man is sleeping.", "Two dogs run."])
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
