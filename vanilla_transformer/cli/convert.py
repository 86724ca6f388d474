"""Convert models from and to the formats of other toolkits."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from vanilla_transformer.conversion import READERS, WRITERS, Converter

from .arguments import parse

_USAGE = "convert SOURCE OUTPUT --source_format FORMAT, or convert FOLDER OUTPUT --target_format FORMAT"
_SENTENCES = 200


@dataclass
class ConvertArguments:
    """Which way, and what both sides are compared on."""

    source_format: str | None = field(
        default=None, metadata={"help": f"SOURCE is of this format, OUTPUT will be of ours: {', '.join(READERS)}."}
    )
    target_format: str | None = field(
        default=None, metadata={"help": f"FOLDER is of our format, OUTPUT will be of this: {', '.join(WRITERS)}."}
    )
    sentences: str | None = field(
        default=None,
        metadata={"help": "Text to compare on, one sentence a line; by default 200 sentences of the embedded corpus."},
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ConvertArguments, arguments, _USAGE)
    if len(words) != 2:
        raise ValueError(f"Name what is to be converted and where to, before the flags; got {len(words)} names.")
    convert = _converter(options)
    comparison = convert(words[0], words[1], _sentences(options.sentences))
    print(f"{words[1]}: {comparison or 'not compared, since nothing here runs the original'}")


def _sentences(path: str | None) -> list[str]:
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.embedded_corpus import generate_pairs

    if path is not None:
        return read_lines(path)
    return [pair.source for pair in generate_pairs("test", _SENTENCES, seed=0)]


def _converter(options: ConvertArguments) -> Converter:
    asked = [
        (flag, name, known)
        for flag, name, known in (
            ("source_format", options.source_format, READERS),
            ("target_format", options.target_format, WRITERS),
        )
        if name is not None
    ]
    if len(asked) != 1:
        raise ValueError(f"Give either --source_format or --target_format, got {len(asked)} of them.")
    ((flag, name, known),) = asked
    if name not in known:
        raise ValueError(f"`{flag}` must be one of {', '.join(known)}, got {name!r}.")
    return known[name]
