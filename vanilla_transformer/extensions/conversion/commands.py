"""Convert models from and to the formats of other toolkits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from vanilla_transformer.cli.flags import ThreadArguments, parse
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.user_input.reasons import Reasons
from vanilla_transformer.user_input.schemas import ARGUMENT, INPUT, Input

from . import LANGUAGES, READERS, SHORTLISTS, WRITERS

_SENTENCES = 200


class ConvertArguments(ThreadArguments):
    """Flags of `convert`."""

    source: Annotated[str, ARGUMENT, INPUT] = Field(
        description="Model to convert, of another toolkit or of this package: a file or a folder."
    )
    output: Annotated[str, ARGUMENT] = Field(description="Folder or file of the converted model.")
    source_format: str | None = Field(
        None,
        description=f"Format of SOURCE; OUTPUT gets this package's format. {', '.join(READERS)}.",
    )
    target_format: str | None = Field(
        None,
        description=f"Format of OUTPUT; FOLDER has this package's format. {', '.join(WRITERS)}.",
    )
    languages: list[str] | None = Field(
        None,
        min_length=2,
        max_length=2,
        title="the source and the target language, such as `--languages en de`",
        description="Source and target language. fairseq: such as `--languages en de`, if the "
        "checkpoint names none; m2m_100: codes of its tokenizer, such as `--languages eng_Latn "
        "deu_Latn`.",
    )
    sentences: Input | None = Field(
        None,
        description="Text file to compare both models on, one sentence per line; by default 200 "
        "sentences of the validation text of the model's recipe, or of the demo corpus. bergamot: "
        "also the text that int8 is tuned on.",
    )
    shortlist: list[Input] | None = Field(
        None,
        min_length=2,
        max_length=2,
        title="files of source and target text, such as `--shortlist train.en train.de`",
        description="Source and target text, such as the training text: the search then chooses "
        f"among the tokens that translate the source's tokens there. {', '.join(SHORTLISTS)}.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> "ConvertArguments":
        formats = [
            (self.source_format, READERS, "source_format"),
            (self.target_format, WRITERS, "target_format"),
        ]
        requested = [(name, known, flag) for name, known, flag in formats if name is not None]
        if len(requested) != 1:
            raise UserError(
                f"Give either --source_format or --target_format, got {len(requested)} of them."
            )
        ((name, known, flag),) = requested
        if name not in known:
            raise UserError(f"`{flag}` must be one of {', '.join(known)}, got {name!r}.")
        with Reasons() as reasons:
            if self.languages is not None and self.source_format not in LANGUAGES:
                formats_with = " or ".join(LANGUAGES)
                reasons.add(
                    f"`--languages` needs `--source_format {formats_with}`: others name their "
                    "languages."
                )
            if self.shortlist is not None and self.target_format not in SHORTLISTS:
                formats_with = ", ".join(SHORTLISTS)
                reasons.add(f"`--shortlist` needs a `--target_format` of {formats_with}.")
        return self


def convert_command(arguments: Sequence[str]) -> None:
    options = parse(ConvertArguments, arguments)
    if options.source_format:
        convert = READERS[options.source_format]
    else:
        convert = WRITERS[str(options.target_format)]
    further: dict[str, Any] = {}
    if options.languages is not None:
        further["languages"] = options.languages
    if options.shortlist is not None:
        from .shortlist import read_shortlist_text

        further["shortlist_text"] = read_shortlist_text(options.shortlist)
    sentences = _read_sentences(options.sentences, options.source)
    comparison = convert(options.source, options.output, sentences, **further)
    result = comparison or "not compared, because the other toolkit cannot run here"
    print(f"{options.output}: {result}")


def _read_sentences(path: str | None, folder: str) -> list[str]:
    """Read the sentences to compare on: of a file, the validation text of a folder's recipe, or the
    demo corpus.
    """
    from vanilla_transformer.data.demo_corpus import read_demo_corpus
    from vanilla_transformer.data.readers import read_lines

    if path is not None:
        return read_lines(path)
    try:
        validation = Path(read_json(Path(folder) / "recipe.json")["validation_source"])
        has_text = validation.is_file()
    except (OSError, KeyError, TypeError):  # a model of another toolkit, or of a dataset
        has_text = False
    if has_text:
        return read_lines(validation)[:_SENTENCES]
    return [pair.source for pair in read_demo_corpus("test", _SENTENCES)]
