"""Settings of `accelerate launch`, as it passes them in environment variables."""

from pathlib import Path

import pytest

from tests.tiny import tiny_model
from vanilla_transformer.training import distributed
from vanilla_transformer.training.compilation import choose_padding
from vanilla_transformer.training.distributed import create_accelerator
from vanilla_transformer.training.loss import ModelWithLoss
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.recipe_checks import check_same_run
from vanilla_transformer.training.run_arguments import flatten

ROOT = Path(__file__).parents[3]
FLAGS = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]
FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
}
# By `accelerate launch`.
ALONE = {"ACCELERATE_USE_CPU": "True", "KMP_AFFINITY": "fine", "MASTER_PORT": "29500"}


@pytest.fixture
def resolve(monkeypatch):
    """Return a function that parses flags in the environment of a launcher."""

    def resolve(environment, *flags):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return parse_recipe([*FLAGS, *flags])

    return resolve


BF16 = {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}


@pytest.mark.parametrize(
    ("environment", "flags", "expected"),
    [
        ({}, ["--mixed_precision", "bf16", "--compile"], ("bf16", True, False)),
        ({}, [], ("no", None, False)),
        ({}, ["--mixed_precision", "auto"], ("auto", None, False)),
        (FSDP2, [], ("no", None, True)),
        (BF16, [], ("bf16", True, False)),
        (BF16, ["--compile", "--mixed_precision", "auto"], ("bf16", True, False)),
    ],
)
def test_recipe_takes_settings_of_the_launcher(resolve, environment, flags, expected):
    options = resolve(environment, *flags).optimization
    assert (options.mixed_precision, options.compile, options.fsdp) == expected


@pytest.mark.parametrize("reshard", [None, True, False])
def test_shard_model_gathers_layers_again_by_default(monkeypatch, reshard):
    calls = []

    def record(module, **options):
        calls.append(options)

    monkeypatch.setattr(distributed, "init_device_mesh", lambda *_: None)
    monkeypatch.setattr(distributed, "fully_shard", record)
    if reshard is not None:
        monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", str(reshard).lower())
    distributed.shard_model(ModelWithLoss(tiny_model(), 0.1), num_processes=2)
    *layers, root = (options.get("reshard_after_forward") for options in calls)
    assert layers and set(layers) == {reshard is not False} and root is None


@pytest.mark.parametrize(
    ("environment", "flags", "message"),
    [
        (FSDP2 | {"FSDP_VERSION": "1"}, [], "fsdp_version=1. Set `fsdp_version: 2`"),
        (FSDP2 | {"FSDP_VERSION": "1"}, ["--fsdp"], "fsdp_version=1. Set `fsdp_version: 2`"),
        (FSDP2 | {"FSDP_OFFLOAD_PARAMS": "true"}, [], "Set `fsdp_offload_params: false`"),
        (
            FSDP2 | {"FSDP_ACTIVATION_CHECKPOINTING": "true"},
            [],
            "Set `fsdp_activation_checkpointing: false`",
        ),
        (FSDP2 | {"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP"}, [], "TRANSFORMER_BASED_WRAP"),
        (FSDP2 | {"FSDP_AUTO_WRAP_POLICY": "NO_WRAP"}, [], "TRANSFORMER_BASED_WRAP"),
        (
            FSDP2 | {"FSDP_RESHARD_AFTER_FORWARD": "full_shard"},
            [],
            "FSDP cannot be used as .*: .*full_shard",
        ),
        (
            FSDP2 | {"FSDP_STATE_DICT_TYPE": "LOCAL_STATE_DICT"},
            [],
            "FSDP cannot be used as .*LOCAL_STATE_DICT",
        ),
        (
            FSDP2 | {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"},
            [],
            "not use tensor, context or sequence parallelism",
        ),
        (
            FSDP2 | {"ACCELERATE_MIXED_PRECISION": "fp16"},
            [],
            "`fsdp` needs `mixed_precision` bf16 or no",
        ),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, [], "does not use Megatron-LM"),
        (
            {"ACCELERATE_USE_DEEPSPEED": "true"},
            [],
            "does not use DeepSpeed.* Choose FSDP2.*`fsdp_version: 2`",
        ),
        (
            {"ACCELERATE_MIXED_PRECISION": "fp8"},
            [],
            "must be no, bf16 or fp16, but the config.* has fp8",
        ),
        (
            {"ACCELERATE_MIXED_PRECISION": "fp16"},
            ["--mixed_precision", "bf16"],
            "is bf16 in the recipe, but fp16",
        ),
        (
            {"ACCELERATE_DYNAMO_BACKEND": "EAGER"},
            [],
            "dynamo_backend=eager. Set `dynamo_backend` to inductor or no",
        ),
        (
            {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"},
            ["--compile", "false"],
            "`compile` is false .*backend=inductor",
        ),
        (ALONE, [], "must be started by torchrun or mpirun"),
        (
            {"WORLD_SIZE": "8"},
            ["--tokens_per_step", "7"],
            "`tokens_per_step` must be at least .* = 8, got 7",
        ),
    ],
)
def test_recipe_refuses_a_wrong_launcher(resolve, environment, flags, message):
    with pytest.raises(ValueError, match=message) as refused:
        resolve(environment, *flags)
    assert "\n" not in str(refused.value)


PADDINGS = [("true", "false", 8), ("false", "true", 1)]  # eight tokens where it compiles


@pytest.mark.parametrize(("before", "now", "padding"), PADDINGS)
def test_a_resumed_run_keeps_its_padding(resolve, before, now, padding):
    assert choose_padding({}, compiled=before == "true") == padding
    recorded = flatten(resolve({}, "--compile", before)) | {"pad_to_multiple_of": padding}
    check_same_run(recorded, flatten(resolve({}, "--compile", now)))
    assert choose_padding(recorded, compiled=now == "true") == padding


@pytest.mark.parametrize(
    ("environment", "accumulation", "expected"),
    [
        ({"WORLD_SIZE": "1"}, 1, 25_000),
        ({"WORLD_SIZE": "8"}, 1, 3125),
        ({"WORLD_SIZE": "1"}, 8, 3125),
        ({"WORLD_SIZE": "3"}, 2, 4166),
        (ALONE | {"OMPI_COMM_WORLD_SIZE": "2"}, 1, 12_500),  # by mpirun
    ],
)
def test_recipe_divides_tokens_by_batches(resolve, environment, accumulation, expected):
    flags = ["--tokens_per_step", "25000"]
    flags += ["--gradient_accumulation_steps", str(accumulation)]
    assert resolve(environment, *flags).data.max_tokens == expected


def test_accelerator_refuses_another_number_of_processes(monkeypatch, resolve):
    recipe = resolve({"WORLD_SIZE": "8"}, "--tokens_per_step", "25000")
    monkeypatch.delenv("WORLD_SIZE")
    message = "must be read in each process .* before 1 processes started"
    with pytest.raises(ValueError, match=message):
        create_accelerator(recipe)


RECIPES = sorted((ROOT / "recipes").glob("wmt14*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
@pytest.mark.parametrize("processes", [1, 8])
def test_recipes_of_the_paper_have_its_steps(monkeypatch, path, processes):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    recipe = parse_recipe([str(path)])
    assert recipe.data.max_tokens * processes == 25_000
    paper_steps = {"base": 100_000, "big": 300_000}[path.stem.rpartition("_")[2]]
    optimization = recipe.optimization
    assert (optimization.warmup_steps, optimization.max_steps) == (4000, paper_steps)
