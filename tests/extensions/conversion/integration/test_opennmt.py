"""Conversion from OpenNMT-py and eole: models without EOS in the source."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.opennmt_files import opennmt_checkpoint
from vanilla_transformer import TranslationPipeline, VanillaTransformerConfig
from vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from vanilla_transformer.extensions.conversion import READERS


def test_from_opennmt_py_masks_source_eos(text_folder, tmp_path):
    READERS["opennmt-py"](opennmt_checkpoint(text_folder, tmp_path), tmp_path / "ours", [])
    model, tokenizer = (
        kind.from_pretrained(tmp_path / "ours") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    inputs = tokenizer(
        ["The man sleeps.", "The old woman buys a red apple."], padding=True, return_tensors="pt"
    )
    without = tokenizer.pad(
        {"input_ids": [[*ids[:-1]] for ids in tokenizer(["The man sleeps."])["input_ids"]]}
    )
    expected = model.generate(
        torch.tensor(without["input_ids"]), max_new_tokens=9, num_beams=3, eos_token_id=None
    )
    for mask in (inputs["attention_mask"], None):
        tokens = model.generate(
            inputs["input_ids"],
            attention_mask=mask,
            max_new_tokens=9,
            num_beams=3,
            eos_token_id=None,
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
    logits = model(
        torch.tensor([[4, 2], [2, 0]]), decoder_input_ids=torch.tensor([[1], [1]])
    ).logits
    assert torch.isfinite(logits).all()
