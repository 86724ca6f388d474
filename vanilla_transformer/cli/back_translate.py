"""Translate text of the target language back, to train on the pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .arguments import MODEL, parse, require_one_model
from .model_arguments import ModelArguments, model_names, open_model
from .output import quiet
from .request_arguments import SearchArguments, request_settings

# The flags that `--help` shows.
_MAIN = [
    "input",
    "output",
    "tag",
    "keep_warnings",
    "resume",
    "batch_size",
    "num_beams",
    "do_sample",
    "seed",
    "device",
    "precision",
]


@dataclass
class _TextArguments:
    """Flags of the text, and of the pairs."""

    input: str = field(metadata={"help": "Text of the target language, one sentence per line."})
    output: str = field(
        metadata={"help": "Write pairs to this .tsv or .jsonl file, a corpus for `corpora:`, once it is complete."}
    )
    tag: str | None = field(
        default=None,
        metadata={"help": "Word before each source, such as <BT>, by which a model tells them from real ones."},
    )
    keep_warnings: bool = field(
        default=False,
        metadata={"help": "Keep translations with a warning: copy, repetition, numbers, script or length."},
    )
    resume: bool = field(default=False, metadata={"help": "Continue an interrupted run."})
    batch_size: int = field(default=32, metadata={"help": "Sentences per batch."})
    quiet: bool = field(default=False, metadata={"help": "Show no progress bar or warning."})


@dataclass
class BackTranslateArguments(SearchArguments, ModelArguments, _TextArguments):
    """Flags of `back-translate`."""


def main(arguments: Sequence[str]) -> None:
    usage = "back-translate MODEL --input FILE --output FILE.tsv [--flags]"
    words, options = parse(BackTranslateArguments, arguments, usage, MODEL, _MAIN)
    model = require_one_model(words)
    if options.batch_size < 1:
        raise ValueError(f"`batch_size` must be 1 or more, got {options.batch_size}.")
    search = request_settings(options)
    if options.quiet:
        quiet()
    from vanilla_transformer.decoding.pretrained import hash_model
    from vanilla_transformer.distillation.back_translation import back_translate, check_output

    text, output = Path(options.input), Path(options.output)
    check_output(output, text, options.tag)
    if options.do_sample or (options.mbr is not None and options.num_beams is None):
        search.setdefault("seed", 0)  # by which a run that continues draws the same samples
    with open_model(model, options, options.num_beams) as translate:
        hashes = [*map(hash_model, model_names(model, options)), options.precision, options.dtype, options.backend]
        kept, resume, size = options.keep_warnings, options.resume, options.batch_size
        found = back_translate(translate, text, output, hashes, options.tag, kept, resume, size, **search)
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in found.dropped.items()) or "none"
    print(f"{found.pairs:,} pairs of {found.lines:,} lines are in {output}. Dropped: {dropped}.")
