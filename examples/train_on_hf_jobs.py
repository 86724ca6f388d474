# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11", "vanilla-transformer[evaluation,tracking]"]
# ///
"""Train a recipe on all GPUs of a job of the Hugging Face Hub, and push the model.

    hf jobs uv run --flavor a100x8 --timeout 2d --secrets HF_TOKEN \
        examples/train_on_hf_jobs.py wmt14_en_de_base user/wmt14-en-de-base --facts wmt14_en_de

Before a release is on PyPI, add `--with 'vanilla-transformer @ ADDRESS_OF_A_WHEEL'`. Flags after
`--facts FILE` override the recipe. The disk of a job is lost when it ends: only the final model is
pushed, to a private repository. The facts and the right to write there are checked before training
starts.
"""

import subprocess
import sys
from collections.abc import Sequence

from huggingface_hub import create_repo

from vanilla_transformer.cli import run
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.resources import find_facts, find_recipe
from vanilla_transformer.publishing.facts import read_facts

OUTPUT = "runs/job"


def training_command(recipe: str, flags: Sequence[str]) -> list[str]:
    """Return the command that trains on all GPUs of this machine, or on its cores, and again after
    a lost process.
    """
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "auto",
        "--max_restarts",
        "2",
    ]
    return [
        *torchrun,
        "--module",
        "vanilla_transformer",
        "train",
        recipe,
        "--output_dir",
        OUTPUT,
        *flags,
    ]


def push_command(repo_id: str, facts: str) -> list[str]:
    """Return the command that checks and publishes the model. It reads the token from HF_TOKEN."""
    push = [
        sys.executable,
        "-m",
        "vanilla_transformer",
        "push-to-hub",
        OUTPUT,
        repo_id,
        "--facts",
        facts,
    ]
    return [*push, "--private", "True"]


def main(arguments: Sequence[str]) -> None:
    """Train and publish a model.

    Raises:
        UserError: A name is wrong, or this account may not write to the repository.
        SystemExit: training or publishing has failed, and has said why.
    """
    if len(arguments) < 4 or arguments[2] != "--facts":
        raise UserError("Usage: train_on_hf_jobs.py RECIPE REPO_ID --facts FACTS [--flags ...]")
    recipe, repo_id, _, facts, *flags = arguments
    find_recipe(recipe)
    read_facts(find_facts(facts))
    try:
        create_repo(repo_id, private=True, exist_ok=True)
    except (ValueError, OSError) as error:  # a wrong name, no token, or what the Hub refuses
        raise UserError(str(error)) from error
    for command in (training_command(recipe, flags), push_command(repo_id, facts)):
        if status := subprocess.run(command).returncode:
            sys.exit(status)


if __name__ == "__main__":
    sys.exit(run(main))
