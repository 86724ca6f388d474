"""Text files of a cleaned corpus, and the languages by which it may be cleaned."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from vanilla_transformer.data.prepare_data import REPORT_FILE
from vanilla_transformer.data.readers import CorpusSpec
from vanilla_transformer.data.texts import Texts
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.outputs import check_output_dir, check_outputs
from vanilla_transformer.text.languages import (
    NO_DIRECTION,
    Direction,
    language_code,
    load_identifier,
)


def why_languages_are_unknown(specs: Sequence[CorpusSpec]) -> str | None:
    """Return why `other_languages` cannot be found in all corpora, or None if it can."""
    try:
        load_identifier()
    except UserError as error:
        return str(error)
    for spec in specs:
        for side, language in zip(("source", "target"), spec.direction, strict=True):
            if language is None:
                return f"`{side}_language` of {spec.name} is not given."
            if language_code(language) is None:
                reason = f"{language} has no code that py3langid knows"
                return f"`{side}_language` of {spec.name} {reason}."
    return None


def write_corpus_files(texts: Texts, folder: str | Path) -> list[Path]:
    """
    Write two parallel text files for each direction, and the report on cleaning as `corpus.json`,
    all or nothing.

    Returns:
        The text files, such as `train.en-de.en` and `train.en-de.de`; without languages
        `train.source` and `train.target`, and within one language `train.en-en.source` and
        `train.en-en.target`.
    """
    directions = [spec.direction for spec in texts.specs]
    names = {*chain.from_iterable(map(_text_file_names, directions))}
    outputs = [Path(folder) / name for name in names]
    inputs = chain.from_iterable(spec.files for spec in texts.specs)
    check_outputs(outputs, list(inputs))
    check_output_dir(folder, own=[REPORT_FILE, *names])
    with atomic_folder(folder) as aside:
        with ExitStack() as stack:
            files = {}
            for name in names:
                file = (aside / name).open("w", encoding="utf-8")
                files[name] = stack.enter_context(file)
            for corpus, pair in texts.training.pairs():
                names_of_pair = _text_file_names(directions[corpus])
                for name, text in zip(names_of_pair, pair, strict=True):
                    files[name].write(" ".join(text.splitlines()) + "\n")
        report = {"cleaning": texts.training.report.to_dict()}
        entries = json.dumps(report, indent=2) + "\n"
        (aside / REPORT_FILE).write_text(entries, encoding="utf-8")
    return sorted(outputs)


def _text_file_names(direction: Direction) -> tuple[str, str]:
    if direction == NO_DIRECTION:
        return "train.source", "train.target"
    if direction.source == direction.target:
        return f"train.{direction}.source", f"train.{direction}.target"
    stem = f"train.{direction}"
    return f"{stem}.{direction.source}", f"{stem}.{direction.target}"
