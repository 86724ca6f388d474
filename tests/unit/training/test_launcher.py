"""Settings of `accelerate launch`, as it passes them in environment variables."""

from dataclasses import replace
from pathlib import Path

import pytest

from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.launcher import apply_launcher

ROOT = Path(__file__).parents[3]
FLAGS = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]
FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
}
DEEPSPEED = {
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2",
    "ACCELERATE_DEEPSPEED_CONFIG_FILE": "none",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
}


def apply(environment, *flags):
    recipe = apply_launcher(parse_recipe([*FLAGS, *flags]), environment)
    options = recipe.optimization
    return options, (options.fsdp, options.fsdp_reshard_after_forward, recipe.output.sharded_checkpoints)


def test_apply_launcher_without_accelerate_keeps_recipe():
    recipe = parse_recipe([*FLAGS, "--mixed_precision", "bf16"])
    assert apply_launcher(recipe, {}) == replace(recipe, data=replace(recipe.data, pad_to_multiple_of=1))
    assert apply({})[0].mixed_precision == "no"
    assert apply({}, "--mixed_precision", "auto")[0].mixed_precision == "auto"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (FSDP2, (True, True, True)),
        (FSDP2 | {"FSDP_RESHARD_AFTER_FORWARD": "false"}, (True, False, True)),
        (FSDP2 | {"FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}, (True, True, False)),
        (DEEPSPEED | {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "0"}, (False, False, False)),
        (DEEPSPEED | {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "1"}, (True, False, False)),
        (DEEPSPEED, (True, False, False)),
        (DEEPSPEED | {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, (True, True, False)),
    ],
)
def test_apply_launcher_shards_as_configured(environment, expected):
    assert apply(environment)[1] == expected


def test_apply_launcher_fills_in_what_recipe_leaves_out():
    environment = DEEPSPEED | {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}
    environment |= {"ACCELERATE_GRADIENT_CLIPPING": "1.0", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}
    options, _ = apply(environment)
    assert (options.mixed_precision, options.compile) == ("bf16", True)
    assert (options.max_grad_norm, options.gradient_accumulation_steps) == (1.0, 4)
    assert apply(environment, "--mixed_precision", "auto")[0].mixed_precision == "bf16"


@pytest.mark.parametrize(
    ("environment", "flags", "message"),
    [
        (FSDP2 | {"FSDP_VERSION": "1"}, [], "fsdp_version=1. Set `fsdp_version: 2`"),
        (FSDP2 | {"FSDP_OFFLOAD_PARAMS": "true"}, [], "Set `fsdp_offload_params: false`"),
        (FSDP2 | {"FSDP_ACTIVATION_CHECKPOINTING": "true"}, [], "Set `fsdp_activation_checkpointing: false`"),
        (FSDP2 | {"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP"}, [], "TRANSFORMER_BASED_WRAP"),
        (FSDP2 | {"FSDP_RESHARD_AFTER_FORWARD": "full_shard"}, [], "must be true or false with FSDP2"),
        (FSDP2 | {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}, [], "no tensor, context or sequence parallelism"),
        (FSDP2 | {"ACCELERATE_MIXED_PRECISION": "fp16"}, [], "`fsdp` needs `mixed_precision` bf16 or no"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, [], "does not use Megatron-LM"),
        (DEEPSPEED | {"ACCELERATE_DEEPSPEED_CONFIG_FILE": "zero.json"}, [], "`deepspeed_config_file` is zero.json"),
        (DEEPSPEED | {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "cpu"}, [], "offload_param_device=cpu"),
        (DEEPSPEED | {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "4"}, [], "`zero_stage` must be 0, 1, 2 or 3, got 4"),
        ({"ACCELERATE_MIXED_PRECISION": "fp8"}, [], "fp8 must be in the recipe, but it is in the config"),
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, ["--mixed_precision", "bf16"], "is bf16 in the recipe, but fp16"),
        ({"ACCELERATE_DYNAMO_BACKEND": "EAGER"}, [], "dynamo_backend=eager"),
        (
            {"ACCELERATE_USE_CPU": "True", "KMP_AFFINITY": "fine", "MASTER_PORT": "29500"},
            [],
            "must be started by torchrun or mpirun",
        ),
    ],
)
def test_apply_launcher_refuses_what_cannot_work(environment, flags, message):
    with pytest.raises(ValueError, match=message):
        apply(environment, *flags)


def test_apply_launcher_accepts_processes_of_mpirun():
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "KMP_AFFINITY": "fine", "MASTER_PORT": "29500"}
    assert apply(mpi | {"ACCELERATE_USE_CPU": "True"})[0].mixed_precision == "no"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], 1),
        (["--compile"], 8),
        (["--compile", "--pad_to_multiple_of", "16"], 16),
        (["--pad_to_multiple_of", "8"], 8),
    ],
)
def test_apply_launcher_pads_to_multiples_of_eight_when_compiling(flags, expected):
    assert apply_launcher(parse_recipe([*FLAGS, *flags]), {}).data.pad_to_multiple_of == expected


@pytest.mark.parametrize(
    ("processes", "accumulation", "expected"), [("1", 1, 25_000), ("8", 1, 3125), ("1", 8, 3125), ("3", 2, 4166)]
)
def test_apply_launcher_divides_tokens_per_step_by_batches(monkeypatch, processes, accumulation, expected):
    monkeypatch.setenv("WORLD_SIZE", processes)
    recipe = parse_recipe([*FLAGS, "--tokens_per_step", "25000", "--gradient_accumulation_steps", str(accumulation)])
    assert apply_launcher(recipe, {}).data.max_tokens == expected


def test_apply_launcher_refuses_steps_of_fewer_tokens_than_batches(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(ValueError, match="`tokens_per_step` must be at least .* = 8, got 7"):
        apply_launcher(parse_recipe([*FLAGS, "--tokens_per_step", "7"]), {})


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("wmt14*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("processes", [1, 8])
def test_recipes_of_the_paper_have_its_step_on_one_device_and_on_eight(monkeypatch, path, processes):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    assert apply_launcher(parse_recipe([str(path)]), {}).data.max_tokens * processes == 25_000
