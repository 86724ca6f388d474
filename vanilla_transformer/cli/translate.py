"""Translate sentences, files, documents or piped lines; compile the steps of a model."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.resources import DOCUMENT_ENDINGS, OTHER_ENDINGS
from vanilla_transformer.utils.schemas import ARGUMENT, Input, Output

from .flags import (
    DEFAULT_LANGUAGE,
    PRECISION_HELP,
    Count,
    ModelNameArguments,
    OverwriteArguments,
    RayArguments,
    SentenceArguments,
    ThreadArguments,
    TranslationArguments,
    check_workers,
    open_model,
    parse,
    refuse_file_names,
    translation_origin,
)
from .lines import (
    BlockProgress,
    Source,
    answer_lines,
    file_source,
    given_source,
    is_interactive,
    print_texts,
    shard_lines,
    silence_libraries,
    stdin_source,
    typed_lines,
)

if TYPE_CHECKING:
    from vanilla_transformer import TranslationPipeline
    from vanilla_transformer.decoding.corpus_shards import Shard

logger = logging.getLogger(__name__)


def _translate_document(
    opening: AbstractContextManager["TranslationPipeline"], options: "TranslateArguments", text: str, note: str
) -> None:
    """
    Translate a document and write it.

    Args:
        note: A line to print once the document is read, if there is one.
    """
    from vanilla_transformer.decoding.sentence_splitter import find_splitter
    from vanilla_transformer.extensions.documents import parse_document, translator_by
    from vanilla_transformer.text.languages import find_direction

    splitter = find_splitter(options.sentence_splitter, options.source_language or DEFAULT_LANGUAGE)
    parse_document(text, options.format)  # names mistakes before a model is loaded
    if note:
        print(note, file=sys.stderr)
    with opening as pipeline:
        direction = find_direction(pipeline.tokenizer, options.source_language, options.target_language)
        document = parse_document(text, options.format, direction)
        search = {"num_beams": options.num_beams, "batch_size": options.batch_size}
        translator = translator_by(pipeline, splitter, options.protect, **search)
        translated = document.render(translator(document.blocks))
    print_texts([translated], options.output)
    if document.summary and not options.quiet:
        targets = sorted({named.target for named in document.directions if named.target})
        if targets and direction.target is None:  # the language of the translation is unknown
            rule = "and the model does not say what it writes. Name its language by --target_language"
            print(f"warning: The file asks for {', '.join(targets)}, {rule}.", file=sys.stderr)
        print(document.summary, file=sys.stderr)


_FORMATS = [*dict.fromkeys(DOCUMENT_ENDINGS.values())]
# Flags that are not for documents.
_NOT_OF_DOCUMENTS = (
    "target_prefix",
    "target_prefixes",
    "alternatives",
    "constraint",
    "tab_constraints",
)


class TranslateArguments(TranslationArguments, SentenceArguments, RayArguments, OverwriteArguments):
    """Flags of `translate`."""

    sentences: Annotated[list[str], ARGUMENT] = Field(
        [], description="Sentences to translate; without any, an `--input` or standard input is translated."
    )
    input: Input | None = Field(
        None, description="File to translate, by default with one sentence per line; or standard input."
    )
    output: Output | None = Field(
        None, description="Write to this file, once it is complete, instead of standard output."
    )
    resume: bool = Field(False, description="Continue an interrupted `--output`.")
    as_json: bool = Field(
        False,
        alias="json",
        description="Print a JSON object per sentence, with scores, warnings, the log-probability of each token, an "
        "alignment if the model's configuration has `alignment_heads`, and a confidence if it was calibrated.",
    )
    alignments: bool = Field(
        False, description="Print ` ||| ` and the pairs of aligned words, such as 0-0 1-2, after each translation."
    )
    n_best: Annotated[int, Field(ge=1, le=500)] | None = Field(
        None,
        description="Number of translations to print per sentence, best first, each after its score and a tab.",
    )
    batch_size: Count = Field(32, description="Sentences per batch.")
    quiet: bool = Field(False, description="Show no prompt, progress bar or warning.")
    format: str = Field(
        "",
        description=f"text (a sentence a line), {', '.join(_FORMATS[1:-1])} or {_FORMATS[-1]}, whose markup is kept. "
        "By default the ending of --input decides.",
    )
    join_lines: Literal["yes", "no", "auto"] = Field(
        "no",
        description="Translate text that was wrapped at a width by its paragraphs, and wrap it again: yes, no, or "
        "auto, which finds such text.",
    )

    def further_inputs(self) -> list[str | Path | int]:
        """Return standard input if it is translated."""
        return [] if self.sentences or self.input is not None else [0]

    @model_validator(mode="after")
    def _check_together(self) -> "TranslateArguments":
        format = self.format or _find_format(self.input or "")
        if self.join_lines != "no":
            if format != "text":
                raise UserError(f"--join_lines is for plain text, but `--format` is {format}. Leave one out.")
            format = "wrapped"
        if self.n_best is not None and self.num_return_sequences is not None:
            raise UserError("Give --n_best (translations with scores) or --num_return_sequences (without), not both.")
        if self.sentences and (self.input is not None or format != "text"):
            hint = "`--input` and `--format` are for files and standard input."
            found = f"got the sentence {self.sentences[0]!r}"
            raise UserError(f"Give sentences or a file to translate, not both, {found}. {hint}")
        if "sentence_splitter" in self.model_fields_set and format == "text" and not self.split_sentences:
            raise UserError("--sentence_splitter is for documents and --split_sentences, got neither. Leave it out.")
        refuse_file_names("Sentences", self.sentences, "Give it by --input {}, or a sentence by standard input.")
        refuse_file_names("--constraint", self.constraint or [], "Write the words themselves.")
        refuse_file_names("--target_prefix", [self.target_prefix], "Give it by --target_prefixes {}.")
        if self.target_prefix is not None and self.target_prefixes is not None:
            raise UserError("Give --target_prefix (for all sentences) or --target_prefixes (a file), not both.")
        if self.alternatives is not None and self.n_best is not None:
            raise UserError("With --alternatives there is one search for each. Leave out the number of translations.")
        if format != "text":
            self._check_document(format)
        if self.engine == "ray" and (self.input is None or self.samples or format != "text"):
            raise UserError("--engine ray is for searches of the lines of an --input, without samples and --format.")
        if self.resume:
            self._check_resume()
        return self

    def _check_document(self, format: str) -> None:
        shown = f"{format} (by --join_lines)" if format == "wrapped" else format
        several = {self.num_return_sequences, self.n_best} - {None, 1} or self.samples or self.seed is not None
        if self.as_json or self.alignments or self.resume or several:
            rule = "one translation, without `--json`, `--alignments`, `--resume`, `--do_sample`, `--seed` or `--mbr`"
            raise UserError(f"With `--format {shown}` there is {rule}.")
        for name in (name for name in _NOT_OF_DOCUMENTS if getattr(self, name)):
            raise UserError(f"--{name} is for sentences, but `--format` is {shown}.")

    def _check_resume(self) -> None:
        if self.input is None or self.output is None:
            raise UserError("--resume continues a file that an interrupted run began. Give its --input and --output.")
        if self.samples:
            raise UserError("--resume continues searches, not samples. Leave out --resume, or --do_sample and --mbr.")
        if Path(self.output).exists() and not Path(self.output).is_file():
            raise UserError(f"--resume needs an ordinary file as --output, but {self.output} is a pipe or a device.")


def translate_command(arguments: Sequence[str]) -> None:
    options = parse(TranslateArguments, arguments)
    sentences, is_silent = options.sentences, bool(options.format) or options.quiet
    options.format = options.format or _find_format(options.input or "")
    if options.join_lines != "no":
        options.format, is_silent = "wrapped", options.quiet or options.join_lines == "yes"
    if options.quiet:
        silence_libraries()
    text, note = (None, "") if options.format == "text" else _read_document(options)
    if options.format != "text":
        options.split_sentences = False  # a document is split by its translator
    opening = open_model(options)
    if text is not None and options.format != "text":
        _translate_document(opening, options, text, "" if is_silent else note)
        return
    is_typed = not sentences and options.input is None and options.output is None and is_interactive()
    source = Source(iter(()), None) if is_typed and text is None else _source(sentences, options, text)
    if options.split_sentences:
        _check_splitter(options)
    if options.engine == "ray":
        from vanilla_transformer.extensions.scale_out import work_by_ray

        build = partial(_open_work, options, source.total)
        cluster: dict[str, Any] = {"workers": options.ray_workers, "threads": options.ray_threads}
        cluster |= {"total": source.total, "hidden": options.quiet}
        _write_shards(options, source.total, partial(work_by_ray, build=build, **cluster))
        return
    output = None if options.output is None else Path(options.output)
    with opening as translate:
        translator = LineTranslator(translate, options, source.total)
        if is_typed and text is None:
            translator.converse()
        elif output is None or options.input is None or (output.exists() and not output.is_file()):
            print_texts(translator.texts(source.blocks), options.output)
        else:
            _write_shards(options, source.total, translator.work)


def _find_format(name: str) -> str:
    """Return the format of a file by the ending of its name, before that of a compression."""
    from vanilla_transformer.data.readers.corpora import file_format

    ending = file_format(name).lower()
    if ending in OTHER_ENDINGS:
        rule = f"The name of a file must end with {', '.join(DOCUMENT_ENDINGS)} or, for lines of text, no known format"
        raise UserError(f"{rule}, got {name}. Convert it, or say by --format how to read it, such as --format text.")
    return DOCUMENT_ENDINGS.get(ending, "text")


def _read_document(options: TranslateArguments) -> tuple[str, str]:
    """Return a document and a line that says its format. The format becomes text if `auto` finds no wrapped lines."""
    from vanilla_transformer.extensions.documents import WrappedText, read_document

    _check_splitter(options)
    text = read_document(options.input)
    if options.join_lines != "auto":
        return text, f"{options.input} is translated as {options.format}; --format text translates its lines."
    document = WrappedText(text)
    if not document.is_wrapped:
        options.format = "text"
    found = f"The lines are wrapped at {document.width} characters, so their paragraphs are translated"
    return text, f"{found}; --join_lines no translates each line."


def _check_splitter(options: TranslateArguments) -> None:
    from vanilla_transformer.decoding.sentence_splitter import find_splitter

    find_splitter(options.sentence_splitter, options.source_language or DEFAULT_LANGUAGE)


def _settings(translate: "TranslationPipeline", options: TranslateArguments) -> dict[str, Any]:
    """Return the keyword arguments of calls: what they return besides text, and the seed that they share."""
    from vanilla_transformer.decoding.engine.engine import Engine
    from vanilla_transformer.decoding.engine.requests import share_seed

    model = translate.model
    is_scored = Engine.supports(model)  # a converted model, or one of another architecture, gives texts only
    if options.n_best is not None and not is_scored:
        rule = "`n_best` needs a model of this package that PyTorch decodes, since it lists scores"
        raise UserError(f"{rule}, got {type(model).__name__}. Give --num_return_sequences instead.")
    has_heads, is_calibrated = (bool(getattr(model.config, name, None)) for name in ("alignment_heads", "confidence"))
    as_objects = options.as_json and is_scored
    if options.as_json and not (is_scored or options.quiet):
        logger.warning("%s has no scores, tokens or warnings, so the objects have texts only.", type(model).__name__)
    settings = {
        "num_return_sequences": options.n_best,
        "seed": share_seed(translate.default_options).get("seed"),
        "return_scores": as_objects or options.n_best is not None,
        "return_tokens": as_objects,
        "return_alignments": options.alignments or (as_objects and has_heads),
        "return_confidence": as_objects and is_calibrated,
        "return_warnings": as_objects,
    }
    return {name: value for name, value in settings.items() if value}


def _source(sentences: Sequence[str], options: TranslateArguments, text: str | None = None) -> Source:
    """Return the lines to translate.

    Args:
        text: Standard input, if it has been read.
    """
    if sentences:
        return given_source(sentences, options.batch_size)
    if options.input is not None:
        return file_source(options.input, options.batch_size)
    if text is not None:
        lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n") if text else []
        return given_source([line.removesuffix("\r") for line in lines], options.batch_size)
    return stdin_source(options.batch_size)


def _write_shards(options: TranslateArguments, total: int | None, work: Callable) -> None:
    """Write the translations of a file, of which finished parts are kept."""
    from vanilla_transformer.data.readers import stream_lines
    from vanilla_transformer.decoding.corpus_shards import write_shards
    from vanilla_transformer.utils.file_utils import hash_file

    assert options.input is not None and options.output is not None and total is not None
    origin = {"input": hash_file(Path(options.input)), **translation_origin(options)}
    lines, size = stream_lines(options.input, may_be_blank=True), shard_lines(options.batch_size)
    write_shards(Path(options.output), lines, total, origin, size, options.resume, work)


def _open_work(options: TranslateArguments, total: int | None) -> Callable[["Shard"], list[str]]:
    """Load the model in a worker of a cluster, and return the function that translates a shard."""
    resources = ExitStack()
    translator = LineTranslator(resources.enter_context(open_model(options)), options, total)
    translator.resources = resources  # which would be closed
    return translator.answer


class LineTranslator:
    """
    Translate lines as flags say, into the text to write for each one.

    Args:
        total: The number of all lines, if it is known.
    """

    resources: ExitStack

    def __init__(self, translate: Any, options: TranslateArguments, total: int | None):
        self.pipeline, self.options, self.total = translate, options, total
        self.settings, self.prefixes = _settings(translate, options), _read_prefixes(options, total)
        # Whether somebody reads the translations in a terminal; `--json` has the warnings in its objects.
        shows_warnings = sys.stdout.isatty() and not (options.quiet or options.as_json or options.output)
        self.warned: dict[int, list[str]] | None = {} if shows_warnings else None

    def answer(self, shard: "Shard", **settings: Any) -> list[str]:
        """Return the text to write for each line of a shard."""
        if self.prefixes is not None:
            settings["target_prefix"] = self.prefixes[shard.start : shard.start + len(shard.lines)]
        return answer_lines(self.pipeline, shard.lines, self.options, {**self.settings, **settings}, self.warned)

    def work(self, shards: Iterable["Shard"], done: int = 0) -> Iterator[tuple["Shard", list[str]]]:
        """Yield each shard with its texts, and show how many of all lines are done.

        Args:
            done: The number of lines that are in no shard.
        """
        from vanilla_transformer.decoding.corpus_shards import progress_bar

        with progress_bar(self.total, done, hidden=self.options.quiet) as bar:
            for shard in shards:
                progress = BlockProgress(bar, len(shard.lines))
                texts = self.answer(shard, progress=progress)
                bar.clear()  # from the terminal to which the text may go
                yield shard, texts
                progress.finish()

    def texts(self, blocks: Iterable[list[str]]) -> Iterator[str]:
        """Yield the text to write for each block of lines, and print the warnings about it."""
        from vanilla_transformer.decoding.corpus_shards import number_shards

        for shard, texts in self.work(number_shards(blocks)):
            yield "".join(f"{text}\n" for text in texts)
            self._print_warnings(shard.start, is_alone=self.total == 1)

    def converse(self) -> None:
        """Translate the lines that are typed in a terminal, one by one."""
        from vanilla_transformer.decoding.corpus_shards import Shard
        from vanilla_transformer.decoding.engine.engine import Engine

        shows_scores = (self.options.num_return_sequences or 1) > 1 and Engine.supports(self.pipeline.model)
        settings = {"return_scores": True} if shows_scores else {}
        prompted = sys.stdout.isatty() and not self.options.quiet
        if prompted:
            print("Type a sentence and press Enter. Ctrl-D ends.", file=sys.stderr)
        for number, line in enumerate(typed_lines("> " if prompted else "")):
            print(*self.answer(Shard(number, number, [line]), **settings), flush=True)
            self._print_warnings(0, is_alone=True)

    def _print_warnings(self, start: int, is_alone: bool) -> None:
        """Print the warnings about some lines, of which the first has the index `start`, and forget them."""
        from vanilla_transformer.text.translation_warnings import WARNINGS

        for index, names in (self.warned or {}).items():
            place = "" if is_alone else f"line {start + index + 1}: "
            reasons = "; ".join(f"{WARNINGS[name]} ({name})" for name in names)
            print(f"warning: {place}{reasons}.", file=sys.stderr, flush=True)
        if self.warned is not None:
            self.warned.clear()


def _read_prefixes(options: TranslateArguments, total: int | None) -> list[str] | None:
    """Return the prefix of each sentence, or None if there is no file of them."""
    if options.target_prefixes is None:
        return None
    from vanilla_transformer.data.readers import read_lines

    lines = read_lines(options.target_prefixes)
    if total is not None and len(lines) != total:
        found = f"{len(lines)} in {options.target_prefixes}"
        raise UserError(f"There must be a target prefix for each of {total} sentences, got {found}.")
    return lines


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
    from vanilla_transformer.decoding.engine.precision import check_precision
    from vanilla_transformer.evaluation.compile_model import compile_model

    check_precision(options.precision)
    compile_model(options.model, options.precision, workers, options.num_beams, report=partial(print, flush=True))
