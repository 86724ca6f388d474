"""Translate sentences, files, documents or piped lines; compile the steps of a model."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.resources import DOCUMENT_ENDINGS, OTHER_ENDINGS

from .flags import (
    DEFAULT_LANGUAGE,
    MODEL,
    PRECISION_HELP,
    RayArguments,
    SentenceArguments,
    ThreadArguments,
    TranslationArguments,
    check_engine,
    check_sentences,
    check_workers,
    given_flags,
    open_model,
    parse,
    read_prefixes,
    refuse_file_names,
    require_one_model,
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
    from vanilla_transformer.text.languages import Direction

logger = logging.getLogger(__name__)


@dataclass
class DocumentArguments:
    """Flags of documents."""

    format: str = field(
        default="",
        metadata={
            "help": "text (a sentence a line), html, xml, markdown, srt or xliff, whose markup is kept. By default "
            "the ending of --input decides."
        },
    )
    join_lines: str = field(
        default="no",
        metadata={
            "help": "Translate text that was wrapped at a width by its paragraphs, and wrap it again: yes, no, or "
            "auto, which finds such text.",
            "choices": ["yes", "no", "auto"],
        },
    )


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
    from vanilla_transformer.utils.file_utils import write_text_atomically

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
    if options.output is None:
        print_texts([translated])
    else:
        write_text_atomically(options.output, translated)
    if options.format == "xliff" and not options.quiet:
        _report(document, direction)


def _report(document: Any, direction: "Direction") -> None:
    """Print the summary of a document, and a warning if the language of its translation is unknown."""
    targets = sorted({named.target for named in document.directions if named.target})
    if targets and direction.target is None:
        rule = "and the model does not say what it writes. Name its language by --target_language"
        print(f"warning: The file asks for {', '.join(targets)}, {rule}.", file=sys.stderr)
    print(document.summary, file=sys.stderr)


_SENTENCES = {"SENTENCE": "Sentences to translate; without any, an `--input` or standard input is translated."}
# The flags that `--help` shows.
_MAIN = [
    "input",
    "output",
    "json",
    "format",
    "batch_size",
    "num_beams",
    "target_language",
    "glossary",
    "device",
    "precision",
]


@dataclass
class TextArguments:
    """Flags of the text and its translations."""

    input: str | None = field(
        default=None, metadata={"help": "File to translate, by default with one sentence per line; or standard input."}
    )
    output: str | None = field(
        default=None, metadata={"help": "Write to this file, once it is complete, instead of standard output."}
    )
    resume: bool = field(default=False, metadata={"help": "Continue an interrupted `--output`."})
    json: bool = field(
        default=False,
        metadata={
            "help": "Print a JSON object per sentence, with scores, warnings, the log-probability of each token, an "
            "alignment if the model's configuration has `alignment_heads`, and a confidence if it was calibrated."
        },
    )
    alignments: bool = field(
        default=False,
        metadata={"help": "Print ` ||| ` and the pairs of aligned words, such as 0-0 1-2, after each translation."},
    )
    n_best: int | None = field(
        default=None,
        metadata={"help": "Number of translations to print per sentence, best first, each after its score and a tab."},
    )
    batch_size: int = field(default=32, metadata={"help": "Sentences per batch."})
    quiet: bool = field(default=False, metadata={"help": "Show no prompt, progress bar or warning."})


@dataclass
class TranslateArguments(TranslationArguments, SentenceArguments, DocumentArguments, RayArguments, TextArguments):
    """Flags of `translate`."""


def translate_command(arguments: Sequence[str]) -> None:
    words, options = parse(
        TranslateArguments,
        arguments,
        "translate MODEL ['A sentence.' ...] [--flags] [< FILE]",
        MODEL | _SENTENCES,
        _MAIN,
    )
    if not words:
        raise UserError("Name the folder (or Hub name) of a model first.")
    model, *sentences = words
    is_silent = bool(options.format) or options.quiet
    options.format = options.format or _find_format(options.input or "")
    if options.join_lines != "no":
        if options.format != "text":
            raise UserError(f"--join_lines is for plain text, but `--format` is {options.format}. Leave one out.")
        options.format, is_silent = "wrapped", options.quiet or options.join_lines == "yes"
    _check_translate(options, sentences)
    if options.quiet:
        silence_libraries()
    text, note = (None, "") if options.format == "text" else _read_document(options)
    if options.format != "text":
        options.split_sentences = False  # a document is split by its translator
    opening = open_model(model, options)
    if text is not None and options.format != "text":
        _translate_document(opening, options, text, "" if is_silent else note)
        return
    is_typed = not sentences and options.input is None and options.output is None and is_interactive()
    source = None if is_typed and text is None else _source(sentences, options, text)
    if options.split_sentences:
        _check_splitter(options)
    if options.engine == "ray" and source is not None and options.output is not None:
        _write_by_ray(Path(options.output), model, source, options)
        return
    with opening as translate:
        settings = _settings(translate, options)
        if source is None:
            _converse(translate, options, settings)
        elif options.output is not None:
            _write_file(Path(options.output), translate, model, source, options, settings)
        else:
            print_texts(_texts(translate, source, options, settings))


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


def _check_translate(options: TranslateArguments, sentences: Sequence[str]) -> None:
    """Check the flags that no library call checks before work begins."""
    for name in ("batch_size", "n_best"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise UserError(f"`{name}` must be 1 or more, got {value}.")
    if options.n_best is not None and options.num_return_sequences is not None:
        raise UserError("Give --n_best (translations with scores) or --num_return_sequences (without), not both.")
    if sentences and (options.input is not None or options.format != "text"):
        hint = "`--input` and `--format` are for files and standard input."
        raise UserError(f"Give sentences or a file to translate, not both, got the sentence {sentences[0]!r}. {hint}")
    if "sentence_splitter" in given_flags(options) and options.format == "text" and not options.split_sentences:
        raise UserError("--sentence_splitter is for documents and --split_sentences, got neither. Leave it out.")
    refuse_file_names("Sentences", sentences, "Give it by --input {}, or a sentence by standard input.")
    refuse_file_names("--constraint", options.constraint or [], "Write the words themselves.")
    refuse_file_names("--target_prefix", [options.target_prefix], "Give it by --target_prefixes {}.")
    counts = {options.num_return_sequences, options.n_best} - {None, 1}
    several = counts or options.samples or options.seed is not None
    if options.alternatives is not None and options.n_best is not None:
        raise UserError("With --alternatives there is one search for each. Leave out the number of translations.")
    format = options.format if options.join_lines == "no" else f"{options.format} (by --join_lines)"
    if options.format != "text" and (options.json or options.alignments or options.resume or several):
        rule = "one translation, without `--json`, `--alignments`, `--resume`, `--do_sample`, `--seed` or `--mbr`"
        raise UserError(f"With `--format {format}` there is {rule}.")
    check_engine(options)
    if options.engine == "ray" and (options.input is None or options.samples or options.format != "text"):
        raise UserError("--engine ray is for searches of the lines of an --input, without samples and --format.")
    check_sentences(options, format)
    if options.resume and (options.input is None or options.output is None):
        raise UserError("--resume continues a file that an interrupted run began. Give its --input and --output.")
    if options.resume and options.samples:
        raise UserError("--resume continues searches, not samples. Leave out --resume, or --do_sample and --mbr.")
    output = Path(options.output or "")
    if options.resume and output.exists() and not output.is_file():
        raise UserError(f"--resume needs an ordinary file as --output, but {output} is a pipe or a device.")


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
    as_objects = options.json and is_scored
    if options.json and not (is_scored or options.quiet):
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


def _write_file(
    output: Path,
    translate: Any,
    model: str,
    source: Source,
    options: TranslateArguments,
    settings: Mapping[str, Any],
) -> None:
    from vanilla_transformer.utils.file_utils import write_text_atomically

    if options.input is None or (output.exists() and not output.is_file()):
        write_text_atomically(output, _texts(translate, source, options, settings))
        return
    assert source.total is not None  # which is known of files

    def work(shards: Iterable["Shard"], done: int) -> Iterator[tuple["Shard", list[str]]]:
        return _translate(translate, shards, source.total, options, settings, done)

    _write_shards(output, model, source.total, options, work)


def _write_by_ray(output: Path, model: str, source: Source, options: TranslateArguments) -> None:
    """Write the translations of a file by the workers of a cluster."""
    from vanilla_transformer.extensions.scale_out import work_by_ray

    assert source.total is not None  # which is known of files
    build = partial(ShardTranslator, model, options, source.total)
    cluster = partial(work_by_ray, workers=options.ray_workers, threads=options.ray_threads, hidden=options.quiet)
    work = partial(cluster, build=build, total=source.total)
    _write_shards(output, model, source.total, options, work)


def _write_shards(output: Path, model: str, total: int, options: TranslateArguments, work: Callable) -> None:
    from vanilla_transformer.data.readers import stream_lines
    from vanilla_transformer.decoding.corpus_shards import write_shards
    from vanilla_transformer.utils.file_utils import hash_file

    assert options.input is not None
    origin = {"input": hash_file(Path(options.input)), **translation_origin(model, options)}
    lines = stream_lines(options.input, may_be_blank=True)
    write_shards(output, lines, total, origin, shard_lines(options.batch_size), options.resume, work)


class ShardTranslator:
    """
    Translate shards of a file; for workers of a cluster, which load the model themselves.

    Args:
        total: The number of lines of the file.
    """

    def __init__(self, model: str, options: TranslateArguments, total: int):
        self._options, self._resources = options, ExitStack()
        self._translate = self._resources.enter_context(open_model(model, options))
        self._settings, self._prefixes = _settings(self._translate, options), read_prefixes(options, total)

    def __call__(self, shard: "Shard") -> list[str]:
        """Return the text to write for each line."""
        own = _own_prefixes(self._prefixes, shard)
        return answer_lines(self._translate, shard.lines, self._options, {**self._settings, **own})


def _texts(translate: Any, source: Source, options: TranslateArguments, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text to write for each block of lines."""
    from vanilla_transformer.decoding.corpus_shards import number_shards

    warned: dict[int, list[str]] | None = {} if _shows_warnings(options) else None
    shards = number_shards(source.blocks)
    for shard, texts in _translate(translate, shards, source.total, options, settings, warned=warned):
        yield "".join(f"{text}\n" for text in texts)
        _print_warnings(warned, shard.start, is_alone=source.total == 1)


def _translate(
    translate: Any,
    shards: Iterable["Shard"],
    total: int | None,
    options: TranslateArguments,
    settings: Mapping[str, Any],
    done: int = 0,
    warned: dict[int, list[str]] | None = None,
) -> Iterator[tuple["Shard", list[str]]]:
    """Yield each shard with the text to write for each of its lines.

    Args:
        total: The number of all lines, if it is known.
        done: The number of lines that are in no shard.
    """
    from vanilla_transformer.decoding.corpus_shards import progress_bar

    prefixes = read_prefixes(options, total)
    with progress_bar(total, done, hidden=options.quiet) as bar:
        for shard in shards:
            own = {"progress": (progress := BlockProgress(bar, len(shard.lines))), **_own_prefixes(prefixes, shard)}
            texts = answer_lines(translate, shard.lines, options, {**settings, **own}, warned)
            bar.clear()  # from the terminal to which the text may go
            yield shard, texts
            progress.finish()


def _own_prefixes(prefixes: Sequence[str] | None, shard: "Shard") -> dict[str, Any]:
    """Return the keyword argument of the pipeline for the target prefixes of a shard."""
    return {} if prefixes is None else {"target_prefix": prefixes[shard.start : shard.start + len(shard.lines)]}


def _converse(translate: Any, options: TranslateArguments, settings: dict[str, Any]) -> None:
    """Translate the lines that are typed in a terminal, one by one."""
    from vanilla_transformer.decoding.engine.engine import Engine

    shows_scores = (options.num_return_sequences or 1) > 1 and Engine.supports(translate.model)
    settings |= {"return_scores": True} if shows_scores else {}
    prefixes = read_prefixes(options, None)
    settings |= {} if prefixes is None else {"target_prefix": iter(prefixes)}
    warned: dict[int, list[str]] | None = {} if _shows_warnings(options) else None
    prompted = sys.stdout.isatty() and not options.quiet
    if prompted:
        print("Type a sentence and press Enter. Ctrl-D ends.", file=sys.stderr)
    for line in typed_lines("> " if prompted else ""):
        print(*answer_lines(translate, [line], options, settings, warned), flush=True)
        _print_warnings(warned, 0, is_alone=True)


def _shows_warnings(options: TranslateArguments) -> bool:
    """Return whether somebody reads the translations in a terminal; `--json` has the warnings in its objects."""
    return sys.stdout.isatty() and not (options.quiet or options.json or options.output)


def _print_warnings(warned: dict[int, list[str]] | None, start: int, is_alone: bool) -> None:
    """Print the warnings about some lines, of which the first has the index `start`, and forget them."""
    from vanilla_transformer.text.translation_warnings import WARNINGS

    for index, names in (warned or {}).items():
        place = "" if is_alone else f"line {start + index + 1}: "
        reasons = "; ".join(f"{WARNINGS[name]} ({name})" for name in names)
        print(f"warning: {place}{reasons}.", file=sys.stderr, flush=True)
    if warned is not None:
        warned.clear()


@dataclass
class CompileArguments(ThreadArguments):
    """Flags of `compile`."""

    precision: str = field(default="float32", metadata={"help": PRECISION_HELP})
    workers: int = field(default=1, metadata={"help": "Processes of `translate --workers` for which to compile."})
    num_beams: int | None = field(
        default=None, metadata={"help": "Beam size; by default 1, which is greedy search, and the checkpoint's."}
    )


def compile_command(arguments: Sequence[str]) -> None:
    words, options = parse(CompileArguments, arguments, "compile MODEL [--flags]", MODEL)
    name, workers = require_one_model(words), check_workers(options.workers)
    from vanilla_transformer.decoding.engine.precision import check_precision
    from vanilla_transformer.evaluation.compile_model import compile_model

    check_precision(options.precision)
    TranslationOptions(num_beams=options.num_beams)  # checks it
    compile_model(name, options.precision, workers, options.num_beams, report=partial(print, flush=True))
