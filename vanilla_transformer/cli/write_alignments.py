"""Align the words of a parallel text and write them in the format of Moses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.file_utils import write_text_atomically

from .arguments import MODEL, parse
from .output import print_until_reader_ends

if TYPE_CHECKING:
    from vanilla_transformer.data.readers import SentencePair
    from vanilla_transformer.data.word_alignments import WordPair


@dataclass
class WriteAlignmentsArguments:
    """
    Flags of `write-alignments`.

    Without a model, a lexical model is fitted to the text in both directions. With one, its `alignment_heads` align
    the words, and with a model of the reverse direction, the heads of both.
    """

    source: str = field(metadata={"help": "Source text, one sentence per line."})
    target: str = field(metadata={"help": "Its translations, one per line."})
    output: str | None = field(default=None, metadata={"help": "Write to this file instead of standard output."})


def main(arguments: Sequence[str]) -> None:
    usage = "write-alignments [MODEL [REVERSE_MODEL]] --source FILE --target FILE [--output FILE]"
    models, options = parse(
        WriteAlignmentsArguments, arguments, usage, MODEL | {"REVERSE_MODEL": "A model of the other direction."}
    )
    if len(models) > 2:
        raise ValueError(f"Name at most a model and one of the reverse direction, got {len(models)}.")
    if options.output is not None and Path(options.output).is_dir():
        raise ValueError(f"Alignments must go to a file, but {options.output} is a folder.")
    from vanilla_transformer.data.readers import stream_text_files

    lines = _lines(models, [*stream_text_files(options.source, options.target)])
    if options.output is None:
        print_until_reader_ends(lines)
    else:
        write_text_atomically(options.output, lines)


def _lines(models: Sequence[str], pairs: "Sequence[SentencePair]") -> Iterator[str]:
    from vanilla_transformer.decoding.alignments import format_pairs

    yield from (f"{format_pairs(links)}\n" for links in _align(models, pairs))


def _align(models: Sequence[str], pairs: "Sequence[SentencePair]") -> "list[set[WordPair]]":
    from vanilla_transformer.data.word_alignments import align_lexically

    if not models:
        return align_lexically(pairs)
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.evaluation.alignment_heads import align_by_heads

    model, *reverse = ((load_seq2seq(name, "aligns words"), load_tokenizer(name)) for name in models)
    return align_by_heads(*model, pairs, *reverse)
