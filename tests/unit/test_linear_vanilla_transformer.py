"""Matrix products on a CPU: packed while `generate()` runs, and in 8 bits."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, pipeline

from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer import generation_vanilla_transformer as generation
from vanilla_transformer import linear_vanilla_transformer as linears
from vanilla_transformer.linear_vanilla_transformer import (
    VanillaTransformerInt8Linear,
    VanillaTransformerLinear,
    packed_linears,
)

SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 48}


def model_of(**changes):
    torch.manual_seed(0)
    return VanillaTransformerForConditionalGeneration(VanillaTransformerConfig(**SIZES | changes)).eval()


def tokens(sentences, length):
    return torch.randint(3, 48, (sentences, length))


def packed(model):
    """Of each layer."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    return [getattr(layer, "packed", None) is not None for layer in layers]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")
def test_packed_products_are_those_of_plain_layers():
    model = model_of(attention_bias=True)
    source, target = tokens(7, 9), tokens(7, 5)
    with torch.no_grad():
        plain = model(source, decoder_input_ids=target).logits
        with packed_linears(model):
            assert all(packed(model))
            with packed_linears(model):
                inside = model(source, decoder_input_ids=target).logits
            assert all(packed(model)), "the inner block must leave what the outer one made"
    assert not any(packed(model))
    torch.testing.assert_close(inside, plain, atol=1e-5, rtol=1e-5)


def test_weights_are_packed_for_a_call_only_and_anew_for_the_next(monkeypatch):
    model, seen = model_of(), []
    hook = model.lm_head.register_forward_pre_hook(
        lambda layer, _: seen.append(getattr(layer, "packed", None) is not None)
    )
    model.generate(tokens(16, 9))
    assert set(seen) == {torch.backends.mkldnn.is_available()} and not any(packed(model))
    hook.remove()
    source = tokens(16, 9)
    before = model.generate(source)
    for parameter in model.model.parameters():
        parameter.data.mul_(-1.0)  # without a trace in torch's count of changes
    after = model.generate(source)
    with monkeypatch.context() as patch:
        patch.setattr(generation, "_TOKENS_WORTH_PACKING", 10_000)
        assert torch.equal(model.generate(source), after) and not torch.equal(before, after)
    monkeypatch.setattr(model, "prepare_inputs_for_generation", None)
    with pytest.raises(TypeError):
        model.generate(source, do_sample=True, num_beams=1)
    assert not any(packed(model))


def test_a_pipeline_packs_once_for_all_batches_of_a_call(monkeypatch, tiny_model, tiny_tokenizer):
    packings = []
    pack = linears._packed
    monkeypatch.setattr(linears, "_packed", lambda weight: packings.append(weight) or pack(weight))
    translate = TranslationPipeline(model=tiny_model, tokenizer=tiny_tokenizer)
    texts = ["Two dogs are running in the grass."] * 7
    alone = translate(texts, batch_size=7, max_new_tokens=3)
    once = len(packings)
    assert translate(texts, batch_size=2, max_new_tokens=3) == alone and len(packings) == 2 * once > 0
    assert not any(packed(tiny_model))


def test_what_learns_or_is_of_another_type_is_not_multiplied_packed():
    model = model_of()
    with packed_linears(model):
        model(tokens(2, 4), labels=tokens(2, 4)).loss.backward()
    assert model.lm_head.weight.grad is not None
    with packed_linears(model.to(torch.bfloat16)):
        assert not any(packed(model))
    with torch.autocast("cpu", dtype=torch.bfloat16), packed_linears(model.float()):
        assert not any(packed(model))


def test_little_work_is_not_worth_packing(monkeypatch):
    monkeypatch.setattr(generation, "packed_linears", lambda model: pytest.fail("must not pack"))
    model_of().generate(tokens(1, 9))


# --------------------------------------------------------------------------------------------------------------- int8


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_products_in_8_bits_are_close_to_those_of_floats(rows, bias):
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


def test_a_row_of_zeros_stays_one():
    with torch.no_grad():
        assert not VanillaTransformerInt8Linear(nn.Linear(8, 4, bias=False))(torch.zeros(2, 8)).any()


def test_a_sentence_in_8_bits_does_not_depend_on_its_batch(tmp_path):
    model_of().save_pretrained(tmp_path)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path, dtype="int8")
    layer, states = model.model.encoder.layers[0].fc1, torch.randn(6, 32)
    states[3] *= 100
    with torch.no_grad():
        assert torch.equal(layer(states)[:3], layer(states[:3]))


@pytest.mark.parametrize("dtype", ["int8", torch.int8])
def test_one_argument_makes_the_products_those_of_8_bits(dtype, tmp_path, tiny_model, tiny_tokenizer):
    tiny_model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=dtype)
    kinds = {type(module) for module in model.modules()}
    assert VanillaTransformerInt8Linear in kinds and VanillaTransformerLinear not in kinds
    translate = pipeline("translation", model=str(tmp_path), dtype=dtype)
    assert isinstance(translate, TranslationPipeline)
    assert isinstance(translate.model.lm_head, VanillaTransformerInt8Linear)
    assert translate(["Ein Mann schläft."], max_new_tokens=5)[0]["translation_text"] is not None
    with torch.no_grad():
        source = torch.randint(3, 40, (4, 9))
        exact = tiny_model(source, decoder_input_ids=source).logits
        rounded = model(source, decoder_input_ids=source).logits
    assert 0 < float((rounded - exact).std() / exact.std()) < 0.05


def test_a_model_in_8_bits_neither_learns_nor_is_saved(tmp_path, tiny_model):
    tiny_model.save_pretrained(tmp_path / "float")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "float", dtype="int8")
    with pytest.raises(ValueError, match="cannot learn"):
        model(torch.tensor([[3, 4]]), labels=torch.tensor([[3, 4]])).loss.backward()
    with pytest.raises(ValueError, match=f"Keep the one that it was loaded from, {tmp_path / 'float'}"):
        model.save_pretrained(tmp_path / "int8")
    assert not (tmp_path / "int8").exists()
