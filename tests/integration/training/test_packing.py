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


def random_pairs(number=12):
    """Return pairs of 2 to 9 tokens, the last one EOS, with a few links each: target, source and
    divisor.
    """
    random = np.random.default_rng(0)
    pairs = [
        EncodedPair(
            *([*random.integers(5, 40, random.integers(1, 9)).tolist(), 2] for _ in range(2))
        )
        for _ in range(number)
    ]
    links = [
        [
            int(each)
            for _ in range(3)
            for each in (random.integers(len(pair.target)), random.integers(len(pair.source)), 2)
        ]
        for pair in pairs
    ]
    column = datasets.Dataset.from_dict(
        {"links": links},
        features=datasets.Features({"links": datasets.Sequence(datasets.Value("int32"))}),
    )
    return EncodedPairs(
        TokenTable(datasets.concatenate_datasets([to_dataset(pairs), column], axis=1))
    )


def gradients_of(model, batch, guided):
    model.zero_grad()
    terms = [GuidedAlignment(number=1, weight=0.3)] if guided else []
    loss = ModelWithLoss(model, 0.1, terms)(
        batch_to_device(batch, BatchPreparation.for_model(model), CPU)
    )
    loss.smoothed.backward()
    return [*loss, *(each.grad for each in model.parameters())]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"position_embedding_type": "learned", "normalize_before": True}],
    ids=["paper", "learned"],
)
@pytest.mark.parametrize("guided", [False, True])
def test_packed_batch_has_loss_and_gradients_of_padded_one(attention, changes, guided):
    model = tiny_model(vocab_size=40, dropout=0.0, decoder_layers=2, **changes).double()
    model.set_attn_implementation(attention)
    pairs = random_pairs()
    shape = packed_shape(pairs.source_lengths, pairs.target_lengths, 48)
    shape = shape._replace(rows=3, source_length=40)  # the source has more padding than the target
    plan = plan_packed_batches(pairs.source_lengths, pairs.target_lengths, shape)
    (order,), (rows,) = plan[0], plan.rows_of(0)
    packed = pairs.table.pack(order, rows, shape, pad_token_id=0)
    assert len(plan) == 1 and rows.max() == 2 and (packed["labels"] == -100).any()
    padded = pairs.table.pad(order, pad_token_id=0)
    for ours, theirs in zip(
        *(gradients_of(model, batch, guided) for batch in (packed, padded)), strict=True
    ):
        torch.testing.assert_close(
            ours, theirs, rtol=1e-4, atol=1e-5 * max(10.0, theirs.abs().max().item())
        )


def test_pack_places_links_of_each_pair():
    pairs = random_pairs()
    shape = packed_shape(pairs.source_lengths, pairs.target_lengths, 48)._replace(rows=3)
    plan = plan_packed_batches(pairs.source_lengths, pairs.target_lengths, shape)
    (order,), (rows,) = plan[0], plan.rows_of(0)
    batch = pairs.table.pack(order, rows, shape, pad_token_id=0)
    target = batch["link_places"] // shape.source_length
    source = (
        target // shape.target_length * shape.source_length
        + batch["link_places"] % shape.source_length
    )
    found = zip(
        batch["labels"].flatten()[target].tolist(),
        batch["input_ids"].flatten()[source].tolist(),
        strict=True,
    )
    links = [np.array(pairs.table.dataset[int(row)]["links"]).reshape(-1, 3) for row in order]
    expected = [
        (pairs[int(row)].target[link[0]], pairs[int(row)].source[link[1]])
        for row, each in zip(order, links, strict=True)
        for link in each
    ]
    found, rest = [*found][: len(expected)], batch["link_weights"][len(expected) :]
    assert found == expected and batch["link_weights"][: len(expected)].all()
    assert len(batch["link_places"]) % batch["labels"].numel() == 0 < len(rest) and not rest.any()
    assert len(batch["link_places"]) <= pairs.table.max_links(batch["labels"].numel())


@pytest.mark.parametrize(
    "changes",
    [rare({}), {"gradient_accumulation_steps": 2, "mixed_precision": "bf16", "r_drop_weight": 5.0}],
    ids=str,
)
def test_packed_run_resumes_within_an_epoch(corpus, tmp_path, changes):
    options = {
        "packing": True,
        "max_tokens": 40,
        "save_steps": 3,
        "eval_steps": 3,
        "dropout": 0.1,
    } | changes
    for name, steps in (("whole", [9]), ("resumed", [3, 9])):
        for max_steps in steps:
            recipe = parse_recipe(
                flags(corpus, tmp_path / name, max_steps=max_steps, warmup_steps=3, **options)
            )
            train(recipe, evaluate=no_scores)
    whole, resumed = (
        load_file(tmp_path / name / "model.safetensors") for name in ("whole", "resumed")
    )
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
    class Found(Exception):
        pass

    def stop(state, model):
        raise Found(state.compiled, state.packing)

    monkeypatch.setattr(TrainState, "_wrap", stop)
    words = [word for name, value in changes.items() for word in (f"--{name}", str(value))]
    recipe = parse_recipe(
        ["--train_source", "a", "--train_target", "b", "--output_dir", str(tmp_path), *words]
    )
    accelerator = OnGPU()
    accelerator.device = torch.device(device)
    with pytest.raises(Found) as found:
        TrainState(recipe, tiny_model(vocab_size=40), None, accelerator, {})
    assert found.value.args == expected
