"""Products of 8-bit integers, as a quantization method of transformers."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, pipeline

from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer import TranslationPipeline, VanillaTransformerInt8Config
from vanilla_transformer.decoding.quantization import VanillaTransformerInt8Linear, quantize_linears


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_int8_linear_is_close_to_float_linear(rows, bias):
    torch.manual_seed(rows)
    linear, states = nn.Linear(96, 50, bias=bias), torch.randn(rows, 3, 96)
    with torch.no_grad():
        expected, found = linear(states), VanillaTransformerInt8Linear(linear)(states)
        # Half a step of 127 in each factor of each of the products, all of one sign at the worst.
        steps = (states.abs().amax(-1, keepdim=True) + states.abs().mean(-1, keepdim=True)) / 254
        bound = 96 * 2 * steps * linear.weight.abs().amax(dim=1)
    assert found.shape == expected.shape
    assert ((found - expected).abs() <= bound).all()
    assert float((found - expected).std() / expected.std()) < 0.02


def test_int8_linear_keeps_zero_rows():
    with torch.no_grad():
        assert not VanillaTransformerInt8Linear(nn.Linear(8, 4, bias=False))(torch.zeros(2, 8)).any()


def test_int8_linear_joins_layers_of_one_input():
    torch.manual_seed(0)
    linears, states = [nn.Linear(16, size, bias=size != 4) for size in (8, 8)], torch.randn(3, 16)
    with torch.no_grad():
        apart = torch.cat([VanillaTransformerInt8Linear(linear)(states) for linear in linears], dim=-1)
        assert torch.equal(VanillaTransformerInt8Linear(*linears)(states), apart)


def test_int8_linear_gives_a_row_the_same_result_in_any_batch():
    torch.manual_seed(0)
    layer, states = quantize_linears(tiny_model()).model.encoder.layers[0].fc1, torch.randn(6, 16)
    states[3] *= 100
    with torch.no_grad():
        assert torch.equal(layer(states)[:3], layer(states[:3]))


@pytest.mark.parametrize("build", [tiny_model, tiny_long_model])
def test_int8_config_quantizes_on_loading(build, tmp_path, tiny_tokenizer):
    exact_model = build()
    exact_model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    config = VanillaTransformerInt8Config()
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, quantization_config=config, dtype=torch.bfloat16)
    kinds = {type(module) for module in model.modules()}
    assert VanillaTransformerInt8Linear in kinds and nn.Linear not in kinds
    translate = pipeline("translation", model=str(tmp_path), model_kwargs={"quantization_config": config})
    assert isinstance(translate, TranslationPipeline)
    assert isinstance(translate.model.lm_head, VanillaTransformerInt8Linear)
    assert translate(["Ein Mann schläft."], max_new_tokens=5)[0]["translation_text"] is not None
    with torch.no_grad():
        source = torch.randint(3, 40, (4, 9))
        exact = exact_model(source, decoder_input_ids=source).logits
        rounded = model(source, decoder_input_ids=source).logits
    assert 0 < float((rounded - exact).std() / exact.std()) < 0.05


def test_int8_model_decodes_by_joined_projections():
    model, source = quantize_linears(tiny_model()), torch.randint(3, 40, (4, 9))
    assert isinstance(model.model.decoder.layers[0].self_attn.qkv_proj, VanillaTransformerInt8Linear)
    joined = model.generate(source, num_beams=3)
    del model.model.decoder.layers[0].self_attn.qkv_proj
    assert torch.equal(model.generate(source, num_beams=3), joined)


def test_int8_model_is_neither_trained_nor_saved(tmp_path):
    tiny_model().save_pretrained(tmp_path / "float")
    config = VanillaTransformerInt8Config()
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "float", quantization_config=config)
    with pytest.raises(ValueError, match="cannot be trained"):
        model(torch.tensor([[3, 4]]), labels=torch.tensor([[3, 4]])).loss.backward()
    with pytest.raises(ValueError, match="vanilla_transformer_int8 and is not serializable"):
        model.save_pretrained(tmp_path / "int8")
