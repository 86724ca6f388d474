"""Packed batches in training: each pair is computed as if it were alone, and runs compile one shape
and resume.
"""

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.sweeps import rare
from tests.tiny import tiny_model
from tests.tiny_runs import assert_equal_tensors, flags, no_scores
from vanilla_transformer.data.packing import packed_shape, plan_packed_batches
from vanilla_transformer.data.tokenized_corpus import (
    EncodedPair,
    EncodedPairs,
    TokenTable,
    to_dataset,
)
from vanilla_transformer.extensions.alignments.guided_alignment import GuidedAlignment
from vanilla_transformer.training.device_batch import BatchPreparation, batch_to_device
from vanilla_transformer.training.loss import ModelWithLoss
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.train_state import TrainState
from vanilla_transformer.training.trainer import train

CPU = torch.device("cpu")


def random_sentence(random):
    length = random.integers(1, 9)
    return [*random.integers(5, 40, length).tolist(), 2]


def random_pairs(number=12):
    """Return pairs of 2 to 9 tokens, the last one EOS, with a few links each: target, source and
    divisor.
    """
    random = np.random.default_rng(0)
    pairs, links = [], []
    for _ in range(number):
        source, target = random_sentence(random), random_sentence(random)
        pairs.append(EncodedPair(source, target))
    for pair in pairs:
        row = []
        for _ in range(3):
            target = int(random.integers(len(pair.target)))
            row += [target, int(random.integers(len(pair.source))), 2]
        links.append(row)
    features = {"links": datasets.Sequence(datasets.Value("int32"))}
    column = datasets.Dataset.from_dict({"links": links}, datasets.Features(features))
    columns = datasets.concatenate_datasets([to_dataset(pairs), column], axis=1)
    return EncodedPairs(TokenTable(columns))


def gradients_of(model, batch, guided):
    model.zero_grad()
    terms = [GuidedAlignment(number=1, weight=0.3)] if guided else []
    inputs = batch_to_device(batch, BatchPreparation.for_model(model), CPU)
    loss = ModelWithLoss(model, 0.1, terms)(inputs)
    loss.smoothed.backward()
    return [*loss, *(weight.grad for weight in model.parameters())]


LEARNED = {"position_embedding_type": "learned", "normalize_before": True}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("changes", [{}, LEARNED], ids=["paper", "learned"])
@pytest.mark.parametrize("guided", [False, True])
def test_packed_batch_has_loss_and_gradients_of_padded_one(attention, changes, guided):
    model = tiny_model(vocab_size=40, dropout=0.0, decoder_layers=2, **changes).double()
    model.set_attn_implementation(attention)
    pairs = random_pairs()
    shape = packed_shape(pairs.source_lengths, pairs.target_lengths, 48)
    # The source has more padding than the target.
    shape = shape._replace(rows=3, source_length=40)
    plan = plan_packed_batches(pairs.source_lengths, pairs.target_lengths, shape)
    (order,), (rows,) = plan[0], plan.rows_of(0)
    packed = pairs.table.pack(order, rows, shape, pad_token_id=0)
    assert len(plan) == 1 and rows.max() == 2 and (packed["labels"] == -100).any()
    padded = pairs.table.pad(order, pad_token_id=0)
    expected = gradients_of(model, padded, guided)
    for ours, theirs in zip(gradients_of(model, packed, guided), expected, strict=True):
        atol = 1e-5 * max(10.0, theirs.abs().max().item())
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=atol)


def test_pack_places_links_of_each_pair():
    pairs = random_pairs()
    shape = packed_shape(pairs.source_lengths, pairs.target_lengths, 48)
    shape = shape._replace(rows=3)
    plan = plan_packed_batches(pairs.source_lengths, pairs.target_lengths, shape)
    (order,), (rows,) = plan[0], plan.rows_of(0)
    batch = pairs.table.pack(order, rows, shape, pad_token_id=0)
    places, weights = batch["link_places"], batch["link_weights"]
    target = places // shape.source_length
    row = target // shape.target_length
    source = row * shape.source_length + places % shape.source_length
    linked = zip(
        batch["labels"].flatten()[target].tolist(),
        batch["input_ids"].flatten()[source].tolist(),
        strict=True,
    )
    expected = []
    for index in map(int, order):
        pair, links = pairs[index], pairs.table.dataset[index]["links"]
        for link in np.array(links).reshape(-1, 3):
            expected.append((pair.target[link[0]], pair.source[link[1]]))
    count = len(expected)
    assert [*linked][:count] == expected
    assert weights[:count].all() and len(weights) > count and not weights[count:].any()
    assert len(places) % batch["labels"].numel() == 0
    assert len(places) <= pairs.table.max_links(batch["labels"].numel())


ACCUMULATED = {"gradient_accumulation_steps": 2, "mixed_precision": "bf16"}
ACCUMULATED["r_drop_weight"] = 5.0


@pytest.mark.parametrize("changes", [rare({}), ACCUMULATED], ids=str)
def test_packed_run_resumes_within_an_epoch(corpus, tmp_path, changes):
    options = {"packing": True, "max_tokens": 40, "save_steps": 3, "eval_steps": 3}
    options |= {"dropout": 0.1, "warmup_steps": 3, **changes}
    for name, max_steps in (("whole", 9), ("resumed", 3), ("resumed", 9)):
        words = flags(corpus, tmp_path / name, max_steps=max_steps, **options)
        train(parse_recipe(words), evaluate=no_scores)
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    resumed = load_file(tmp_path / "resumed" / "model.safetensors")
    assert_equal_tensors(whole, resumed)


class OnGPU:
    device, num_processes = torch.device("cuda"), 1


@pytest.mark.parametrize(
    ("device", "changes", "expected"),
    [
        ("cpu", {}, (False, False)),
        ("cuda", {}, (True, True)),
        ("cuda", {"compile": False}, (False, False)),
        ("cuda", {"packing": False}, (True, False)),
        ("cpu", {"compile": True}, (True, False)),
        ("cpu", {"packing": True}, (False, True)),
    ],
    ids=str,
)
def test_train_compiles_and_packs_by_default_on_a_gpu(
    tmp_path, monkeypatch, device, changes, expected
):
    class Stopped(Exception):
        pass

    def stop(state, model):
        raise Stopped(state.compiled, state.packing)

    monkeypatch.setattr(TrainState, "_wrap", stop)
    words = ["--train_source", "a", "--train_target", "b", "--output_dir", str(tmp_path)]
    words += [f"--{name}={value}" for name, value in changes.items()]
    recipe = parse_recipe(words)
    accelerator = OnGPU()
    accelerator.device = torch.device(device)
    with pytest.raises(Stopped) as stopped:
        TrainState(recipe, tiny_model(vocab_size=40), None, accelerator, {})
    assert stopped.value.args == expected
