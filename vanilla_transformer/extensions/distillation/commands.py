"""Train a student on a teacher's translations, and translate text of the target language back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.cli.flags import (
    MODEL,
    TranslationArguments,
    open_model,
    parse,
    register_models,
    require_one_model,
    translation_origin,
)
from vanilla_transformer.cli.lines import silence_libraries
from vanilla_transformer.cli.train import show_progress, use_all_cores
from vanilla_transformer.errors import UserError

from .distillation_arguments import parse_distillation


def distill_command(arguments: Sequence[str]) -> None:
    recipe, options = parse_distillation(arguments, program="vanilla-transformer distill")
    register_models()
    if recipe.output.dry_run:
        raise UserError("--dry_run is for `train`, which plans the same recipe. Leave it out.")
    from vanilla_transformer.evaluation.scores import evaluator_for

    from .distill import TABLE_FILE, distill

    show_progress()
    use_all_cores()
    distilled = distill(recipe, options, evaluate=evaluator_for(recipe.output.best_metric))
    print(distilled.table, end="")
    print(f"The student is in {distilled.folder}, and this table in {distilled.folder / TABLE_FILE}.")


# The flags of `back-translate` that `--help` shows.
_BACK_TRANSLATION_MAIN = [
    "input",
    "output",
    "tag",
    "keep_warnings",
    "resume",
    "batch_size",
    "num_beams",
    "do_sample",
    "seed",
    "device",
    "precision",
]


@dataclass
class _PairArguments:
    """Flags of the text, and of the pairs."""

    input: str = field(metadata={"help": "Text of the target language, one sentence per line."})
    output: str = field(
        metadata={"help": "Write pairs to this .tsv or .jsonl file, a corpus for `corpora:`, once it is complete."}
    )
    tag: str | None = field(
        default=None,
        metadata={"help": "Word before each source, such as <BT>, by which a model tells them from real ones."},
    )
    keep_warnings: bool = field(
        default=False,
        metadata={"help": "Keep translations with a warning: copy, repetition, numbers, script or length."},
    )
    resume: bool = field(default=False, metadata={"help": "Continue an interrupted run."})
    batch_size: int = field(default=32, metadata={"help": "Sentences per batch."})
    quiet: bool = field(default=False, metadata={"help": "Show no progress bar or warning."})


@dataclass
class BackTranslateArguments(TranslationArguments, _PairArguments):
    """Flags of `back-translate`."""


def back_translate_command(arguments: Sequence[str]) -> None:
    usage = "back-translate MODEL --input FILE --output FILE.tsv [--flags]"
    words, options = parse(BackTranslateArguments, arguments, usage, MODEL, _BACK_TRANSLATION_MAIN)
    model = require_one_model(words)
    if options.batch_size < 1:
        raise UserError(f"`batch_size` must be 1 or more, got {options.batch_size}.")
    if options.seed is None and (options.do_sample or (options.mbr is not None and options.num_beams is None)):
        options.seed = 0  # by which a run that continues draws the same samples
    opening = open_model(model, options)
    if options.quiet:
        silence_libraries()
    from .back_translation import back_translate, check_output

    text, output = Path(options.input), Path(options.output)
    check_output(output, options.tag)
    with opening as translate:
        origin, kept = translation_origin(model, options), options.keep_warnings
        result = back_translate(translate, text, output, origin, options.tag, kept, options.resume, options.batch_size)
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in result.dropped.items()) or "none"
    print(f"{result.pairs:,} pairs of {result.lines:,} lines are in {output}. Dropped: {dropped}.")
