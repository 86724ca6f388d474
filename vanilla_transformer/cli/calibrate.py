"""Calibrate the confidence and the warnings of a model on validation text."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .arguments import MODEL, PRECISION_HELP, parse, require_one_model
from .language_arguments import LanguageArguments, language_settings


@dataclass
class _TextArguments:
    """Flags of the text, and of the model's precision."""

    source: str = field(metadata={"help": "Source text, one sentence per line: the validation text."})
    target: str = field(metadata={"help": "Its translations, one per line."})
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})


@dataclass
class CalibrateArguments(LanguageArguments, _TextArguments):
    """Flags of `calibrate`. The text files are aligned line by line. A fit to training text would be overconfident."""


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        CalibrateArguments, arguments, "calibrate MODEL --source FILE --target FILE [--flags]", MODEL
    )
    folder = require_one_model(words)
    if not Path(folder).is_dir():
        raise ValueError(f"The model must be a folder, whose config.json can be changed, got {folder}.")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"The model's folder must be writable, to store the calibration in it, but {folder} is not.")
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.evaluation.calibration import calibrate, check_enough, store_calibration

    pairs = read_text_files(options.source, options.target)
    check_enough(pairs)
    translate = load_pipeline(folder, precision=options.precision)
    found = calibrate(translate, pairs, **language_settings(translate.tokenizer, options))
    store_calibration(folder, found)
    for name, weight in found.calibration.weights.items():
        print(f"{name}: weight {weight:.4f}")
    limits, agreement = found.limits, found.agreement
    print(f"length ratio: {limits.shortest:.2f} to {limits.longest:.2f}, scripts: {', '.join(limits.scripts)}")
    print(
        f"On sentences left out of the fit, the confidence has Spearman's correlation {agreement.correlation:.3f} to "
        f"chrF and calibration error {agreement.error:.3f}."
    )
    print(f"{folder}/config.json has `confidence` and `warning_limits`.")
