"""Train a model, average checkpoints, and show it all on the demo corpus."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.user_input.schemas import ARGUMENT, Input

from .flags import CommandArguments, parse, register_models


def train_command(arguments: Sequence[str]) -> None:
    recipe = parse_recipe(arguments, program="vanilla-transformer train")
    register_models()
    from accelerate import PartialState

    from vanilla_transformer.training.trainer import train

    if recipe.output.dry_run:
        from vanilla_transformer.training.dry_run import plan_run

        plan = plan_run(recipe)
        advice = plan.pop("advice")
        for name, value in plan.items():
            shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
            print(f"{name.replace('_', ' '):<26} {shown}")
        print(*advice, "Nothing has been written.", sep="\n")
        return
    folder = train(recipe)
    if PartialState().is_main_process:
        command = shlex.join(["vanilla-transformer", "translate", str(folder), "A sentence."])
        print(f"The model is in {folder}. Translate with: {command}")


class AverageCheckpointsArguments(CommandArguments):
    """Flags of `average-checkpoints`."""

    folders: Annotated[list[Input], ARGUMENT] = Field(
        min_length=2, description="Folders of two models or more, of the same architecture."
    )
    output_dir: str = Field(description="Folder of the averaged model.")
    weights: list[float] | None = Field(
        None, description="A positive number for each folder (default: all count the same)."
    )


def average_checkpoints_command(arguments: Sequence[str]) -> None:
    options = parse(AverageCheckpointsArguments, arguments)
    from vanilla_transformer.training.averaging import average_model_folders

    output = average_model_folders(options.folders, options.output_dir, options.weights)
    print(f"The average of {len(options.folders)} models is in {output}.")


_DEMO_SENTENCE = "Tom gave me a red apple."
_DEMO_SHOWN = 6  # test sentences, from the best to the worst translated one
_DEMO_LEAST_BLEU = 20.0  # runs to the end of the recipe scored well above: docs/speed.md


class DemoArguments(CommandArguments):
    """Flags of `demo`."""

    output_dir: str = Field(
        "runs/demo", description="Folder for the corpus, the model and the plots."
    )
    overwrite_output_dir: bool = Field(False, description="Replace the results of an earlier demo.")
    max_minutes: float | None = Field(
        None,
        ge=0,
        description="Stop training after this time; by default the recipe's, far above its steps.",
    )


def demo_command(arguments: Sequence[str]) -> None:
    options = parse(DemoArguments, arguments)
    from vanilla_transformer.data.demo_corpus import write_demo_corpus
    from vanilla_transformer.evaluation.plots import draw_picture
    from vanilla_transformer.machine.imports import show_progress
    from vanilla_transformer.training.metrics import read_entries
    from vanilla_transformer.training.run_folder import check_is_writable
    from vanilla_transformer.training.signals import TrainingInterrupted
    from vanilla_transformer.training.trainer import train

    folder = Path(options.output_dir)
    check_is_writable(folder)
    corpus = folder / "corpus"
    recipe = parse_recipe([str(find_recipe("demo")), *_demo_flags(options, corpus)])
    steps = recipe.optimization.max_steps or 0  # the recipe gives them
    print(
        "Writing the corpus: short English-German sentences of Tatoeba (https://tatoeba.org), CC "
        "BY 2.0 FR ..."
    )
    write_demo_corpus(corpus)
    try:
        train(recipe)
    except TrainingInterrupted as error:
        raise TrainingInterrupted(
            f"{error} A model of fewer than {steps:,} steps is undertrained."
        ) from None
    with show_progress():
        bleu = _print_demo_scores(folder, corpus)
        draw_picture("attention is", _draw_demo, folder)
    made = max(entry["step"] for entry in read_entries(folder))
    reasons = []
    if made < steps:
        reasons.append(f"the time limit ended training after {made:,} of {steps:,} steps")
    if bleu < _DEMO_LEAST_BLEU:
        reasons.append(f"BLEU must be at least {_DEMO_LEAST_BLEU:g}, got {bleu:.1f}")
    if reasons:
        print(f"\nThe model is undertrained: {', and '.join(reasons)}.", end=" ")
        print("Its translations are not what this recipe yields.")
    if made < steps:
        print("Run `demo` again with a higher --max_minutes, or without it, to continue.")
    on_path = shutil.which("vanilla-transformer") is not None
    program = "vanilla-transformer"
    if not on_path:
        program = f"{sys.executable} -m vanilla_transformer"
    print(
        "\nFor sentences of any length, train the recipe tatoeba_en_de with "
        "https://www.manythings.org/anki/"
    )
    print(
        "(CC BY 2.0 FR). The repository has its model in models/en-de, and its scores and its time "
        "in README.md."
    )
    print("Next:")
    print(f"  {program} translate {folder} '{_DEMO_SENTENCE}'")
    print(f"  {program} train small --output_dir runs/mine \\")
    print("      --train_source train.en --train_target train.de \\")
    print("      --validation_source validation.en --validation_target validation.de")


def _demo_flags(options: DemoArguments, corpus: Path) -> list[str]:
    """Return the flags that depend on the output folder, which the recipe cannot name."""
    flags = {
        "output_dir": options.output_dir,
        "overwrite_output_dir": str(options.overwrite_output_dir),
        "train_source": f"{corpus}/train.en",
        "train_target": f"{corpus}/train.de",
        "validation_source": f"{corpus}/validation.en",
        "validation_target": f"{corpus}/validation.de",
    }
    if options.max_minutes is not None:
        flags["max_minutes"] = str(options.max_minutes)
    return [part for name, value in flags.items() for part in (f"--{name}", value)]


def _print_demo_scores(folder: Path, corpus: Path) -> float:
    """Translate and score the test set, print scores and some of the translations, and return
    BLEU.
    """
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.evaluation.scores import sentence_chrf, translate_and_score

    test = read_text_files(corpus / "test.en", corpus / "test.de")
    translations, scores = translate_and_score(load_pipeline(folder), test)
    print(f"\nTest set: {len(test)} sentences of people, none of them in the training text")
    print(f"  BLEU {scores.bleu:.1f}  {scores.bleu_signature}")
    print(f"  chrF {scores.chrf:.1f}  {scores.chrf_signature}")
    print(
        f"\n{_DEMO_SHOWN} of them by the chrF of their translations, at equal distances from the "
        "best to the worst:"
    )
    chrf = sentence_chrf(translations, [pair.target for pair in test])
    for rank, number in choose_ranks(chrf, _DEMO_SHOWN):
        print(f"  rank {rank}, chrF {chrf[number]:.0f}: {test[number].source}")
        print(f"    model:     {translations[number]}")
        print(f"    reference: {test[number].target}")
    return scores.bleu


def choose_ranks(scores: Sequence[float], count: int) -> list[tuple[int, int]]:
    """Return rank, from 1, and index of the best, the worst and others at equal distances.

    Earlier ones win ties.
    """
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    ranks = [round(index * (len(order) - 1) / (count - 1)) for index in range(count)]
    return [(rank + 1, order[rank]) for rank in ranks]


def _draw_demo(folder: Path) -> Path:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from vanilla_transformer.evaluation.plots import plot_attention

    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return plot_attention(model, tokenizer, _DEMO_SENTENCE, folder / "attention.png")
