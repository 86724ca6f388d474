"""Train a model from a recipe."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.training.recipe import parse_recipe

from .arguments import register_models

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    recipe = parse_recipe(arguments, program="vanilla-transformer train")
    register_models()
    from accelerate import PartialState

    from vanilla_transformer.conversion.loading import load_converted
    from vanilla_transformer.training.dry_run import plan_run
    from vanilla_transformer.training.trainer import train

    show_progress()
    use_all_cores()
    if recipe.output.dry_run:
        _print_plan(plan_run(recipe, load_model=load_converted))
        return
    folder = train(recipe, evaluate=validation_scores, load_model=load_converted)
    if PartialState().is_main_process:
        draw_pictures(_draw_learning_curve, folder)
        draw_pictures(draw_lengths, folder)
        print(f"The model is in {folder}. Translate with: vanilla-transformer translate {folder} 'A sentence.'")


def validation_scores(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], **generate_kwargs: Any) -> dict:
    """Return BLEU and chrF of a validation, by name, as training logs them."""
    from vanilla_transformer.evaluation.scores import translate_and_score

    _, scores = translate_and_score(model, tokenizer, pairs, progress_bar=False, compile=False, **generate_kwargs)
    return scores._asdict()


def show_progress() -> None:
    """Print the log messages of the package, without progress bars for each file that transformers writes."""
    from transformers.utils.logging import disable_progress_bar

    logging.basicConfig(format="%(message)s")
    logging.getLogger("vanilla_transformer").setLevel(logging.INFO)
    disable_progress_bar()


def use_all_cores() -> None:
    """Use all cores if `accelerate launch` started a single CPU process, which it limits to one thread."""
    import torch

    from vanilla_transformer.device_utils import usable_cores

    launched = "ACCELERATE_MIXED_PRECISION" in os.environ
    if launched and int(os.environ.get("WORLD_SIZE", "1")) == 1 and not torch.accelerator.is_available():
        torch.set_num_threads(usable_cores())


def draw_pictures(draw: Callable[..., None], *arguments: Any) -> None:
    """Call `draw(*arguments)`, or log one line if that fails, for example because matplotlib is not installed."""
    try:
        draw(*arguments)
    except (OSError, ValueError) as error:
        logger.warning("No pictures were drawn. %s", error)


def draw_lengths(folder: Path) -> None:
    """Plot the lengths of the pairs in a folder with a report on a corpus."""
    from vanilla_transformer.data.prepare_data import REPORT_FILE
    from vanilla_transformer.evaluation.corpus_plots import plot_lengths

    print(f"The lengths are in {plot_lengths(folder / REPORT_FILE, folder / 'lengths.png')}.")


def _draw_learning_curve(folder: Path) -> None:
    from vanilla_transformer.evaluation.plots import plot_learning_curve
    from vanilla_transformer.publishing.training_records import CURVE
    from vanilla_transformer.training.metrics import METRICS_FILE

    print(f"The learning curve is in {plot_learning_curve(folder / METRICS_FILE, folder / CURVE)}.")


def _print_plan(plan: dict[str, Any]) -> None:
    advice = plan.pop("advice")
    for name, value in plan.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        print(f"{name.replace('_', ' '):<26} {shown}")
    print(*advice, "Nothing has been written.", sep="\n")
