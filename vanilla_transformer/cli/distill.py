"""Train a student on the translations of a teacher, and compare both."""

from collections.abc import Sequence

from vanilla_transformer.distillation.arguments import parse_distillation

from .arguments import register_models
from .train import show_progress, use_all_cores, validation_scores


def main(arguments: Sequence[str]) -> None:
    recipe, options = parse_distillation(arguments, program="vanilla-transformer distill")
    register_models()
    if recipe.output.dry_run:
        raise ValueError("--dry_run is for `train`, which plans the same recipe. Leave it out.")
    from vanilla_transformer.conversion.loading import load_converted
    from vanilla_transformer.distillation.distillation import TABLE_FILE, distill

    show_progress()
    use_all_cores()
    distilled = distill(recipe, options, evaluate=validation_scores, load_model=load_converted)
    print(distilled.table, end="")
    print(f"The student is in {distilled.folder}, and this table in {distilled.folder / TABLE_FILE}.")
