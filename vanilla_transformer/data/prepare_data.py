"""From what a recipe says about the corpora to what the training loop reads; all that took time is cached."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.tokenization_vanilla_transformer import encode_sentences

from .arguments import DataArguments, corpus_specs
from .bpe_dropout import BpeDropoutCorpus
from .cache import cached, digest, file_digests
from .cleaning import (
    CleaningReport,
    CleaningRules,
    Overlap,
    OverlapCounter,
    clean_text,
    find_duplicates,
    nothing_left,
    pair_digest,
)
from .corpus import Corpus, TokenizedCorpus, drop_by_length, find_held_out
from .readers import (
    CorpusSpec,
    SentencePair,
    check_files,
    compression,
    load_split,
    load_splits,
    read_pairs,
    read_text_files,
)
from .streaming import StreamedCorpus, StreamedTexts
from .tokenized_corpus import Encode, EncodedPairs, cached_encoding, open_arrow_files, tokenizer_key

_FORMAT = 1  # of the cached text; another number makes all old entries unknown
_SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string()), ("corpus", pa.int32())])
_ROWS_AT_ONCE = 10_000
_REPORT_FILE = "report.json"


class CachedTexts(NamedTuple):
    """Cleaned text, memory-mapped, with the report of it and what stands for its content."""

    dataset: datasets.Dataset
    report: CleaningReport
    key: str


def open_corpus(data: DataArguments, tokenizer: PreTrainedTokenizerBase, seed: int) -> Corpus:
    """
    The training pairs of a recipe, with BPE-dropout where it asks for that.

    Raises:
        OSError, ValueError: as `prepare_corpus`; or BPE-dropout is asked for, and the tokenizer is of another kind.
    """
    corpus = prepare_corpus(data, tokenizer, seed)
    if not data.bpe_dropout:
        return corpus
    return BpeDropoutCorpus(corpus, tokenizer, data.bpe_dropout, seed, data.max_tokens)


def prepare_corpus(
    data: DataArguments,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
    encode: Encode | None = None,
) -> Corpus:
    """
    The training pairs of a recipe: read, cleaned, encoded, and cached by content, so that a second call begins at
    once. Streams are neither cached nor written anywhere.

    Args:
        seed (`int`): Of the draw of pairs where a weight is no whole number.
        cache_dir (`str`): In place of the recipe's `cache_dir`.
        num_proc (`int`): Processes that tokenise. By default all cores, where there is work for them.
        encode: In place of `encode_sentences` with `tokenizer`, which stands for its result in the cache all the same.

    Raises:
        OSError: a file or dataset is missing or cannot be read.
        ValueError: a corpus is not what it must be (with its file and line), or cleaning leaves nothing.
    """
    specs, rules = corpus_specs(data), CleaningRules.from_arguments(data)
    encode = encode or partial(encode_sentences, tokenizer)
    held_out = {"validation": read_validation_pairs(data), "test": read_test_pairs(data)}
    held_out = {name: sentences for name, sentences in held_out.items() if sentences}
    if data.stream:
        return StreamedCorpus(StreamedTexts(specs, rules, data.stream_window), encode, held_out, num_proc)
    folder = cache_folder(data, cache_dir)
    texts = _cached_texts(specs, rules, folder)
    encoded = cached_encoding(texts.dataset, texts.key, encode, tokenizer_key(tokenizer), folder, num_proc)
    pairs = drop_by_length(EncodedPairs(encoded), texts.dataset, rules, texts.report)
    overlaps = {name: _cached_overlap(texts, sentences, folder) for name, sentences in held_out.items()}
    return TokenizedCorpus(texts.dataset, pairs, [spec.weight for spec in specs], seed, texts.report, overlaps)


def read_training_texts(data: DataArguments, cache_dir: Path) -> tuple[datasets.Dataset, str]:
    """
    The training text, cleaned as far as that needs no tokens, in columns `source` and `target`, and what stands for
    its content; of a stream, the first window.

    Raises:
        OSError, ValueError: as `prepare_corpus`.
    """
    specs, rules = corpus_specs(data), CleaningRules.from_arguments(data)
    if data.stream:
        window = StreamedTexts(specs, rules, data.stream_window).read(0)
        return window, digest(window._fingerprint)  # that of what is held in memory stands for its content
    texts = _cached_texts(specs, rules, cache_dir)
    return texts.dataset, texts.key


def iterate_sentences(texts: datasets.Dataset) -> Iterator[str]:
    """Every sentence of both sides."""
    for table in texts.with_format("arrow").iter(_ROWS_AT_ONCE):
        yield from chain.from_iterable(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))


def read_validation_pairs(data: DataArguments) -> list[SentencePair]:
    """
    The validation pairs of a recipe: of its files, or of its dataset's split `validation`; otherwise none.

    Raises:
        OSError, ValueError: as `read_text_files`; or the dataset has no such split.
    """
    if data.validation_source and data.validation_target:
        return read_text_files(data.validation_source, data.validation_target)
    return [] if data.dataset is None else _read_split(data, "validation")


def read_test_pairs(data: DataArguments) -> list[SentencePair]:
    """
    The test pairs of a recipe: of its files, or of its dataset's split `test`, where there is one; otherwise none.

    Raises:
        OSError, ValueError: as `read_text_files`.
    """
    if data.test_source and data.test_target:
        return read_text_files(data.test_source, data.test_target)
    if data.dataset is None or "test" not in load_splits(data.dataset, data.stream):
        return []
    return _read_split(data, "test")


def _read_split(data: DataArguments, split: str) -> list[SentencePair]:
    spec = CorpusSpec(dataset=data.dataset, split=split, **data.languages)
    return [pair for pair in read_pairs(spec, streaming=data.stream) if all(pair)]


def cache_folder(data: DataArguments, cache_dir: str | Path | None = None) -> Path:
    """Where the recipe's cache lies, or `cache_dir` in its place."""
    return Path(cache_dir or data.cache_dir or Path(datasets.config.HF_DATASETS_CACHE) / "vanilla_transformer")


def _cached_texts(specs: list[CorpusSpec], rules: CleaningRules, cache_dir: Path) -> CachedTexts:
    """The cleaned text of all corpora, from the cache where it is there."""
    key = digest(_FORMAT, [_content(spec) for spec in specs], rules.of_text)
    folder = cached(cache_dir, f"texts-{key}", partial(_write_texts, specs=specs, rules=rules))
    report = CleaningReport.from_dict(json.loads((folder / _REPORT_FILE).read_text(encoding="utf-8")))
    return CachedTexts(open_arrow_files(folder), report, key)


def _content(spec: CorpusSpec) -> list[Any]:
    """What stands for a corpus: its content, and what decides how that is read. Neither names nor times of files."""
    languages = [spec.source_language, spec.target_language]
    if spec.dataset is None:
        check_files(spec)
        return [spec.format, *map(compression, spec.files), *languages, *file_digests(spec.files)]
    rows = load_split(spec)
    files = [file["filename"] for file in rows.cache_files]
    # A dataset small enough to be held in memory has no files, but a fingerprint.
    return ["dataset", *languages, *(file_digests(files) or [rows._fingerprint])]


def _write_texts(folder: Path, specs: list[CorpusSpec], rules: CleaningRules) -> None:
    """Reads and cleans all corpora, holding no more of their text in memory than one batch."""
    report, digests = CleaningReport(), bytearray()
    with pa.ipc.new_stream(str(folder / "texts.arrow"), _SCHEMA) as file:
        for number, spec in enumerate(specs):
            numbered = tqdm(enumerate(read_pairs(spec), start=1), f"Reading {spec.name}", unit=" pairs", delay=1)
            for batch in _batches(clean_text(spec, numbered, rules, report)):
                if rules.drop_duplicates:
                    digests += b"".join(map(pair_digest, batch))
                sources, targets = zip(*batch, strict=True)
                corpora = pa.array(np.full(len(batch), number, dtype=np.int32))
                file.write_batch(pa.record_batch([pa.array(sources), pa.array(targets), corpora], schema=_SCHEMA))
    if not report.kept:
        raise nothing_left(report)
    if rules.drop_duplicates:
        _drop_duplicates(folder / "texts.arrow", find_duplicates(digests), report)
    (folder / _REPORT_FILE).write_text(json.dumps(report.to_dict()), encoding="utf-8")


def _batches(pairs: Iterable[SentencePair]) -> Iterator[list[SentencePair]]:
    pairs = iter(pairs)
    while batch := list(islice(pairs, _ROWS_AT_ONCE)):
        yield batch


def _drop_duplicates(path: Path, duplicates: np.ndarray, report: CleaningReport) -> None:
    """Writes the file anew, without the rows where `duplicates` is True."""
    if not duplicates.any():
        return
    all_rows = path.replace(path.with_suffix(".all"))
    first = 0
    with (
        pa.memory_map(str(all_rows)) as source,
        pa.ipc.open_stream(source) as batches,
        pa.ipc.new_stream(str(path), _SCHEMA) as file,
    ):
        for batch in batches:
            mask = duplicates[first : first + batch.num_rows]
            first += batch.num_rows
            file.write_batch(batch.filter(pa.array(~mask)))
            dropped = batch.filter(pa.array(mask))
            examples = map(SentencePair, dropped["source"].to_pylist(), dropped["target"].to_pylist())
            report.add("duplicates", list(examples))
    all_rows.unlink()


def _cached_overlap(texts: CachedTexts, held_out: list[SentencePair], cache_dir: Path) -> Overlap:
    """How much of the held-out text is in the training text, from the cache where it is there."""

    def write(folder: Path) -> None:
        counter = OverlapCounter(held_out)
        counter.add(find_held_out(texts.dataset, counter))
        (folder / _REPORT_FILE).write_text(json.dumps(asdict(counter.overlap())), encoding="utf-8")

    folder = cached(cache_dir, f"overlap-{digest(_FORMAT, texts.key, held_out)}", write)
    return Overlap(**json.loads((folder / _REPORT_FILE).read_text(encoding="utf-8")))
