"""Calibrate a model, and check the text of a language pair."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vanilla_transformer.cli.flags import (
    OverwriteArguments,
    ParallelTextArguments,
    TranslationArguments,
    open_model,
    parse,
)
from vanilla_transformer.data.data_arguments import corpus_specs
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.outputs import check_outputs
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.user_input.schemas import ARGUMENT, Input, Output


class CalibrateArguments(ParallelTextArguments, TranslationArguments):
    """Flags of `calibrate`. The text files are aligned line by line.

    A fit to training text would be overconfident.
    """


def calibrate_command(arguments: Sequence[str]) -> None:
    options = parse(CalibrateArguments, arguments)
    folder = options.model
    if not Path(folder).is_dir():
        raise UserError(
            f"The model must be a folder, whose config.json can be changed, got {folder}."
        )
    if not os.access(folder, os.W_OK):
        raise UserError(
            f"The model's folder must be writable, to store the calibration in it, but {folder} is "
            "not."
        )
    from vanilla_transformer.data.readers import read_text_files

    from .calibration import calibrate, check_enough, store_calibration

    pairs = read_text_files(options.source, options.target)
    check_enough(pairs)
    with open_model(options) as translate:
        calibrated = calibrate(translate, pairs)
        options_of_call = translate.begin({}, None).options
        direction = Direction(options_of_call.src_lang, options_of_call.tgt_lang)
        stand_ins = translate.probe_stand_ins(direction)
    store_calibration(folder, calibrated, direction, stand_ins)
    for name, weight in calibrated.calibration.weights.items():
        print(f"{name}: weight {weight:.4f}")
    limits, agreement = calibrated.limits, calibrated.agreement
    print(
        f"length ratio: {limits.shortest:.2f} to {limits.longest:.2f}, scripts: "
        f"{', '.join(limits.scripts)}"
    )
    print(
        "On sentences left out of the fit, the confidence has Spearman's correlation "
        f"{agreement.correlation:.3f} to chrF and calibration error {agreement.error:.3f}."
    )
    words = [*stand_ins.names, *stand_ins.numbers, *stand_ins.domains]
    print(f"stand-ins for text to keep: {', '.join(words) or 'none'}")
    print(f"quotation marks kept around them: {' '.join(stand_ins.quotation_marks) or 'none'}")
    print(f"{folder}/config.json has `confidence`, `warning_limits` and `stand_ins`.")


class CheckLanguageArguments(OverwriteArguments):
    """Flags of `check-language`."""

    source: Annotated[Input, ARGUMENT] = Field("", description="Text file, one sentence per line.")
    target: Annotated[Input, ARGUMENT] = Field("", description="Its translation, line by line.")
    recipe: Input | None = Field(
        None,
        description=(
            "Recipe whose keys are read: its tokenizer, its rules and, without files, its corpora."
        ),
    )
    source_language: str | None = Field(
        None, description="Code of the source language, such as hi."
    )
    target_language: str | None = Field(
        None, description="Code of the target language, such as en."
    )
    json_file: Output | None = Field(
        None, alias="json", description="Write the page to this file as JSON, too."
    )


def check_language_command(arguments: Sequence[str]) -> None:
    options = parse(CheckLanguageArguments, arguments)
    files = [name for name in (options.source, options.target) if name]
    if len(files) not in (0, 2) or (not files and options.recipe is None):
        raise UserError(
            f"Name a SOURCE and a TARGET file, or a --recipe with both, got {len(files)} files."
        )
    if options.recipe is None:
        recipe = ["--train_source", files[0], "--train_target", files[1]]
    else:
        recipe = [options.recipe]
    recipe += ["--output_dir", "unused"]
    data = parse_recipe(recipe, "vanilla-transformer check-language").data
    from vanilla_transformer.data.readers import (
        CorpusSpec,
        SentencePair,
        has_invalid_unicode,
        open_corpus,
        read_rows,
    )
    from vanilla_transformer.files.text_files import invalid_unicode_error

    from .language_check import check_language

    invalid = list[str]()

    def read(specs: Sequence[CorpusSpec]) -> Iterator[SentencePair]:
        for spec in specs:
            with open_corpus(spec) as corpus:
                for number, pair, _ in read_rows(corpus):
                    bad = []
                    for side, text in enumerate(pair):
                        if has_invalid_unicode(text):
                            bad.append(side)
                    if not bad:
                        yield pair
                    for side in bad:
                        location = spec.location(side)
                        error = invalid_unicode_error(number, location, pair[side])
                        invalid.append(str(error))

    languages = {}
    for name in ("source_language", "target_language"):
        languages[name] = getattr(options, name) or getattr(data, name)
    if files:
        corpora = [CorpusSpec(source=files[0], target=files[1], **languages)]
    else:
        corpora = corpus_specs(data)
    if options.json_file is not None:
        inputs = chain.from_iterable(corpus.files for corpus in corpora)
        check_outputs([options.json_file], list(inputs))
    reports = []
    for direction in dict.fromkeys(corpus.direction for corpus in corpora):
        pairs = read([corpus for corpus in corpora if corpus.direction == direction])
        invalid.clear()
        reports.append(check_language(pairs, *direction, data, invalid))
        print("\n".join(reports[-1].lines()))
    if options.json_file is not None:
        values = [asdict(report) for report in reports]
        page = json.dumps(values, indent=2, ensure_ascii=False)
        write_text_atomically(options.json_file, page + "\n")
