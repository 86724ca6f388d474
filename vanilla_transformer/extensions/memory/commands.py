"""Adapt a model to a translation memory, and write the suggestions of a service as one."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from vanilla_transformer.cli.evaluate import ComparisonArguments, compare_by_flags
from vanilla_transformer.cli.flags import OverwriteArguments, check_one_process, parse
from vanilla_transformer.errors import UserError
from vanilla_transformer.user_input.schemas import ARGUMENT, Input, Output


class AdaptArguments(ComparisonArguments):
    """Flags of `adapt`."""

    files: Annotated[list[Input], ARGUMENT] = Field(
        title="MEMORY",
        min_length=1,
        description="Files of the translation memory to learn from, as `translate --memory` reads "
        "them.",
    )
    output_dir: str = Field(description="New folder for the adapted model.")
    max_minutes: Annotated[float, Field(gt=0, le=10**6)] = Field(
        10.0, description="Most minutes of training."
    )
    source: Input | None = Field(
        None,
        description="General text, one sentence per line. A part is learned with the memory, and "
        "the model must translate the other part as well as before.",
    )
    target: Input | None = Field(None, description="Its translations, one per line.")

    @model_validator(mode="after")
    def _check_text(self) -> "AdaptArguments":
        if (self.source is None) != (self.target is None):
            raise UserError(
                "General text needs its translations. Give both --source and --target, or none."
            )
        return self


def adapt_command(arguments: Sequence[str]) -> None:
    options = parse(AdaptArguments, arguments)
    check_one_process("`train --lora_rank` for several processes")
    from vanilla_transformer.decoding.pretrained import load_tokenizer
    from vanilla_transformer.files.outputs import check_output_dir_is_empty
    from vanilla_transformer.text.languages import find_direction
    from vanilla_transformer.training.checkpoint import copy_model

    from .adaptation import split_general_text, split_memory, train_adapter

    output = Path(options.output_dir)
    check_output_dir_is_empty(output)
    codes = (options.source_language, options.target_language)
    direction = find_direction(load_tokenizer(options.model), *codes)
    training, held_out = split_memory(options.files, direction)
    tests = {"held-out pairs of the memory": held_out}
    if options.source is not None and options.target is not None:
        general, general_test = split_general_text(
            options.source, options.target, len(training), held_out
        )
        training += general
        tests["general text"] = general_test
    reasons = list[str]()
    with tempfile.TemporaryDirectory() as parent:
        adapted = train_adapter(
            options.model,
            training,
            direction,
            Path(parent),
            options.max_minutes,
            options.threads,
        )
        for name, texts in tests.items():
            comparison, losses = compare_by_flags(options, options.model, str(adapted), texts)
            print(f"# {name.capitalize()}\n\n{comparison.markdown(losses, options.changes)}\n")
            reasons += [f"{name}: {loss}" for loss in losses]
        if reasons:
            raise SystemExit("\n".join(["The adapted model was not kept:", *reasons]))
        copy_model(adapted, output)
    print(f"The adapted model is in {output}.")


class ExportMemoryArguments(OverwriteArguments):
    """Flags of `export-memory`."""

    folder: Annotated[str, ARGUMENT] = Field(
        title="FOLDER", description="Folder of `serve --suggestions`."
    )
    output: Output = Field(description="File to write, in TMX.")


def export_memory_command(arguments: Sequence[str]) -> None:
    options = parse(ExportMemoryArguments, arguments)
    from vanilla_transformer.files.atomic import write_text_atomically

    from .suggestions import read_suggestions, write_tmx

    write_text_atomically(options.output, write_tmx(read_suggestions(options.folder)))
