"""Translate sentences given as arguments, the lines of standard input, or a document."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import tee
from typing import Any

from .arguments import PRECISION_HELP, WORKERS_HELP, parse, parse_workers


@dataclass
class TranslateArguments:
    """Flags of `translate`. By default the checkpoint's generation config decides, which is the paper's decoding."""

    num_beams: int | None = field(default=None, metadata={"help": "Beam size; 1 is greedy search."})
    num_return_sequences: int | None = field(
        default=None, metadata={"help": "Number of translations to print per sentence, best first."}
    )
    max_new_tokens: int | None = field(
        default=None, metadata={"help": "Maximum number of tokens per translation; by default source length + 50."}
    )
    batch_size: int = field(default=32, metadata={"help": "Sentences per batch."})
    precision: str | None = field(default=None, metadata={"help": PRECISION_HELP})
    workers: str = field(default="1", metadata={"help": WORKERS_HELP})
    format: str = field(
        default="text",
        metadata={"help": "text (a sentence a line), html, xml, markdown, srt or xliff, whose markup is kept."},
    )
    input: str | None = field(default=None, metadata={"help": "File to translate; by default standard input."})
    output: str | None = field(default=None, metadata={"help": "File to write; by default standard output."})
    sentence_splitter: str = field(
        default="abbreviations",
        metadata={
            "help": "How documents are split: abbreviations (by sentencex), simple (after each period), or your own "
            "function, such as my_module:split."
        },
    )
    source_language: str = field(
        default="en", metadata={"help": "ISO 639-1 code of a document's language, for its abbreviations."}
    )
    json: bool = field(
        default=False,
        metadata={
            "help": "Print a JSON object per sentence, with scores, the log-probability of each token and, if the "
            "model's configuration has `alignment_heads`, an alignment."
        },
    )
    alignments: bool = field(
        default=False,
        metadata={"help": "Print ` ||| ` and the pairs of aligned words, such as 0-0 1-2, after each translation."},
    )


_OF_DOCUMENTS = ("format", "input", "output", "sentence_splitter", "source_language")


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TranslateArguments, arguments, "translate MODEL ['A sentence.' ...] [--flags] [< FILE]")
    if not words:
        raise ValueError("Name the folder (or Hub name) of a model first.")
    model, *sentences = words
    if sentences and (options.input or options.format != "text"):
        raise ValueError(
            "Give sentences or a file to translate, got both; `--format` is for files and standard input."
        )
    if options.format != "text":
        _translate_document(model, options)
        return
    lines = sentences or _read_lines(options.input)
    generate_kwargs = {name: value for name, value in vars(options).items() if value is not None}
    for name in _OF_DOCUMENTS:
        generate_kwargs.pop(name, None)
    precision, workers = generate_kwargs.pop("precision", None), parse_workers(generate_kwargs.pop("workers"))
    for name in ("json", "alignments"):
        generate_kwargs.pop(name)
    from vanilla_transformer.inference.engine_workers import open_pipeline

    sources, texts = tee(lines)
    with open_pipeline(model, workers, precision, options.num_beams) as translate:
        if options.json:
            has_heads = bool(getattr(translate.model.config, "alignment_heads", None))
            generate_kwargs |= {"return_scores": True, "return_tokens": True, "return_alignments": has_heads}
        if options.alignments:
            generate_kwargs["return_alignments"] = True
        answers = translate(sentences or texts, **generate_kwargs)
        answers = (answer if isinstance(answer, list) else [answer] for answer in answers)
        pairs = zip(sources, answers, strict=True)
        _write_lines((line for pair in pairs for line in _lines(*pair, options)), options.output)


def _read_lines(path: str | None) -> Iterable[str]:
    if path is None:
        return (line.rstrip("\n") for line in sys.stdin)
    from vanilla_transformer.documents import read_document

    return read_document(path).removesuffix("\n").split("\n")


def _write_lines(lines: Iterable[str], path: str | None) -> None:
    if path is None:
        for line in lines:
            print(line, flush=True)
    else:
        from vanilla_transformer.file_utils import write_text_atomically

        write_text_atomically(path, (f"{line}\n" for line in lines))


def _translate_document(model: str, options: TranslateArguments) -> None:
    """Translate a document and write it."""
    if options.json or options.alignments or (options.num_return_sequences or 1) > 1:
        raise ValueError(
            f"With `--format {options.format}` there is one translation, without `--json` or `--alignments`."
        )
    from vanilla_transformer.documents import BlockTranslator, parse_document, read_document, translate_by
    from vanilla_transformer.documents.protection import find_masks
    from vanilla_transformer.documents.sentence_splitter import find_splitter

    splitter = find_splitter(options.sentence_splitter, options.source_language)
    document = parse_document(read_document(options.input), options.format)
    workers = parse_workers(options.workers)
    from vanilla_transformer.file_utils import write_text_atomically
    from vanilla_transformer.inference.engine_workers import open_pipeline

    generate_kwargs = {name: getattr(options, name) for name in ("num_beams", "max_new_tokens", "batch_size")}
    generate_kwargs = {name: value for name, value in generate_kwargs.items() if value is not None}
    with open_pipeline(model, workers, options.precision, options.num_beams) as pipeline:
        translate, masks = translate_by(pipeline, **generate_kwargs), find_masks(pipeline.tokenizer)
        translated = document.render(BlockTranslator(translate, splitter, masks)(document.blocks))
    if options.output is None:
        sys.stdout.write(translated)
    else:
        write_text_atomically(options.output, translated)


def _lines(source: str, answers: Sequence[dict[str, Any]], options: TranslateArguments) -> Iterator[str]:
    from vanilla_transformer.inference.alignments import moses_pairs
    from vanilla_transformer.inference.translations import rename_text

    if options.json:
        translations = [rename_text(answer) for answer in answers]
        yield json.dumps({"source": source, "translations": translations}, ensure_ascii=False)
    else:
        for answer in answers:
            text = answer["translation_text"]
            yield f"{text} ||| {moses_pairs(source, text, answer['alignment'])}" if options.alignments else text
