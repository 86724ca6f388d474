"""Train on the demo corpus, score on its test set, translate and plot."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vanilla_transformer.resources import find_recipe

from .arguments import parse, require_no_words

_SENTENCES = (
    "The old woman buys a red apple.",
    "I do not have to read the book today.",
)


@dataclass
class DemoArguments:
    """Flags of `demo`."""

    output_dir: str = field(default="runs/demo", metadata={"help": "Folder for the corpus, the model and the plots."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace the results of an earlier demo."})
    max_minutes: float | None = field(
        default=None, metadata={"help": "Training time in minutes; by default the recipe's."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(DemoArguments, arguments, "demo [--output_dir FOLDER] [--flags]")
    require_no_words(words)
    from vanilla_transformer.data.demo_corpus import write_demo_corpus
    from vanilla_transformer.training.recipe import parse_recipe
    from vanilla_transformer.training.run_folder import check_output_dir
    from vanilla_transformer.training.trainer import train

    from .train import draw_pictures, show_progress, validation_scores

    folder = Path(options.output_dir)
    check_output_dir(folder)
    show_progress()
    corpus = folder / "corpus"
    recipe = parse_recipe([str(find_recipe("demo")), *_recipe_flags(options, corpus)])
    print("Writing the corpus ...")
    write_demo_corpus(corpus)
    train(recipe, evaluate=validation_scores)
    _print_scores(folder, corpus)
    draw_pictures(_draw, folder)
    _print_next_steps(folder)


def _recipe_flags(options: DemoArguments, corpus: Path) -> list[str]:
    """Return the flags that depend on the output folder, which the recipe cannot name."""
    flags = {"output_dir": options.output_dir, "overwrite_output_dir": str(options.overwrite_output_dir)}
    flags |= {"train_source": f"{corpus}/train.en", "train_target": f"{corpus}/train.de"}
    flags |= {"validation_source": f"{corpus}/validation.en", "validation_target": f"{corpus}/validation.de"}
    if options.max_minutes is not None:
        flags["max_minutes"] = str(options.max_minutes)
    return [part for name, value in flags.items() for part in (f"--{name}", value)]


def _load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    return AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def _print_scores(folder: Path, corpus: Path) -> None:
    from transformers import pipeline

    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.evaluation.scores import translate_and_score

    model, tokenizer = _load(folder)
    test = read_text_files(corpus / "test.en", corpus / "test.de")
    _, scores = translate_and_score(model, tokenizer, test)
    print(f"\nTest set: {len(test)} sentences, each with a word combination that is not in the training text")
    print(f"  BLEU {scores.bleu:.1f}  {scores.bleu_signature}")
    print(f"  chrF {scores.chrf:.1f}  {scores.chrf_signature}")
    print('\nTranslations by pipeline("translation"):')
    translate = pipeline("translation", model=str(folder))
    for sentence, answer in zip(_SENTENCES, translate(list(_SENTENCES)), strict=True):
        print(f"  {sentence}\n    -> {answer['translation_text']}")


def _draw(folder: Path) -> None:
    from vanilla_transformer.evaluation.plots import plot_attention, plot_learning_curve
    from vanilla_transformer.publishing.training_records import CURVE
    from vanilla_transformer.training.metrics import METRICS_FILE

    model, tokenizer = _load(folder)
    curve = plot_learning_curve(folder / METRICS_FILE, folder / CURVE)
    attention = plot_attention(model, tokenizer, _SENTENCES[0], folder / "attention.png")
    print(f"\nPictures: {curve} and {attention}")


def _print_next_steps(folder: Path) -> None:
    on_path = shutil.which("vanilla-transformer") is not None
    program = "vanilla-transformer" if on_path else f"{sys.executable} -m vanilla_transformer"
    print("Next:")
    print(f"  {program} translate {folder} 'The child sees the dog.'")
    print(f"  {program} train small --output_dir runs/mine \\")
    print("      --train_source train.en --train_target train.de \\")
    print("      --validation_source validation.en --validation_target validation.de")
