"""Translate sentences, files, documents or piped lines; compile the steps of a model."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import (
    DOCUMENT_ENDINGS,
    FORMATS,
    TABLE_FORMATS,
    document_format,
)
from vanilla_transformer.files.text_folders import hash_texts, stream_texts, text_files
from vanilla_transformer.text.changes import describe_changes
from vanilla_transformer.user_input.schemas import ARGUMENT, Input, Output

from .flags import (
    PRECISION_HELP,
    Count,
    ModelNameArguments,
    OverwriteArguments,
    RayArguments,
    SentenceArguments,
    ThreadArguments,
    TranslationArguments,
    check_workers,
    cluster_work,
    enter_for_good,
    open_model,
    parse,
    refuse_file_names,
    translation_origin,
)
from .lines import (
    BATCHES,
    LineTranslator,
    Source,
    live_lines,
    print_texts,
    report_doubts,
    silence_libraries,
    split_lines,
    stdin_source,
)

if TYPE_CHECKING:
    from vanilla_transformer.decoding.corpus_shards import ShardWork, Work


_FORMATS = [*dict.fromkeys(DOCUMENT_ENDINGS.values())]
# Flags that are not for documents.
_NOT_OF_DOCUMENTS = (
    "target_prefix",
    "target_prefixes",
    "draft",
    "alternatives",
    "constraint",
    "tab_constraints",
)
# Flags without an effect on text that grows: its search is greedy, and its drafts are its own.
_NOT_OF_LIVE = (
    "n_best",
    "num_return_sequences",
    "alternatives",
    "do_sample",
    "mbr",
    "draft",
    "target_prefixes",
    "tab_constraints",
    "alignments",
    "fail_on_warnings",
    "split_sentences",
)


class TranslateArguments(TranslationArguments, SentenceArguments, RayArguments, OverwriteArguments):
    """Flags of `translate`."""

    sentences: Annotated[list[str], ARGUMENT] = Field(
        [],
        description=(
            "Sentences to translate; without any, an `--input` or standard input is translated."
        ),
    )
    input: Input | None = Field(
        None,
        description="File to translate, by default with one sentence per line; or a folder of such "
        "files, which are one text; or standard input.",
    )
    output: Output | None = Field(
        None, description="Write to this file, once it is complete, instead of standard output."
    )
    resume: bool = Field(False, description="Continue an interrupted `--output`.")
    as_json: bool = Field(
        False,
        alias="json",
        description="Print a JSON object per sentence, with scores, warnings, the log-probability "
        "of each token, an alignment if the model's configuration has `alignment_heads`, and a "
        "confidence if it was calibrated.",
    )
    alignments: bool = Field(
        False,
        description=(
            "Print ` ||| ` and the pairs of aligned words, such as 0-0 1-2, after each translation."
        ),
    )
    n_best: Annotated[int, Field(ge=1, le=500)] | None = Field(
        None,
        description=(
            "Number of translations to print per sentence, best first, each after its "
            "score and a tab."
        ),
    )
    batch_size: Count = Field(32, description="Sentences per batch.")
    quiet: bool = Field(False, description="Show no prompt, progress bar or warning.")
    format: str = Field(
        "",
        description=f"text (a sentence a line), {', '.join(_FORMATS[1:-1])} or {_FORMATS[-1]}, "
        "whose markup is kept. By default the ending of --input decides.",
    )
    existing: str | None = Field(
        None,
        description="Translation of an earlier version of the --input, in a format of messages "
        "with keys. It is written with what it lacks translated, and stays as it is elsewhere; it "
        "may be the --output itself.",
    )
    columns: str = Field(
        "",
        description="Columns of a CSV or TSV file to translate, with commas between them: names in "
        "its first row, such as name,description, or numbers from 1, whose first row is text, too.",
    )
    previous: list[Input] | None = Field(
        None,
        description="An earlier version of the --input and its translation. What did not change is "
        "kept, and the old wording is the draft of what did. With --existing, only the version "
        "that it translates; of a file with both languages, only the earlier translation.",
    )
    fail_on_warnings: bool = Field(
        False,
        description="End with an error if a translation has a warning, once all are written.",
    )
    live: bool = Field(
        False,
        description="Each line of standard input is a text that grows, as it is at the moment, and "
        "a blank line ends it. The part of its translation that is printed seldom changes; once it "
        "ends, that is all of it. With --json, objects have the rest, too.",
    )
    join_lines: Literal["yes", "no", "auto"] = Field(
        "no",
        description="Translate text that was wrapped at a width by its paragraphs, and wrap it "
        "again: yes, no, or auto, which finds such text.",
    )

    @property
    def named_format(self) -> str:
        """Return the format that is given, or that the name of the file says."""
        return self.format or _find_format(self.input or "")

    @property
    def source_format(self) -> str:
        """Return the format as which the text is read: lines may be joined."""
        if self.join_lines != "no":
            return "wrapped"
        return self.named_format

    def further_inputs(self) -> list[str | Path | int]:
        """Return standard input if it is translated."""
        return [] if self.sentences or self.input is not None else [0]

    @model_validator(mode="after")
    def _check_together(self) -> "TranslateArguments":
        if self.join_lines != "no" and self.named_format != "text":
            raise UserError(
                f"--join_lines is for plain text, but `--format` is {self.named_format}. Leave one "
                "out."
            )
        format = self.source_format
        if self.n_best is not None and self.num_return_sequences is not None:
            raise UserError(
                "Give --n_best (translations with scores) or --num_return_sequences (without), not "
                "both."
            )
        beams = self.num_beams
        if beams is not None and (self.n_best or 1) > beams and not self.do_sample:
            raise UserError(
                f"--n_best must be at most --num_beams={beams}, got {self.n_best}. Give more beams."
            )
        if self.sentences and (self.input is not None or format != "text"):
            hint = "`--input` and `--format` are for files and standard input."
            values = f"got the sentence {self.sentences[0]!r}"
            raise UserError(f"Give sentences or a file to translate, not both, {values}. {hint}")
        is_split = format != "text" or self.split_sentences
        if "sentence_splitter" in self.model_fields_set and not is_split:
            raise UserError(
                "--sentence_splitter is for documents and --split_sentences, got neither. Leave it "
                "out."
            )
        hint = "Give it by --input {}, or a sentence by standard input."
        refuse_file_names("Sentences", self.sentences, hint)
        constraints = self.constraint or []
        refuse_file_names("--constraint", constraints, "Write the words themselves.")
        hint = "Give it by --target_prefixes {}."
        refuse_file_names("--target_prefix", [self.target_prefix], hint)
        if self.target_prefix is not None and self.target_prefixes is not None:
            raise UserError(
                "Give --target_prefix (for all sentences) or --target_prefixes (a file), not both."
            )
        if self.alternatives is not None and self.n_best is not None:
            raise UserError(
                "With --alternatives there is one search for each. Leave out the number of "
                "translations."
            )
        if format != "text":
            self._check_document(format)
        if self.columns and format not in TABLE_FORMATS:
            raise UserError(f"--columns is for CSV and TSV, but `--format` is {format}.")
        if self.existing is not None:
            actual = DOCUMENT_ENDINGS.get(Path(self.existing).suffix.lower(), format)
            if format == "text" or actual != format:
                raise UserError(
                    "--existing must be a translation of the --input in its format, such as JSON, "
                    f"got {self.existing} for an --input in the format {format}."
                )
            if os.path.realpath(self.existing) == os.path.realpath(self.output or ""):
                self.overwrite = True  # by all that it has
        if self.previous is not None:
            self._check_previous(format)
        if format != "text":
            self._check_output(format)
        is_alone = self.input is None and self.output is None and not self.sentences
        if self.live and not (is_alone and format == "text"):
            raise UserError(
                "--live is for text of standard input. Leave out sentences, --input, --output and "
                "--format."
            )
        if self.live:
            self._check_live()
        is_search = format == "text" and not (self.samples or self.fail_on_warnings)
        is_search = is_search and self.previous is None
        if self.engine == "ray" and (self.input is None or not is_search):
            raise UserError(
                "--engine ray is for searches of the lines of an --input, without samples, "
                "--fail_on_warnings, --previous and --format."
            )
        if self.resume:
            self._check_resume()
        return self

    def _check_document(self, format: str) -> None:
        document_format(format)
        shown = f"{format} (by --join_lines)" if format == "wrapped" else format
        counts = {self.num_return_sequences, self.n_best}
        is_sampled = self.samples or self.seed is not None
        several = is_sampled or counts - {None, 1}
        if self.as_json or self.alignments or self.resume or several:
            reason = (
                "one translation, without `--json`, `--alignments`, `--resume`, `--do_sample`, "
                "`--seed` or `--mbr`"
            )
            raise UserError(f"With `--format {shown}` there is {reason}.")
        for name in _NOT_OF_DOCUMENTS:
            if getattr(self, name):
                raise UserError(f"--{name} is for sentences, but `--format` is {shown}.")

    def _check_output(self, format: str) -> None:
        if format == "wrapped" or self.output is None:
            return
        row = FORMATS[format]
        ending = Path(self.output).suffix.lower()
        formats = {format, "text"} if row.is_text else {format}
        is_as_input = ending == Path(self.input or "").suffix.lower()
        if DOCUMENT_ENDINGS.get(ending, format) not in formats and not is_as_input:
            raise UserError(
                f"The output has the format of the input, {format}, but the name {self.output} is "
                "one of another format. Choose another ending."
            )

    def _check_live(self) -> None:
        useless: list[str] = []
        for name in _NOT_OF_LIVE:
            if getattr(self, name):
                useless.append(name)
        if self.num_beams not in (None, 1):
            useless.append("num_beams")
        if useless:
            names = ", --".join(useless)
            raise UserError(
                "--live writes one translation of greedy search for each text. Leave out "
                f"--{names}, or --live."
            )

    def _check_previous(self, format: str) -> None:
        assert self.previous is not None
        is_alone = self.existing is not None or FORMATS[format].is_bilingual
        if len(self.previous) != (1 if is_alone else 2):
            wanted = "an earlier version of the --input and its translation"
            if is_alone:
                wanted = "one file: the version that --existing translates or, of a format with "
                wanted += "both languages, the earlier translation"
            raise UserError(f"--previous must be {wanted}, got {' '.join(self.previous)}.")
        if self.input is None:
            raise UserError("--previous is for a new version of a file. Give it by --input.")
        if self.n_best or self.num_return_sequences or self.draft or self.alignments:
            raise UserError(
                "With --previous there is one translation of each line. Leave out --n_best, "
                "--num_return_sequences, --draft and --alignments."
            )

    def _check_resume(self) -> None:
        if self.input is None or self.output is None:
            raise UserError(
                "--resume continues a file that an interrupted run began. Give its --input and "
                "--output."
            )
        if self.samples or self.fail_on_warnings:
            raise UserError(
                "--resume continues searches, not samples, and knows no warnings about finished "
                "lines. Leave out --resume, or --do_sample, --mbr and --fail_on_warnings."
            )
        output = Path(self.output)
        if output.exists() and not output.is_file():
            raise UserError(
                f"--resume needs an ordinary file as --output, but {self.output} is a pipe or a "
                "device."
            )


def translate_command(arguments: Sequence[str]) -> None:
    options = parse(TranslateArguments, arguments)
    if options.quiet:
        silence_libraries()
    if options.live:
        _translate_live(options)
    elif options.source_format == "text":
        _translate_lines(options, options.sentences or None)
    else:
        from vanilla_transformer.extensions.documents.commands import DocumentFile

        document = DocumentFile(options)
        if document.is_wrapped:
            options.split_sentences = False  # a document is split by its translator
            document.translate(open_model(options))
        else:
            _translate_lines(options, document.lines())


def _translate_live(options: TranslateArguments) -> None:
    """Translate texts that grow on standard input."""
    from vanilla_transformer.decoding.live_translation import LiveTranslation

    with open_model(options) as pipeline:
        live = LiveTranslation(pipeline, source_language=options.source_language)
        print_texts(live_lines(live, stdin_source(1).blocks, options.as_json))


def _translate_lines(options: TranslateArguments, lines: Sequence[str] | None) -> None:
    """
    Translate lines one by one.

    Args:
        lines: The sentences of the command, or standard input that has been read. By default the
            lines are read from the input or from standard input.
    """
    if options.split_sentences:
        from vanilla_transformer.decoding.sentence_splitter import find_splitter

        # Names a mistake before the model is loaded
        find_splitter(options.sentence_splitter, options.source_language)
    opening = open_model(options)
    output = None if options.output is None else Path(options.output)
    if lines is not None:
        source = split_lines(lines, len(lines), options.batch_size)
    elif options.input is not None:
        source = _open_input(options)
    elif output is None and hasattr(sys.stdin, "isatty") and sys.stdin.isatty():
        with opening as pipeline:
            LineTranslator(pipeline, options, None).converse()
        return
    else:
        source = stdin_source(options.batch_size)
    work = cluster_work(options, partial(_open_work, options, source.total))
    if work is not None:
        _write_shards(options, source.total, work)
        return
    with opening as pipeline:
        translator = LineTranslator(pipeline, options, source.total)
        is_pipe = output is not None and output.exists() and not output.is_file()
        if output is None or options.input is None or is_pipe:
            texts = translator.texts(source.blocks)
            print_texts(texts, options.output)
        else:
            _write_shards(options, source.total, translator.work)
    if translator.changes and not options.quiet:
        print(describe_changes(translator.changes, "lines"), file=sys.stderr)
    if options.fail_on_warnings:
        positions = (f"line {number + 1}" for number in translator.warned)
        report_doubts(positions, translator.warned, source.total or "the", fails=True)


def _open_input(options: TranslateArguments) -> Source:
    """Return the lines of a file or a folder, which has been read once to find damage before an
    hour of work.
    """
    assert options.input is not None
    is_text = options.format == "text"  # whatever the names of files say
    for file in text_files(options.input, options.output):
        if not is_text and _find_format(file.name) != "text":
            raise UserError(
                f"A folder to translate must have files of lines, but {file} is a document. "
                "Translate it by itself, or say --format text."
            )
    checked = stream_texts(options.input, may_be_blank=True, may_be_markup=is_text)
    total = sum(1 for _ in checked)
    streamed = stream_texts(options.input, may_be_blank=True, may_be_markup=True)
    return split_lines(streamed, total, options.batch_size)


def _find_format(name: str) -> str:
    """Return the format of a file by the ending of its name, before that of a compression.

    Lines of text have the ending of text, the code of a language or none.
    """
    from vanilla_transformer.data.readers.corpora import file_format
    from vanilla_transformer.text.languages import is_language

    ending = file_format(name).lower()
    if ending and ending not in DOCUMENT_ENDINGS and not is_language(ending[1:]):
        endings = ", ".join(DOCUMENT_ENDINGS)
        known = f"{endings} or, for lines of text, the code of a language or nothing"
        raise UserError(
            f"The name of a file must end with {known}, got {name}. Convert it, or say by --format "
            "how to read it, such as --format text."
        )
    return DOCUMENT_ENDINGS.get(ending, "text")


def _write_shards(options: TranslateArguments, total: int | None, work: "Work") -> None:
    """Write the translations of a file, of which finished parts are kept."""
    from vanilla_transformer.decoding.corpus_shards import write_shards

    assert options.input is not None and options.output is not None and total is not None
    output = Path(options.output)
    origin = {"input": hash_texts(options.input), **translation_origin(options)}
    lines = stream_texts(options.input, may_be_blank=True, may_be_markup=True)
    size = options.batch_size * BATCHES
    write_shards(output, lines, total, origin, size, options.resume, work)


def _open_work(options: TranslateArguments, total: int | None) -> "ShardWork":
    """Load the model in a worker of a cluster, and return the function that translates a shard."""
    return LineTranslator(enter_for_good(partial(open_model, options)), options, total).answer


class CompileArguments(ModelNameArguments, ThreadArguments):
    """Flags of `compile`."""

    precision: str = Field("float32", description=PRECISION_HELP)
    workers: int = Field(1, description="Processes of `translate --workers` for which to compile.")
    num_beams: Annotated[int, Field(ge=1, le=500)] | None = Field(
        None, description="Beam size; by default 1, which is greedy search, and the checkpoint's."
    )


def compile_command(arguments: Sequence[str]) -> None:
    options = parse(CompileArguments, arguments)
    workers = check_workers(options.workers)
    from vanilla_transformer.decoding.compile_model import compile_model
    from vanilla_transformer.decoding.engine.precision import check_precision

    check_precision(options.precision)
    report = partial(print, flush=True)
    compile_model(options.model, options.precision, workers, options.num_beams, report)
