"""Linear layers packed for oneDNN while a model decodes on a CPU."""

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.inference import weight_packing
from vanilla_transformer.inference.weight_packing import PackedLinear, packed_weights

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")


def tokens(sentences, length):
    return torch.randint(3, 48, (sentences, length))


def kinds(model):
    return {type(layer) for layer in model.modules() if isinstance(layer, nn.Linear | PackedLinear)}


@needs_onednn
def test_packed_weights_give_the_products_of_plain_layers():
    model = tiny_model(attention_bias=True, decoder_layers=2)
    source, target = tokens(7, 9), tokens(7, 5)
    with torch.no_grad():
        plain = model(source, decoder_input_ids=target).logits
        with packed_weights(model):
            assert kinds(model) == {PackedLinear}
            with packed_weights(model):
                inside = model(source, decoder_input_ids=target).logits
            assert kinds(model) == {PackedLinear}, "the inner block must leave the layers of the outer one"
    assert kinds(model) == {nn.Linear}
    torch.testing.assert_close(inside, plain, atol=1e-5, rtol=1e-5)


@needs_onednn
def test_packed_weights_keep_names_parameters_and_modules_of_the_model():
    model = tiny_model()
    layers, state = dict(model.named_modules()), model.state_dict()
    with packed_weights(model):
        assert model.state_dict().keys() == state.keys()
        assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    assert dict(model.named_modules()) == layers


@needs_onednn
@pytest.mark.parametrize("beams", [1, 4])
def test_packed_weights_join_the_projections_of_one_input(beams):
    model = tiny_model(attention_bias=True, decoder_layers=2)
    source = tokens(16, 9)
    alone = model.generate(source[:1], num_beams=beams)  # too little to be worth packing
    width = min(alone.shape[1], 4)
    assert torch.equal(model.generate(source, num_beams=beams)[0, :width], alone[0, :width])
    with packed_weights(model):
        assert [hasattr(layer.self_attn, "qkv_proj") for layer in model.model.decoder.layers] == [True, True]
    assert not hasattr(model.model.decoder.layers[0].self_attn, "qkv_proj")


@needs_onednn
def test_generate_packs_weights_for_each_call(monkeypatch):
    model, seen = tiny_model(), []
    hook = model.model.encoder.register_forward_pre_hook(lambda *_: seen.append(kinds(model)))
    source = tokens(16, 9)
    before = model.generate(source)
    assert seen == [{PackedLinear}] and kinds(model) == {nn.Linear}
    hook.remove()
    for parameter in model.model.parameters():
        parameter.data.mul_(-1.0)  # without a trace in torch's count of changes
    after = model.generate(source)
    with monkeypatch.context() as patch:
        patch.setattr(weight_packing, "_TOKENS_WORTH_PACKING", 10_000)
        assert torch.equal(model.generate(source), after) and not torch.equal(before, after)
    monkeypatch.setattr(model, "prepare_inputs_for_generation", None)
    with pytest.raises(TypeError):
        model.generate(source, do_sample=True, num_beams=1)
    assert kinds(model) == {nn.Linear}


@needs_onednn
def test_translation_pipeline_packs_weights_once_for_all_batches(monkeypatch, tiny_model, tiny_tokenizer):
    packings = []

    class Counted(PackedLinear):
        def __init__(self, *linears):
            super().__init__(*linears)
            packings.append(self)

    monkeypatch.setattr(weight_packing, "PackedLinear", Counted)
    translate = TranslationPipeline(model=tiny_model, tokenizer=tiny_tokenizer)
    texts = ["Two dogs are running in the grass."] * 7
    alone = translate(texts, batch_size=7, max_new_tokens=3)
    once = len(packings)
    assert translate(texts, batch_size=2, max_new_tokens=3) == alone and len(packings) == 2 * once > 0
    assert kinds(tiny_model) == {nn.Linear}


@needs_onednn
def test_packed_linear_multiplies_plainly_for_autograd_and_other_types():
    model = tiny_model()
    with packed_weights(model):
        model(tokens(2, 4), labels=tokens(2, 4)).loss.backward()
    assert model.lm_head.weight.grad is not None
    with packed_weights(model.to(torch.bfloat16)):
        assert kinds(model) == {nn.Linear}
    with torch.autocast("cpu", dtype=torch.bfloat16), packed_weights(model.float()):
        assert kinds(model) == {nn.Linear}


def test_packed_weights_leave_layers_with_hooks():
    model, seen = tiny_model(), []
    model.lm_head.register_forward_pre_hook(lambda layer, inputs: seen.append(type(layer)))
    model.generate(tokens(16, 9))
    assert set(seen) == {nn.Linear}


def test_packed_weights_leave_small_requests():
    model, seen = tiny_model(), []
    model.model.encoder.register_forward_pre_hook(lambda *_: seen.append(kinds(model)))
    model.generate(tokens(1, 9))
    assert seen == [{nn.Linear}]


@needs_onednn
def test_packed_weights_last_as_long_as_any_block():
    """Two threads generate: the first to begin ends first."""
    model = tiny_model()
    with ExitStack() as second:
        with packed_weights(model):
            second.enter_context(packed_weights(model))
        assert kinds(model) == {PackedLinear}
        assert hasattr(model.model.decoder.layers[0].self_attn, "qkv_proj")
    assert kinds(model) == {nn.Linear}
    assert not hasattr(model.model.decoder.layers[0].self_attn, "qkv_proj")


@needs_onednn
def test_packed_weights_let_other_threads_iterate_over_modules():
    attention = (model := tiny_model()).model.decoder.layers[0].self_attn
    names = iter(attention.named_modules())
    found = [next(names)[0], next(names)[0]]
    with packed_weights(model):
        found += [name for name, _ in names]
    assert found == ["", "q_proj", "k_proj", "v_proj", "out_proj"]
