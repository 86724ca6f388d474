"""Download a public parallel corpus into `data/`, where the recipes look for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .arguments import parse


@dataclass
class DownloadArguments:
    """Flags of `download-data`."""

    output_dir: str | None = field(default=None, metadata={"help": "Folder for the files; by default data/CORPUS."})
    base_url: str | None = field(
        default=None, metadata={"help": "Mirror that serves the same .gz files; by default the original source."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        DownloadArguments,
        arguments,
        "download-data CORPUS [--flags]",
        {"CORPUS": "Name of a corpus; a wrong one lists all names."},
    )
    from vanilla_transformer.data.download import CORPORA, download_corpus

    if len(words) != 1:
        raise ValueError(f"Name one corpus of {', '.join(CORPORA)}, got {len(words)} names.")
    (name,) = words
    folder = download_corpus(name, Path(options.output_dir or Path("data") / name), options.base_url)
    print(f"{name} is in {folder}. License: {CORPORA[name].license}.")
