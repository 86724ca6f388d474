"""DDP and FSDP2: what each device holds, in which types, and what Accelerate does not do."""

from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.tensor import DTensor

from tests.launchers import run_two_processes
from tests.sweeps import rare
from tests.tiny_runs import flags
from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.training.distributed import create_accelerator
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.train_state import TrainState
from vanilla_transformer.training.train_step import train_step


@pytest.fixture
def process_group():
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_train_state_with_fsdp_keeps_no_full_copy(
    corpus, tmp_path, tiny_model, tiny_tokenizer, process_group
):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", fsdp=True))
    expected = {name: tensor.clone() for name, tensor in tiny_model.state_dict().items()}
    state = TrainState(recipe, tiny_model, tiny_tokenizer, Accelerator(cpu=True), {})
    del tiny_model
    models = [value for value in vars(state).values() if isinstance(value, torch.nn.Module)]
    tensors = [tensor for model in models for tensor in model.parameters()]
    assert all(isinstance(tensor, DTensor) or tensor.device.type == "meta" for tensor in tensors)
    for to_save in (False, True):
        gathered = state.gather_model(to_save).state_dict()
        assert gathered.keys() == expected.keys()
        assert all(torch.equal(gathered[name], expected[name]) for name in expected)


def test_gradients_are_views_of_buckets(
    corpus, tmp_path, tiny_model, tiny_tokenizer, process_group
):
    recipe = parse_recipe(flags(corpus, tmp_path / "run"))
    accelerator = create_accelerator(recipe)
    accelerator.state.distributed_type = DistributedType.MULTI_CPU  # as with several processes
    state = TrainState(recipe, tiny_model, tiny_tokenizer, accelerator, {})
    assert state.wrapped_model.gradient_as_bucket_view


def test_create_accelerator_leaves_sharding_to_training(corpus, tmp_path, monkeypatch):
    recipe = parse_recipe(flags(corpus, tmp_path / "run"))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    seen = []
    monkeypatch.setattr(FullyShardedDataParallelPlugin, "__post_init__", seen.append)
    create_accelerator(recipe)
    assert not seen


GUIDED = {
    "train_alignments": "agreement",
    "alignment_weight": 1.0,
    "decoder_layers": 2,
    "alignment_layer": 0,
}


def guided_batches(processes):
    """Return two micro-batches of each process, with links between the first tokens of their
    sentences.
    """
    batches = micro_batches([5, 3, 4], [4, 4])
    batches = [
        replace(batch, step_target_tokens=processes * batch.step_target_tokens) for batch in batches
    ]
    for batch in batches:
        width = batch.tensors["labels"].shape[1] * batch.tensors["input_ids"].shape[1]
        places = torch.arange(len(batch.pairs)) * width
        batch.tensors.update(link_places=places, link_weights=torch.full(places.shape, 1.0 / 3.0))
    return batches


def learn(folder, precision, **changes):
    """Train for a few steps.

    Return the losses, the types of parameters that are used, and what the state is like.
    """
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    sizes = {"dropout": 0.0, "encoder_layers": 2, "decoder_layers": 2}
    state = tiny_train_state(
        folder, accelerator, sizes, mixed_precision=precision, ema_decay=0.9, **GUIDED, **changes
    )
    used = set()
    for module in state.unwrapped_model.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm | torch.nn.Embedding):
            module.register_forward_pre_hook(lambda module, _: used.add(module.weight.dtype))
    norms = [train_step(state, guided_batches(accelerator.num_processes)) for _ in range(6)]
    losses = state.measure_steps(norms[-1])["smoothed_loss"], [float(norm) for norm in norms]
    kept = [*state.unwrapped_model.parameters(), *state.ema.state_dict().values()]
    kept += [tensor for each in state.optimizer.state.values() for tensor in each.values()]
    sharded = {isinstance(each, DTensor) for each in kept if each.dim()}
    model = state.gather_model()
    return (
        losses,
        used,
        {each.dtype for each in kept},
        sharded,
        model.dtype,
        model.config.alignment_heads,
    )


def learn_sharded(rank, folder, found):
    """Train as one process of two, each with the same micro-batches as one process alone."""
    for precision in ("no", "bf16"):
        AcceleratorState._reset_state(reset_partial_state=True)
        found[precision, rank] = learn(folder, precision, fsdp=True)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    return run_two_processes(learn_sharded, tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"), [rare(("no", "float32", 1e-5)), ("bf16", "bfloat16", 0.03)]
)
def test_two_processes_gather_parameters_in_the_precision(
    sharded, tmp_path, precision, dtype, tolerance
):
    """Shards, moments and moving average stay float32, and one process alone has the same losses
    and gradients.
    """
    (loss, norms), *_ = learn(tmp_path, precision)
    for rank in (0, 1):
        (found, found_norms), *rest = sharded[precision, rank]
        assert rest == [{getattr(torch, dtype)}, {torch.float32}, {True}, torch.float32, [[0, 0]]]
        assert found == pytest.approx(loss, rel=tolerance)
        assert found_norms[:2] == pytest.approx(norms[:2], rel=tolerance)
