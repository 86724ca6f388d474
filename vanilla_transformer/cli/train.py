"""Train a model from a recipe."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.training.arguments import parse_recipe


def validation_scores(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], **generate_kwargs: Any) -> dict:
    """What training logs of a validation: the scores by name."""
    from vanilla_transformer.evaluation.scores import translate_and_score

    _, scores = translate_and_score(model, tokenizer, pairs, progress_bar=False, **generate_kwargs)
    return scores._asdict()


def show_progress() -> None:
    """Shows what the package logs, each validation among it, without the bars of every file that is written."""
    from transformers.utils.logging import disable_progress_bar

    logging.basicConfig(format="%(message)s")
    logging.getLogger("vanilla_transformer").setLevel(logging.INFO)
    disable_progress_bar()


def use_all_cores() -> None:
    """Takes back the single thread that `accelerate launch` gives a process on a CPU, where there is one process."""
    import torch

    from vanilla_transformer.data.tokenized_corpus import usable_cores

    launched = "ACCELERATE_MIXED_PRECISION" in os.environ
    if launched and int(os.environ.get("WORLD_SIZE", "1")) == 1 and not torch.accelerator.is_available():
        torch.set_num_threads(usable_cores())


def main(arguments: Sequence[str]) -> None:
    recipe = parse_recipe(arguments, program="train")
    from accelerate import PartialState

    from vanilla_transformer.training.dry_run import plan_run
    from vanilla_transformer.training.trainer import train

    show_progress()
    use_all_cores()
    if recipe.output.dry_run:
        _print_plan(plan_run(recipe))
        return
    folder = train(recipe, evaluate=validation_scores)
    if PartialState().is_main_process:
        _draw_curve(folder)
        print(f"The model is in {folder}. Translate with: vanilla-transformer translate {folder} 'A sentence.'")


def _draw_curve(folder: Path) -> None:
    from vanilla_transformer.evaluation.plots import plot_learning_curve
    from vanilla_transformer.training.metrics import METRICS_FILE

    try:
        print(f"The learning curve is in {plot_learning_curve(folder / METRICS_FILE, folder / 'learning_curve.png')}.")
    except OSError as error:  # without matplotlib training is no less done
        print(error)


def _print_plan(plan: dict[str, Any]) -> None:
    for name, value in plan.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        print(f"{name.replace('_', ' '):<26} {shown}")
    print("Nothing has been written.")
