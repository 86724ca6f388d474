"""Convert models from and to the formats of other toolkits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.cli.flags import ThreadArguments, parse
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.file_utils import read_json

from . import LANGUAGES, READERS, WRITERS, Converter

_USAGE = "convert SOURCE OUTPUT --source_format FORMAT, or convert FOLDER OUTPUT --target_format FORMAT"
_ARGUMENTS = {
    "SOURCE, FOLDER": "Model to convert, of another toolkit or of this package: a file or a folder.",
    "OUTPUT": "Folder or file of the converted model.",
}
_SENTENCES = 200


@dataclass
class ConvertArguments(ThreadArguments):
    """Flags of `convert`."""

    source_format: str | None = field(
        default=None, metadata={"help": f"Format of SOURCE; OUTPUT gets this package's format. {', '.join(READERS)}."}
    )
    target_format: str | None = field(
        default=None, metadata={"help": f"Format of OUTPUT; FOLDER has this package's format. {', '.join(WRITERS)}."}
    )
    languages: list[str] | None = field(
        default=None,
        metadata={
            "help": "Source and target language. fairseq: such as `--languages en de`, if the checkpoint names none; "
            "m2m_100: codes of its tokenizer, such as `--languages eng_Latn deu_Latn`."
        },
    )
    sentences: str | None = field(
        default=None,
        metadata={
            "help": "Text file to compare both models on, one sentence per line; by default 200 sentences of the "
            "validation text of the model's recipe, or of the demo corpus."
        },
    )


def convert_command(arguments: Sequence[str]) -> None:
    words, options = parse(ConvertArguments, arguments, _USAGE, _ARGUMENTS)
    if len(words) != 2:
        raise UserError(f"Name the model to convert and the output, got {len(words)} names.")
    source, output = words
    convert = _select_converter(options)
    comparison = convert(source, output, _read_sentences(options.sentences, source), **_select_languages(options))
    print(f"{output}: {comparison or 'not compared, because the original cannot run here'}")


def _select_languages(options: ConvertArguments) -> dict[str, list[str]]:
    """Return the converter's argument `languages`, if it is given."""
    if options.languages is None:
        return {}
    if options.source_format not in LANGUAGES:
        formats = " or ".join(LANGUAGES)
        raise UserError(f"`--languages` needs `--source_format {formats}`: other formats name their languages.")
    if len(options.languages) != 2:
        raise UserError(
            f"`--languages` must be the source and the target language, such as `--languages en de`, got "
            f"{' '.join(options.languages)!r}."
        )
    return {"languages": options.languages}


def _read_sentences(path: str | None, folder: str) -> list[str]:
    from vanilla_transformer.data.demo_corpus import read_demo_corpus
    from vanilla_transformer.data.readers import read_lines

    if path is not None:
        return read_lines(path)
    if (validation := _validation_text(folder)) is not None:
        return read_lines(validation)[:_SENTENCES]
    return [pair.source for pair in read_demo_corpus("test", _SENTENCES)]


def _validation_text(folder: str) -> str | None:
    """Return the file with the validation text of the recipe in a folder, or None if it names none that is there."""
    try:
        path = read_json(Path(folder) / "recipe.json")["validation_source"]
        return path if Path(path).is_file() else None
    except (OSError, KeyError, TypeError):  # also a model of another toolkit
        return None


def _select_converter(options: ConvertArguments) -> Converter:
    given = [
        (flag, name, known)
        for flag, name, known in (
            ("source_format", options.source_format, READERS),
            ("target_format", options.target_format, WRITERS),
        )
        if name is not None
    ]
    if len(given) != 1:
        raise UserError(f"Give either --source_format or --target_format, got {len(given)} of them.")
    ((flag, name, known),) = given
    if name not in known:
        raise UserError(f"`{flag}` must be one of {', '.join(known)}, got {name!r}.")
    return known[name]
