"""Show the captions of a WebVTT file, or lines that a recorder writes, as they are translated live.

    python examples/live_captions.py --model models/en-de --captions talk.vtt
    recorder | python examples/live_captions.py --model models/en-de

The words of a cue arrive one by one, as from speech recognition. Each output is what would be shown
at that moment: the end of an unfinished sentence, which the next words often change, is left out.
With `--pace 1` the words come at the speed of the file.
"""

import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformers import HfArgumentParser

from vanilla_transformer.decoding.live_translation import LiveTranslation
from vanilla_transformer.decoding.loading import load_pipeline

_TIMES = re.compile(r"(?:(\d+):)?(\d\d):(\d\d\.\d+) +--> +(?:(\d+):)?(\d\d):(\d\d\.\d+)")
_TAG = re.compile(r"<[^<>]*>")


@dataclass
class Arguments:
    """The model and the captions."""

    model: str = field(metadata={"help": "Folder or Hub name of the model."})
    captions: Path | None = field(
        default=None,
        metadata={"help": "WebVTT file; by default the lines of standard input."},
    )
    hide: int = field(
        default=3, metadata={"help": "Last tokens of an unfinished sentence that are not shown."}
    )
    pace: float = field(
        default=0.0, metadata={"help": "Speed at which words come; 0 is as fast as possible."}
    )


def read_words(text: str) -> Iterator[tuple[float, str]]:
    """Yield the words of a WebVTT text and the seconds at which they are heard."""
    for cue in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n")):
        times = _TIMES.search(cue)
        if times is None:  # the header, a note or a style
            continue
        start, end = (
            3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)
            for hours, minutes, seconds in (times.groups()[:3], times.groups()[3:])
        )
        words = _TAG.sub("", cue[times.end() :].partition("\n")[2]).split()
        for number, word in enumerate(words):
            yield start + number * (end - start) / len(words), word


def main(arguments: Sequence[str] | None = None) -> None:
    """Translate captions while they are spoken."""
    (options,) = HfArgumentParser(Arguments).parse_args_into_dataclasses(arguments)
    live = LiveTranslation(load_pipeline(options.model), hide=options.hide)
    words: Iterator[tuple[float, str]]
    if options.captions is None:
        words = ((0.0, word) for line in sys.stdin for word in line.split())
    else:
        words = read_words(options.captions.read_text(encoding="utf-8"))
    began, heard, shown = time.monotonic(), "", ""
    for seconds, word in words:
        if options.pace:
            time.sleep(max(0.0, began + seconds / options.pace - time.monotonic()))
        heard = f"{heard} {word}".strip()
        update = live.update(heard)
        if update.text[: update.stable] != shown:
            shown = update.text[: update.stable]
            print(shown, flush=True)
    print(live.finish().text)


if __name__ == "__main__":
    main()
