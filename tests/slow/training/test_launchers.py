"""Real launchers on two CPU processes: `accelerate launch` with files of `accelerate config`, and `torchrun`."""

import json
from importlib.util import find_spec

import pytest

from tests.tiny_runs import ROOT, flags, launch

RUN = {"mixed_precision": None, "dropout": 0.2, "gradient_accumulation_steps": None}


def finish(process, timeout=240):
    _, errors = process.communicate(timeout=timeout)
    return process.returncode, errors


def accelerate_launch(config, arguments):
    launcher = ["accelerate.commands.launch", "--config_file", str(config), "--num_processes", "2"]
    return finish(launch([*launcher, "--main_process_port", "0"], arguments))


@pytest.mark.parametrize(
    ("name", "fsdp", "reshard", "sharded"),
    [
        ("ddp", False, True, False),
        ("fsdp2", True, True, True),
        pytest.param(
            *("deepspeed_zero2", True, False, False),
            marks=pytest.mark.skipif(find_spec("deepspeed") is None, reason="its launcher needs deepspeed"),
        ),
    ],
)
def test_accelerate_launch_trains_as_configured(corpus, tmp_path, name, fsdp, reshard, sharded):
    status, errors = accelerate_launch(
        ROOT / "examples" / "accelerate" / f"{name}.yaml", flags(corpus, tmp_path / "run", **RUN)
    )
    assert status == 0, errors
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert json.loads((tmp_path / "run" / "machine.json").read_text())["processes"] == 2
    assert recipe["mixed_precision"] == "bf16"
    assert (recipe["fsdp"], recipe["fsdp_reshard_after_forward"]) == (fsdp, reshard)
    assert (tmp_path / "run" / "checkpoint-6" / "shards").exists() == sharded


def test_accelerate_launch_refuses_fsdp_version_1(corpus, tmp_path):
    config = tmp_path / "fsdp1.yaml"
    text = (ROOT / "examples" / "accelerate" / "fsdp2.yaml").read_text()
    text = text.replace("fsdp_version: 2", "fsdp_version: 1").replace("forward: true", "forward: FULL_SHARD")
    config.write_text(text)
    status, errors = accelerate_launch(config, flags(corpus, tmp_path / "run", **RUN))
    assert status != 0
    assert "fsdp_version=1. Set `fsdp_version: 2`" in errors
    assert not (tmp_path / "run").exists()
