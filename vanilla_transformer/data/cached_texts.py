"""Cleaned training text on disk, cached by content."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm

from vanilla_transformer.files.hashes import cached_work, hash_json

from .cleaning import CleaningReport, clean_text, find_broken, find_language_mistakes, pairs_of
from .cleaning_rules import SAMPLED_PAIRS, CleaningRules, PairRules
from .readers import (
    ROWS_PER_BATCH,
    CorpusSpec,
    OpenCorpus,
    SentencePair,
    content_key,
    open_corpus,
    read_rows,
)
from .tokenized_corpus import open_arrow_files

_FORMAT = 3  # of the cached text; another number invalidates all older entries
SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string()), ("corpus", pa.int32())])
_REPORT_FILE = "report.json"


@dataclass(frozen=True)
class CachedTexts:
    """
    Cleaned training text, memory-mapped.

    Attributes:
        dataset (`datasets.Dataset`): Columns `source`, `target` and `corpus` (its number in the
            mix).
        key (`str`): A hash of the content.
    """

    dataset: datasets.Dataset
    report: CleaningReport
    key: str

    def pairs(self) -> Iterator[tuple[int, SentencePair]]:
        """Yield the number of the corpus of each pair, and the pair."""
        for table in self.dataset.with_format("arrow").iter(ROWS_PER_BATCH):
            corpora = table["corpus"].to_pylist()
            sources = table["source"].to_pylist()
            targets = table["target"].to_pylist()
            yield from zip(corpora, map(SentencePair, sources, targets), strict=True)


def load_cached_texts(
    specs: Sequence[CorpusSpec], rules: Sequence[CleaningRules], cache_dir: Path
) -> CachedTexts:
    """Return the text of all corpora, cleaned by the rules of each; clean it only if the cache does
    not hold it.
    """
    with ExitStack() as stack:
        corpora = [stack.enter_context(open_corpus(spec)) for spec in specs]
        contents = [content_key(corpus, cache_dir) for corpus in corpora]
        rules_on_text = [corpus_rules.on_text for corpus_rules in rules]
        write = partial(_write_texts, corpora=corpora, rules=rules)
        content = (_FORMAT, contents, rules_on_text)
        return cache_texts(cache_dir, content, write)


def cache_texts(
    cache_dir: Path, content: Sequence[Any], write: Callable[[Path], None]
) -> CachedTexts:
    """Load the text and its report that `write` makes of a content; write them only if the cache
    does not hold them.
    """
    folder = cached_work(cache_dir, "texts", content, write)
    return CachedTexts(open_arrow_files(folder), read_report(folder), hash_json(*content))


def write_texts(
    folder: Path, texts: datasets.Dataset, kept: np.ndarray, report: CleaningReport
) -> None:
    """Write the rows of texts where `kept` is True, and their report, for [`cache_texts`]."""
    with pa.ipc.new_stream(str(folder / "texts.arrow"), SCHEMA) as file:
        first = 0
        for table in texts.with_format("arrow").iter(ROWS_PER_BATCH):
            mask = pa.array(kept[first : first + len(table)])
            file.write_table(table.filter(mask).cast(SCHEMA))
            first += len(table)
    write_report(folder, report)


def write_report(folder: Path, report: CleaningReport) -> None:
    """Write a report beside its text, for [`read_report`]."""
    text = json.dumps(report.to_dict())
    (folder / _REPORT_FILE).write_text(text, encoding="utf-8")


def read_report(folder: Path) -> CleaningReport:
    """Read the report beside a text."""
    text = (folder / _REPORT_FILE).read_text(encoding="utf-8")
    return CleaningReport.from_dict(json.loads(text))


def write_pairs(
    file: pa.ipc.RecordBatchStreamWriter, pairs: Iterator[SentencePair], corpus: int
) -> None:
    """Write pairs of a corpus, with one batch of text in memory at a time."""
    while batch := list(islice(pairs, ROWS_PER_BATCH)):
        sources, targets = zip(*batch, strict=True)
        numbers = np.full(len(batch), corpus, dtype=np.int32)
        columns = [*map(pa.array, (sources, targets, numbers))]
        file.write_batch(pa.record_batch(columns, schema=SCHEMA))


def _write_texts(
    folder: Path, corpora: Sequence[OpenCorpus], rules: Sequence[CleaningRules]
) -> None:
    """Read all corpora, with one batch of text in memory at a time, then apply the rules to the
    text on disk.
    """
    report, path = CleaningReport(), folder / "texts.arrow"
    with pa.ipc.new_stream(str(path), SCHEMA) as file:
        for number, (corpus, corpus_rules) in enumerate(zip(corpora, rules, strict=True)):
            title = f"Reading {corpus.spec.name}"
            rows = tqdm(read_rows(corpus), title, unit=" pairs", delay=1, disable=None)
            pairs = clean_text(corpus.spec, rows, corpus_rules, report)
            write_pairs(file, pairs, number)
    report.check_kept()
    texts = open_arrow_files(folder)
    specs = [corpus.spec for corpus in corpora]
    report.warn(find_language_mistakes(texts, specs))
    corpus_column = texts.data.column("corpus").to_numpy()
    pair_rules = list[PairRules]()
    for number, (corpus, corpus_rules) in enumerate(zip(corpora, rules, strict=True)):
        rows_of_corpus = np.flatnonzero(corpus_column == number)
        sample = pairs_of(texts, rows_of_corpus[:SAMPLED_PAIRS])
        pair_rules.append(PairRules.for_corpus(corpus.spec, corpus_rules, sample))
    broken = find_broken(texts, pair_rules, report)
    report.check_kept()
    if broken.any():
        path = path.replace(folder / "all_rows")
        write_texts(folder, texts, ~broken, report)
        path.unlink()
    else:
        write_report(folder, report)
