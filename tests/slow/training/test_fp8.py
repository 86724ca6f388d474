"""Training with `mixed_precision: fp8` on a CPU, where torchao rounds to 8-bit floats and multiplies in float32."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.launchers import torchrun
from tests.tiny_runs import flags

TRAINING = """
import functools, json, os, sys
import torch
import torchao.float8
from torchao.float8.float8_linear import Float8Linear
from tests.tiny_runs import entries, no_scores
from vanilla_transformer.training import accelerator, trainer
from vanilla_transformer.training.recipe import parse_recipe

accelerator.check_fp8 = lambda: None
torchao.float8.Float8LinearConfig = functools.partial(torchao.float8.Float8LinearConfig, emulate=True)
kinds = {}
step = trainer.train_step

def noting(state, micro_batches):
    for name, module in state.unwrapped_model.named_modules():
        if isinstance(module, torch.nn.Linear):
            kinds[name] = type(module) is Float8Linear
    return step(state, micro_batches)

trainer.train_step = noting
folders = [trainer.train(parse_recipe(words), evaluate=no_scores) for words in json.loads(sys.argv[1])]
losses = [[entry["loss"] for entry in entries(folder) if "loss" in entry] for folder in folders]
if int(os.environ.get("RANK", 0)) == 0:
    print(json.dumps([kinds, losses]))
"""

DISTANCES = """
import copy, functools, json
import torch
import torchao.float8
from tests.tiny import tiny_model
from tests.train_states import micro_batches
from vanilla_transformer.training.device_batch import BatchPreparation, batch_to_device
from vanilla_transformer.training.mixed_precision import convert_linear_layers
from vanilla_transformer.training.loss import ModelWithLoss

torchao.float8.Float8LinearConfig = functools.partial(torchao.float8.Float8LinearConfig, emulate=True)
sizes = {"d_model": 64, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "init_std": None, "dropout": 0.0}
models = {"exact": ModelWithLoss(tiny_model(vocab_size=40, **sizes).train(), 0.1)}
for name in ("bf16", "eager", "compiled"):
    models[name] = copy.deepcopy(models["exact"])
    if name != "bf16":
        convert_linear_layers(models[name].model)
models["compiled"].compile(dynamic=True)
batches = [each.tensors for each in micro_batches([5, 3, 4, 9, 7], [4, 11], [12, 2, 8], [6, 5, 7, 3])]

def gradient(name, batch):
    model = models[name]
    with torch.autocast("cpu", torch.bfloat16, enabled=name != "exact"):
        prepare = BatchPreparation.for_model(model.model, keep_mask=True)
        loss = model(batch_to_device(batch, prepare, torch.device("cpu"))).smoothed
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*model.parameters()])])

gradients = {name: torch.cat([gradient(name, batch) for batch in batches]) for name in models}
exact = gradients["exact"]
print(json.dumps([float((each - exact).norm() / exact.norm()) for each in gradients.values()]))
"""

START = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)

WITHOUT_WAITING = """
import functools, importlib
from contextlib import nullcontext
import torch
import torchao.float8
from accelerate import Accelerator
from tests.host_reads import GPU, gpu_stand_in
from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.training.train_step import train_step

class OnStandIn(Accelerator):
    device = GPU

torchao.float8.Float8LinearConfig = functools.partial(torchao.float8.Float8LinearConfig, emulate=True)
torch.is_autocast_enabled, torch.autocast = lambda *_: False, lambda *_, **__: nullcontext()
importlib.import_module("torch.optim.adam")._device_dtype_check_for_fused = lambda *_, **__: None
state = tiny_train_state("-", OnStandIn(cpu=True), mixed_precision="fp8")
train_step(state, micro_batches([5, 3, 4], [4, 4]))  # Adam creates its state
with gpu_stand_in() as copies:
    for _ in range(3):
        train_step(state, micro_batches([5, 3, 4], [4, 4]))
print(len(copies.arrived), len(state.unread))
"""


def test_train_step_in_fp8_does_not_wait_for_a_gpu(run_with_torchao):
    assert run_with_torchao(WITHOUT_WAITING)[-1] == "0 4"


def test_convert_linear_layers_compiled_is_as_exact_as_uncompiled(run_with_torchao):
    exact, bf16, eager, compiled = json.loads(run_with_torchao(DISTANCES)[-1])
    assert exact == 0.0 and eager > 2.0 * bf16  # 8-bit floats are coarser
    # The compiler leaves out roundings to bf16 between fused operations, so that other values are rounded to 8 bits.
    assert 0.8 * eager < compiled < 1.2 * eager


def test_train_in_fp8_learns_resumes_and_saves_float32(run_with_torchao, corpus, tmp_path):
    fp8 = {"mixed_precision": "fp8", "max_steps": 60, "save_steps": 20, "average_checkpoints": 1}
    straight = flags(corpus, tmp_path / "straight", **fp8)
    stopped = [flags(corpus, tmp_path / "stopped", **fp8 | {"max_steps": steps}) for steps in (20, 60)]
    lines = run_with_torchao(TRAINING, json.dumps([straight, *stopped]))
    kinds, (losses, _, resumed) = json.loads(lines[-1])
    assert [name for name, is_float8 in kinds.items() if not is_float8] == ["lm_head"] and len(kinds) > 10
    assert losses[-1] < 0.6 * losses[0] and resumed == losses
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert {weight.dtype for weight in ours.values()} == {torch.float32}
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_train_in_fp8_sharded_over_two_processes_learns_as_one(run_with_torchao, corpus, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    fp8 = {"mixed_precision": "fp8", "max_steps": 8, "logging_steps": 1, "average_checkpoints": 1}
    plain = flags(corpus, tmp_path / "plain", **fp8 | {"gradient_accumulation_steps": 2})
    [*_, line] = run_with_torchao(TRAINING, json.dumps([plain]))
    expected = json.loads(line)
    runs = json.dumps([flags(corpus, tmp_path / "run", **fp8 | {"fsdp": True})])
    [*_, line] = run_with_torchao(START, *torchrun(2, script, runs))
    kinds, [losses] = json.loads(line)
    assert kinds == expected[0]
    # Adam's first updates are about the sign of the gradient: a product rounded otherwise changes the later losses.
    assert losses[0] == pytest.approx(expected[1][0][0], rel=0.01) and losses[-1] < 0.8 * losses[0]
    assert {weight.dtype for weight in load_file(tmp_path / "run" / "model.safetensors").values()} == {torch.float32}
