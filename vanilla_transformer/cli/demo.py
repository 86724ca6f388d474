"""From nothing to a translator: write the embedded corpus, train, score, translate, draw."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .arguments import parse
from .resources import resource

_SENTENCES = (
    "The old woman buys a red apple.",
    "I do not have to read the book today.",
)


@dataclass
class DemoArguments:
    """Where the demonstration goes, and how long it takes."""

    output_dir: str = field(default="runs/demo", metadata={"help": "Folder of corpus, model and pictures."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace an earlier demonstration."})
    max_minutes: float | None = field(default=None, metadata={"help": "Training time, in place of the recipe's."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(DemoArguments, arguments, "demo [--output_dir FOLDER] [--flags]")
    if words:
        raise ValueError(f"This command takes flags only, got {words[0]!r}.")
    from vanilla_transformer.embedded_corpus import write_corpus
    from vanilla_transformer.training.arguments import parse_recipe
    from vanilla_transformer.training.checkpoint import check_output_dir
    from vanilla_transformer.training.trainer import train

    from .train import show_progress, validation_scores

    folder = Path(options.output_dir)
    check_output_dir(folder, options.overwrite_output_dir)
    show_progress()
    print("Writing the corpus ...")
    corpus = folder / "corpus"
    write_corpus(corpus)
    train(parse_recipe([str(resource("recipes", "demo.yaml")), *_flags(options, corpus)]), evaluate=validation_scores)
    _show(folder, corpus)


def _flags(options: DemoArguments, corpus: Path) -> list[str]:
    """The recipe names no files, since it cannot know where the corpus lies."""
    flags = {"output_dir": options.output_dir, "overwrite_output_dir": str(options.overwrite_output_dir)}
    flags |= {"train_source": f"{corpus}/train.en", "train_target": f"{corpus}/train.de"}
    flags |= {"validation_source": f"{corpus}/validation.en", "validation_target": f"{corpus}/validation.de"}
    if options.max_minutes is not None:
        flags["max_minutes"] = str(options.max_minutes)
    return [part for name, value in flags.items() for part in (f"--{name}", value)]


def _show(folder: Path, corpus: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.evaluation.plots import plot_attention, plot_learning_curve
    from vanilla_transformer.evaluation.scores import translate_and_score
    from vanilla_transformer.training.metrics import METRICS_FILE

    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    test = read_text_files(corpus / "test.en", corpus / "test.de")
    _, scores = translate_and_score(model, tokenizer, test)
    curve = plot_learning_curve(folder / METRICS_FILE, folder / "learning_curve.png")
    attention = plot_attention(model, tokenizer, _SENTENCES[0], folder / "attention.png")
    print(f"\nTest set of {len(test)} sentences, each with a combination that training never showed:")
    print(f"  BLEU {scores.bleu:.1f}  {scores.bleu_signature}")
    print(f"  chrF {scores.chrf:.1f}  {scores.chrf_signature}")
    print('\nTranslations by pipeline("translation"):')
    translate = pipeline("translation", model=str(folder))
    for sentence, answer in zip(_SENTENCES, translate(list(_SENTENCES)), strict=True):
        print(f"  {sentence}\n    -> {answer['translation_text']}")
    print(f"\nPictures: {curve} and {attention}")
    print("Next:")
    print(f"  .venv/bin/vanilla-transformer translate {folder} 'The child sees the dog.'")
    print("  .venv/bin/vanilla-transformer train recipes/small.yaml --output_dir runs/yours \\")
    print("      --train_source YOURS.en --train_target YOURS.de \\")
    print("      --validation_source VALID.en --validation_target VALID.de")
