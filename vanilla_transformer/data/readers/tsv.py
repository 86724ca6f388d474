"""Tab-separated pairs."""

from collections.abc import Iterator

from .corpus_spec import SentencePair
from .lines import read_file_lines
from .open_corpora import OpenCorpus


def parse_tsv(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Parse source TAB target. Quotation marks are part of the sentences."""
    for number, line in enumerate(read_file_lines(corpus.files[0]), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            location = f"Line {number} of {corpus.files[0].name}"
            raise ValueError(f"{location} must have two columns, source TAB target, it has {len(columns)}.")
        yield SentencePair(columns[0].strip(), columns[1].strip())
