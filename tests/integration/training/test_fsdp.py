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
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_train_state_with_fsdp_keeps_no_full_copy(
    corpus, tmp_path, tiny_model, tiny_tokenizer, process_group
):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", fsdp=True))
    expected = {}
    for name, tensor in tiny_model.state_dict().items():
        expected[name] = tensor.clone()
    state = TrainState(recipe, tiny_model, tiny_tokenizer, Accelerator(cpu=True), {})
    del tiny_model
    for model in vars(state).values():
        if isinstance(model, torch.nn.Module):
            for tensor in model.parameters():
                assert isinstance(tensor, DTensor) or tensor.device.type == "meta"
    for to_save in (False, True):
        gathered = state.gather_model(to_save).state_dict()
        assert gathered.keys() == expected.keys()
        for name, tensor in gathered.items():
            assert torch.equal(tensor, expected[name])


def test_gradients_are_views_of_buckets(
    corpus, tmp_path, tiny_model, tiny_tokenizer, process_group
):
    recipe = parse_recipe(flags(corpus, tmp_path / "run"))
    accelerator = create_accelerator(recipe)
    # As with several processes.
    accelerator.state.distributed_type = DistributedType.MULTI_CPU
    state = TrainState(recipe, tiny_model, tiny_tokenizer, accelerator, {})
    assert state.wrapped_model.gradient_as_bucket_view


def test_create_accelerator_leaves_sharding_to_training(corpus, tmp_path, monkeypatch):
    recipe = parse_recipe(flags(corpus, tmp_path / "run"))
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    seen = []
    monkeypatch.setattr(FullyShardedDataParallelPlugin, "__post_init__", seen.append)
    create_accelerator(recipe)
    assert not seen


GUIDED = {"train_alignments": "agreement", "alignment_weight": 1.0}
GUIDED |= {"decoder_layers": 2, "alignment_layer": 0}


def guided_batches(processes):
    """Return two micro-batches of each process, with links between the first tokens of their
    sentences.
    """
    batches = []
    for batch in micro_batches([5, 3, 4], [4, 4]):
        batch = replace(batch, step_target_tokens=processes * batch.step_target_tokens)
        width = batch.tensors["labels"].shape[1] * batch.tensors["input_ids"].shape[1]
        places = torch.arange(len(batch.pairs)) * width
        weights = torch.full(places.shape, 1.0 / 3.0)
        batch.tensors.update(link_places=places, link_weights=weights)
        batches.append(batch)
    return batches


WITH_WEIGHTS = torch.nn.Linear | torch.nn.LayerNorm | torch.nn.Embedding


def learn(folder, precision, **changes):
    """Train for a few steps.

    Return the losses, the types of parameters that are used, and what the state is like.
    """
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    sizes = {"dropout": 0.0, "encoder_layers": 2, "decoder_layers": 2}
    options = {"mixed_precision": precision, "ema_decay": 0.9, **GUIDED}
    state = tiny_train_state(folder, accelerator, sizes, **options, **changes)
    used = set()

    def record(module, _):
        used.add(module.weight.dtype)

    for module in state.unwrapped_model.modules():
        if isinstance(module, WITH_WEIGHTS):
            module.register_forward_pre_hook(record)
    norms = []
    for _ in range(6):
        batches = guided_batches(accelerator.num_processes)
        norms.append(train_step(state, batches))
    losses = state.measure_steps(norms[-1])["smoothed_loss"], [*map(float, norms)]
    kept = [*state.unwrapped_model.parameters(), *state.ema.state_dict().values()]
    for moments in state.optimizer.state.values():
        kept += moments.values()
    types = {tensor.dtype for tensor in kept}
    sharded = {isinstance(tensor, DTensor) for tensor in kept if tensor.dim()}
    model = state.gather_model()
    return losses, used, types, sharded, model.dtype, model.config.alignment_heads


def learn_sharded(rank, folder, results):
    """Train as one process of two, each with the same micro-batches as one process alone."""
    for precision in ("no", "bf16"):
        AcceleratorState._reset_state(reset_partial_state=True)
        results[precision, rank] = learn(folder, precision, fsdp=True)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    return run_two_processes(learn_sharded, tmp_path_factory.mktemp("run"))


PRECISIONS = [rare(("no", torch.float32, 1e-5)), ("bf16", torch.bfloat16, 0.03)]


@pytest.mark.parametrize(("precision", "dtype", "tolerance"), PRECISIONS)
def test_two_processes_gather_in_the_precision(sharded, tmp_path, precision, dtype, tolerance):
    """Shards, moments and moving average stay float32, and one process alone has the same losses
    and gradients.
    """
    (loss, norms), *_ = learn(tmp_path, precision)
    for rank in (0, 1):
        losses_and_norms, used, *rest = sharded[precision, rank]
        assert used == {dtype}
        assert rest == [{torch.float32}, {True}, torch.float32, [[0, 0]]]
        assert losses_and_norms[0] == pytest.approx(loss, rel=tolerance)
        assert losses_and_norms[1][:2] == pytest.approx(norms[:2], rel=tolerance)
