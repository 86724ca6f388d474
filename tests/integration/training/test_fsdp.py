"""DDP and FSDP2 in a group of one process: what each device holds, and what Accelerate does not do."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.tensor import DTensor

from tests.tiny_runs import flags
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.setup import create_accelerator
from vanilla_transformer.training.train_state import TrainState


@pytest.fixture
def process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_train_state_with_fsdp_keeps_no_full_copy(corpus, tmp_path, tiny_model, tiny_tokenizer, process_group):
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


def test_gradients_are_views_of_buckets(corpus, tmp_path, tiny_model, tiny_tokenizer, process_group):
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
