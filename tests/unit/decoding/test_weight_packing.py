"""Linear layers packed for oneDNN while a model decodes on a CPU."""

import copy

import pytest
import torch
from torch import nn

from tests.tiny import tiny_model
from vanilla_transformer.decoding.weight_packing import (
    INPUTS_AT_ONCE,
    Int8Linear,
    PackedLinear,
    packed_copy,
)

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN"
)


def kinds(model):
    return {type(layer) for layer in model.modules() if isinstance(layer, nn.Linear)}


def test_packed_copy_shares_the_parameters_and_leaves_the_model():
    model = tiny_model()
    packed = packed_copy(model)
    assert kinds(packed) == {PackedLinear} and kinds(model) == {nn.Linear}
    assert not any(isinstance(layer, nn.Dropout) for layer in packed.modules())
    for name, parameter in packed.named_parameters():
        assert parameter is model.get_parameter(name)
    assert packed.lm_head.weight is packed.model.decoder.embed_tokens.weight


@needs_onednn
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_copy_gives_the_outputs_of_plain_layers(dtype, activation):
    model = tiny_model(attention_bias=True, decoder_layers=2, activation_function=activation)
    model.to(dtype)
    source, target = torch.randint(3, 48, (7, 9)), torch.randint(3, 48, (7, 5))
    with torch.no_grad():
        plain = model(source, decoder_input_ids=target).logits
        packed = packed_copy(model)(source, decoder_input_ids=target).logits
    atol = 1e-5 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(packed, plain, atol=atol, rtol=1e-2)


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packed_linear_computes_relu(dtype, rows):
    layer, states = nn.Linear(48, 64, dtype=dtype), torch.randn(rows, 48, dtype=dtype)
    with torch.no_grad():
        output = PackedLinear(layer, activation="relu")(states)
        plain = layer(states).relu()
    assert (plain == 0).any()
    atol = 1e-5 if dtype != torch.bfloat16 else 0.05
    torch.testing.assert_close(output, plain, atol=atol, rtol=1e-2)


def test_packed_copy_computes_relu_with_the_product_before_it():
    layer = packed_copy(tiny_model().get_encoder().layers[0])
    assert type(layer.activation_fn) is nn.Identity
    with torch.no_grad():
        assert layer.fc1(torch.randn(20, layer.fc1.in_features)).min() == 0


@pytest.mark.parametrize("bias", [True, False])
def test_packed_linear_joins_layers_of_one_input(bias):
    layers, states = [nn.Linear(4, 3, bias), nn.Linear(4, 5, bias)], torch.randn(2, 6, 4)
    joined = PackedLinear(*layers)
    with torch.no_grad():
        plain = torch.cat([layer(states) for layer in layers], dim=-1)
        torch.testing.assert_close(joined(states), plain)
    assert joined.out_features == 8 and (joined.bias is not None) == bias


def as_column(values):
    return values.unsqueeze(-1).expand(*values.shape, 7).clone()[..., 3]


def repeated(values):
    return values[:1].expand(values.shape)


def transposed(values):
    if values.dim() == 2:
        return values.t().clone().t()
    return values.repeat(2)[::2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("strided", [as_column, repeated, transposed])
def test_packed_linear_reads_parameters_by_their_strides(strided, count, dtype):
    layer, states = nn.Linear(48, 64, dtype=dtype), torch.randn(20, 48, dtype=dtype)
    layer.weight = nn.Parameter(strided(layer.weight.detach()))
    layer.bias = nn.Parameter(strided(layer.bias.detach()))
    with torch.no_grad():
        output = PackedLinear(*[layer] * count)(states)
        plain = layer(states).repeat(1, count)
    assert not layer.bias.is_contiguous()
    atol = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(output, plain, atol=atol, rtol=1e-2)


@needs_onednn
def test_packed_linear_can_be_copied_after_it_has_packed_its_weight():
    layer, states = PackedLinear(nn.Linear(4, 3)), torch.randn(9, 4)
    with torch.no_grad():
        layer(states)
        assert torch.equal(copy.deepcopy(layer)(states), layer(states))
        assert layer.packed().is_mkldnn


def test_packed_linear_multiplies_plainly_what_onednn_does_not():
    layer, states = nn.Linear(4, 3).double(), torch.randn(2, 4, dtype=torch.float64)
    assert torch.equal(PackedLinear(layer)(states), layer(states))
    assert PackedLinear(layer).packed() is layer.weight


@needs_onednn
@pytest.mark.parametrize(
    ("rows", "outputs", "dtype", "is_packed"),
    [
        (8, 4, torch.float32, False),
        (9, 4, torch.float32, True),
        (1, 2**18, torch.float32, True),
        (1, 4, torch.bfloat16, True),
    ],
)
def test_few_rows_of_small_weights_are_plain(rows, outputs, dtype, is_packed):
    layer = PackedLinear(nn.Linear(2, outputs, dtype=dtype))
    states = torch.randn(rows, 1, 2, dtype=dtype)
    with torch.no_grad():
        plain = nn.functional.linear(states, layer.weight, layer.bias)
        is_plain = torch.equal(layer(states), plain)
    assert (layer._packed is not None) == is_packed
    assert is_packed or is_plain


@pytest.mark.parametrize("activation", ["relu", "none"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 8, 9])
def test_int8_linear_rounds_weights_for_few_rows(rows, bias, activation):
    packed = PackedLinear(nn.Linear(3 * INPUTS_AT_ONCE, 7, bias), activation=activation)
    packed.weight.data[2] = 0.0  # a row without a scale
    layer = Int8Linear(packed)
    assert layer.weight is packed.weight and layer.integers.abs().max() == 127
    states = torch.randn(rows, 1, 3 * INPUTS_AT_ONCE)
    rounded = layer.integers * layer.scale.float()[:, None]
    torch.testing.assert_close(rounded, packed.weight, atol=2e-3, rtol=0)
    with torch.no_grad():
        exact, output = packed(states), layer(states)
        few = nn.functional.linear(states.bfloat16().float(), rounded, packed.bias)
    if activation == "relu":
        few = few.relu()
    assert torch.equal(output, exact) == (rows == 9)
    expected = {1: few, 8: few, 9: exact}[rows]
    torch.testing.assert_close(output, expected, atol=0.02, rtol=0.01)


def test_torch_multiplies_int8_weights_of_any_number_of_rows():
    """This operation is private, and reads beyond the rows of other widths."""
    for outputs in (1, 6, 31):
        integers = torch.randint(-127, 128, (outputs, INPUTS_AT_ONCE), dtype=torch.int8)
        scale, rows = torch.rand(outputs).bfloat16(), torch.randn(3, INPUTS_AT_ONCE).bfloat16()
        products = torch._weight_int8pack_mm(rows, integers, scale)
        expected = rows.float() @ (integers * scale.float()[:, None]).t()
        torch.testing.assert_close(products.float(), expected, atol=1.0, rtol=0.01)


@pytest.mark.parametrize("few", [True, False])
def test_int8_linear_asks_the_compiled_form_and_not_the_rows(few, monkeypatch):
    layer, states = Int8Linear(PackedLinear(nn.Linear(INPUTS_AT_ONCE, 5))), torch.randn(9, 1, 32)
    layer.compiles_few_rows = few
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        exact = nn.functional.linear(states, layer.weight, layer.bias)
        assert torch.equal(layer(states), exact) != few
