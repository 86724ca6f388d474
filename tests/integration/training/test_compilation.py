"""
`compile: true`: one graph for each kind of layer, for batches of all shapes.

`compile` and attention implementations that the machine cannot run: one line before training
starts.
"""

import os
import random
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from accelerate import Accelerator
from torch._dynamo.utils import counters

from tests.sweeps import rare
from tests.tiny import TINY_SIZES
from tests.tiny_runs import assert_similar_weights, flags, train_tiny, watch_attention
from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.training import compilation, device_batch, train_state, trainer
from vanilla_transformer.training.loss import cross_entropy_in_graph, projected_cross_entropy
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.train_step import compile_train_step, train_step

STEPS = {"max_steps": 16, "eval_steps": 8, "save_steps": 8, "max_tokens": 40}
THREE_LAYERS = {"encoder_layers": 3, "decoder_layers": 3}


@pytest.fixture
def graphs(monkeypatch):
    """Let torch trace without compiling, from an empty cache, and return the graphs and their
    inputs.
    """
    traced = []

    def backend(graph, inputs):
        traced.append((graph, inputs))
        return graph.forward

    monkeypatch.setattr(compilation, "_BACKEND", backend)
    torch.compiler.reset()
    counters.clear()
    yield traced
    torch.compiler.reset()


def write_uneven_pairs(corpus, pairs=40):
    """Write pairs whose sides differ in length, among them some that fill a batch alone."""
    draw = random.Random(2)
    lengths = [draw.randint(1, 20) for _ in range(pairs)]
    for end, letters, most in (("a", "abcdef", 0), ("b", "ABCDEF", 4)):
        lines = []
        for length in lengths:
            words = max(1, length + draw.randint(-most, most))
            lines.append(" ".join(draw.choices(letters, k=words)))
        (corpus / f"train.{end}").write_text("\n".join(lines) + "\n")


def train_counting(corpus, folder, monkeypatch, **changes):
    """Train with steps in which a recompilation is an error, and return the shapes of their
    batches.
    """
    shapes = set()
    stance = torch.compiler.set_stance if changes["compile"] else nullcontext

    def counting(state, micro_batches):
        shapes.update(tuple(batch.tensors["labels"].shape) for batch in micro_batches)
        with stance("fail_on_recompile"):
            return train_step(state, micro_batches)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", counting)
        train_tiny(corpus, folder, **STEPS | changes)
    return shapes


def assert_like_eager(corpus, tmp_path, monkeypatch, changes):
    """Train without compilation, and compare the weights."""
    if not changes.get("dropout"):  # whose masks are drawn in another way
        monkeypatch.setattr(trainer, "choose_padding", lambda *_: 8)  # as compiled
        options = {"compile": False, **changes}
        train_counting(corpus, tmp_path / "eager", monkeypatch, **options)
        assert_similar_weights(tmp_path / "eager", tmp_path / "compiled")


def inputs_of(graphs):
    inputs = []
    for _, inputs_of_graph in graphs:
        inputs += inputs_of_graph
    return inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_accumulation_steps": 2, "ema_decay": 0.9},
        rare({"mixed_precision": "bf16", "label_smoothing": 0.0, "dropout": 0.1}),
        rare({}),
        rare({"attn_implementation": "eager"}),
        rare({"train_alignments": "agreement"}),
        rare({"normalize_before": True, "position_embedding_type": "learned"}),
    ],
    ids=str,
)
def test_train_compiles_two_graphs(corpus, tmp_path, monkeypatch, graphs, changes):
    """Compile them before the first step."""
    write_uneven_pairs(corpus)
    changes = THREE_LAYERS | changes
    options = {"compile": True, **changes}
    shapes = train_counting(corpus, tmp_path / "compiled", monkeypatch, **options)
    assert len(graphs) == 2 and not counters["graph_break"]
    tensors = [tensor for tensor in inputs_of(graphs) if isinstance(tensor, torch.Tensor)]
    assert tensors
    for tensor in tensors:
        assert tensor.dim() or not tensor.is_floating_point()
    assert len(shapes) > 4 and 1 in {rows for rows, _ in shapes}
    assert_like_eager(corpus, tmp_path, monkeypatch, changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": "eager", "train_alignments": "agreement"},
        rare({}),
        rare({"gradient_accumulation_steps": 2, "ema_decay": 0.9}),
        rare({"mixed_precision": "bf16", "label_smoothing": 0.0, "dropout": 0.1}),
    ],
    ids=str,
)
def test_train_compiles_one_packed_shape(corpus, tmp_path, monkeypatch, graphs, changes):
    write_uneven_pairs(corpus)
    changes = THREE_LAYERS | changes | {"packing": True}
    options = {"compile": True, **changes}
    shapes = train_counting(corpus, tmp_path / "compiled", monkeypatch, **options)
    assert len(graphs) == 2 and not counters["graph_break"] and len(shapes) == 1
    inputs = inputs_of(graphs)
    assert inputs
    for tensor in inputs:
        assert isinstance(tensor, torch.Tensor) and tensor.dim()
    assert_like_eager(corpus, tmp_path, monkeypatch, changes)


LONG = [rare("linear_attention"), rare("transfo_xl_attention")]


@pytest.mark.parametrize("attention", LONG)
def test_train_compiles_long_layers(corpus, tmp_path, monkeypatch, graphs, attention):
    write_uneven_pairs(corpus)
    options = {"compile": True, "layer_types": attention, **THREE_LAYERS}
    train_counting(corpus, tmp_path / "run", monkeypatch, **options)
    assert len(graphs) == 2 and not counters["graph_break"]


@pytest.mark.sweep
def test_train_compiles_layers_with_adapters(corpus, tmp_path, monkeypatch, graphs):
    initial = train_tiny(corpus, tmp_path / "initial", max_steps=2)
    changes = dict.fromkeys([*TINY_SIZES, "vocab_size"])
    changes |= {"init_from": initial, "lora_rank": 2}
    changes |= {"learning_rate": 0.001, "lr_scheduler": "linear"}
    train_counting(corpus, tmp_path / "compiled", monkeypatch, compile=True, **changes)
    assert len(graphs) == 2 and not counters["graph_break"]
    assert_like_eager(corpus, tmp_path, monkeypatch, changes)


@pytest.mark.parametrize("precision", ["bf16", rare("no")])
def test_sharded_layers_share_two_graphs(tmp_path, graphs, precision):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        accelerator = Accelerator(cpu=True, mixed_precision=precision)
        state = tiny_train_state(tmp_path, accelerator, compile=True, fsdp=True)
        compile_train_step(state, [micro_batches([5, 3, 4, 2])])
        for lengths in ([6, 3, 4, 2], [7, 7], [9, 3, 2, 2, 2]):
            train_step(state, micro_batches(lengths))
        state.read_steps()
    finally:
        torch.distributed.destroy_process_group()
    assert len(graphs) == 2 and not counters["graph_break"]


def test_train_pads_to_multiples_of_eight(corpus, tmp_path, monkeypatch, graphs):
    """Pad where it compiles by default."""
    monkeypatch.setattr(train_state, "should_compile", lambda *_: True)
    monkeypatch.setattr(trainer, "compile_train_step", lambda *_: None)
    options = {"max_steps": 1, "encoder_layers": 1, "decoder_layers": 1}
    recipe = parse_recipe(flags(corpus, tmp_path / "run", **options))
    prepared = trainer.prepare_run(recipe, trainer.RunFolder(recipe))
    assert prepared.state.progress.recipe["pad_to_multiple_of"] == 8
    for batch in next(iter(prepared.batches)):
        assert batch.tensors["labels"].shape[1] % 8 == 0


@pytest.mark.sweep
def test_different_runs_of_a_process_compile(tmp_path, graphs):
    with torch._dynamo.config.patch(recompile_limit=2):
        for percent in range(2):
            options = {"sizes": {"dropout": percent / 100}, "compile": True}
            state = tiny_train_state(tmp_path / str(percent), **options)
            compile_train_step(state, [micro_batches([5, 3, 4, 2])])
    assert len(graphs) == 4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_loss_in_graph_is_the_loss_of_chunks(smoothing, has_bias):
    generator = torch.Generator().manual_seed(0)
    results = []
    for function in (projected_cross_entropy, cross_entropy_in_graph):
        generator.manual_seed(0)
        random_weight = partial(torch.randn, generator=generator, requires_grad=True)
        states, weight = random_weight((3, 5, 8)), random_weight((20, 8))
        bias = random_weight(20) if has_bias else None
        labels = torch.randint(20, (3, 5), generator=generator)
        labels[0, 3:] = labels[2, 1:] = -100
        losses = function(states, weight, bias, labels, smoothing)
        (losses.smoothed * 0.5).backward()
        gradients = [states.grad, weight.grad]
        if has_bias:
            gradients.append(bias.grad)
        results.append([*losses, *gradients])
        assert not losses.plain.requires_grad
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("r_drop_weight", [rare(0.0), 5.0])
def test_loss_in_graph_is_for_logits_that_fit(tmp_path, graphs, monkeypatch, r_drop_weight):
    state = tiny_train_state(tmp_path, compile=True, r_drop_weight=r_drop_weight)
    options = {"backend": compilation._BACKEND, "fullgraph": True, "dynamic": True}
    compiled = torch.compile(cross_entropy_in_graph, **options)
    state.model_with_loss.loss_in_graph = compiled
    state.batch_preparation = replace(state.batch_preparation, loss_in_graph=True)
    compile_train_step(state, [micro_batches([5, 3, 4, 2])])
    assert len(graphs) == 3
    losses = []
    for limit in (2**30, 0):
        monkeypatch.setattr(device_batch, "_LOGITS_IN_GRAPH", limit)
        (batch,) = micro_batches([6, 3, 4])
        torch.manual_seed(0)  # of dropout
        inputs = state.batch_preparation(batch.tensors)
        losses.append(state.wrapped_model(inputs).smoothed.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and len(graphs) == 3


@pytest.mark.parametrize("packing", [False, True])
def test_packing_alone_uses_cudnn_attention(corpus, tmp_path, monkeypatch, packing):
    """Leave it off for batches of many shapes."""
    seen = watch_attention(monkeypatch)
    train_tiny(corpus, tmp_path / "run", max_steps=2, packing=packing)
    assert {enabled for trains, enabled in seen if trains} == {packing}
    assert {enabled for trains, enabled in seen if not trains} == {False}  # validation
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no modes")
@pytest.mark.parametrize("chosen", [True, None])
def test_train_refuses_code_that_others_may_change(corpus, tmp_path, monkeypatch, chosen):
    # As by default on a GPU.
    monkeypatch.setattr(train_state, "should_compile", lambda *_: True)
    cache = tmp_path / "inductor"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    message = f"Torch keeps compiled code in {cache}, but other users can write"
    with pytest.raises(OSError, match=message):
        train_tiny(corpus, tmp_path / "run", compile=chosen)
    assert not (tmp_path / "run").exists()


def test_train_refuses_compile_without_compiler(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    message = "`compile` needs a C.. compiler, and there is none. Install g"
    with pytest.raises(ValueError, match=message):
        train_tiny(corpus, tmp_path / "run", compile=True)
    assert not (tmp_path / "run").exists()
