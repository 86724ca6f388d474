"""Train a student on a teacher's translations, and translate text of the target language back."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from vanilla_transformer.cli.flags import (
    Count,
    OverwriteArguments,
    RayArguments,
    TranslationArguments,
    cluster_work,
    enter_for_good,
    open_model,
    parse,
    register_models,
    translation_origin,
)
from vanilla_transformer.cli.lines import silence_libraries
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.imports import show_progress
from vanilla_transformer.user_input.schemas import Input, Output

from .distillation_arguments import parse_distillation

if TYPE_CHECKING:
    from vanilla_transformer.decoding.corpus_shards import ShardWork


def distill_command(arguments: Sequence[str]) -> None:
    recipe, options = parse_distillation(arguments, program="vanilla-transformer distill")
    register_models()
    if recipe.output.dry_run:
        raise UserError("--dry_run is for `train`, which plans the same recipe. Leave it out.")
    from vanilla_transformer.machine.cores import use_all_cores

    from .distill import TABLE_FILE, distill

    use_all_cores()
    with show_progress():
        distilled = distill(recipe, options)
    print(distilled.table, end="")
    table = distilled.folder / TABLE_FILE
    print(f"The student is in {distilled.folder}, and a report in {table}.")


class BackTranslateArguments(TranslationArguments, RayArguments, OverwriteArguments):
    """Flags of `back-translate`."""

    input: Input = Field(
        description="Text of the target language, one sentence per line, or a folder of such files."
    )
    output: Output = Field(
        description=(
            "Write pairs to this .tsv or .jsonl file, a corpus for `corpora:`, once it is complete."
        )
    )
    tag: str | None = Field(
        None,
        description=(
            "Word before each source, such as <BT>, by which a model tells them from real ones."
        ),
    )
    keep_warnings: bool = Field(
        False,
        description=(
            "Keep translations with a warning: copy, repetition, numbers, script or length."
        ),
    )
    resume: bool = Field(False, description="Continue an interrupted run.")
    batch_size: Count = Field(32, description="Sentences per batch.")
    quiet: bool = Field(False, description="Show no progress bar or warning.")


def back_translate_command(arguments: Sequence[str]) -> None:
    options = parse(BackTranslateArguments, arguments)
    has_mbr_samples = options.mbr is not None and options.num_beams is None
    if options.seed is None and (options.do_sample or has_mbr_samples):
        options.seed = 0  # by which a run that continues draws the same samples
    opening = open_model(options)
    if options.quiet:
        silence_libraries()
    from .back_translation import back_translate, check_output

    work = cluster_work(options, partial(_open_work, options))
    text, output = Path(options.input), Path(options.output)
    check_output(output, options.tag)
    with opening as translate:
        origin, kept = translation_origin(options), options.keep_warnings
        tag, resume, batch_size = options.tag, options.resume, options.batch_size
        result = back_translate(
            translate, text, output, origin, tag, kept, resume, batch_size, work
        )
    counts = [f"{count:,} {reason}" for reason, count in result.dropped.items()]
    dropped = ", ".join(counts) or "none"
    print(f"{result.pairs:,} pairs of {result.lines:,} lines are in {output}. Dropped: {dropped}.")


def _open_work(options: BackTranslateArguments) -> "ShardWork":
    """Load the model in a worker of a cluster, and return the function that translates a shard."""
    from .back_translation import translate_shard

    return partial(
        translate_shard, enter_for_good(partial(open_model, options)), options.batch_size
    )
