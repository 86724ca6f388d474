"""The alignments of a training text between tokens, given or found in it, for guided alignment;
cached by content.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

import datasets
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.data_arguments import AGREEMENT
from vanilla_transformer.data.readers import (
    ROWS_PER_BATCH,
    SentencePair,
    WordPair,
    read_lines,
    stream_text_files,
)
from vanilla_transformer.data.texts import Texts
from vanilla_transformer.data.tokenized_corpus import (
    TokenColumn,
    TokenLinks,
    open_arrow_files,
)
from vanilla_transformer.decoding.unit_links import token_spans, words_of_tokens
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import cached_work, hash_file
from vanilla_transformer.text.units import Span

from .word_alignments import align_lexically, parse_alignment

logger = logging.getLogger(__name__)
_FORMAT = 2  # of the cached files; another number invalidates all older entries
_SCHEMA = pa.schema([("links", pa.list_(pa.int32())), ("words", pa.list_(pa.int32()))])


def load_alignments(
    texts: Texts, tokenizer: PreTrainedTokenizerBase, tokenizer_key: str
) -> TokenLinks:
    """Return the alignments of the training text of a recipe with `train_alignments`. They are
    cached by content.

    With `AGREEMENT`, [`align_lexically`] finds them.

    Args:
        tokenizer_key: The hash of the tokenizer.
    """
    path = texts.data.train_alignments
    assert path is not None
    words = AGREEMENT if path == AGREEMENT else hash_file(Path(path), texts.cache_dir)

    def write(folder: Path) -> None:
        if path == AGREEMENT:
            aligned = iter(_align(texts.training.dataset))
        else:
            aligned = _read(path, texts.specs[0].files)
        with pa.ipc.new_stream(str(folder / "links.arrow"), _SCHEMA) as file:
            for pairs in _batches(texts.training.dataset):
                words = [*islice(aligned, len(pairs))]
                links = _find_links(pairs, words, tokenizer)
                word_numbers = [[*chain.from_iterable(sorted(row))] for row in words]
                arrays = [
                    pa.array(links, _SCHEMA.field("links").type),
                    pa.array(word_numbers, _SCHEMA.field("words").type),
                ]
                file.write_batch(pa.record_batch(arrays, schema=_SCHEMA))

    content = (_FORMAT, texts.training.key, words, tokenizer_key)
    dataset = open_arrow_files(cached_work(texts.cache_dir, "alignments", content, write))
    words_of_rows = TokenColumn(dataset.data.column("words"))
    link_pairs = partial(_link_pairs, tokenizer=tokenizer)
    return TokenLinks(dataset.select_columns("links"), words_of_rows, link_pairs)


def _link_pairs(
    pairs: Sequence[SentencePair],
    words: Sequence[set[WordPair]],
    tokenizer: PreTrainedTokenizerBase,
) -> datasets.Dataset:
    """Return the links between the tokens of some pairs, in memory."""
    rows = pa.array(_find_links(pairs, words, tokenizer), _SCHEMA.field("links").type)
    return datasets.Dataset(pa.table({"links": rows}))


def _find_links(
    pairs: Sequence[SentencePair],
    words: Sequence[set[WordPair]],
    tokenizer: PreTrainedTokenizerBase,
) -> list[list[int]]:
    """Return the links of each pair, one after another, as [`TokenTable`] has them."""
    sources = token_spans(tokenizer, [pair.source for pair in pairs])
    targets = token_spans(tokenizer, [pair.target for pair in pairs])
    rows = []
    sentences = zip(pairs, sources, targets, words, strict=True)
    for pair, source, target, word_pairs in sentences:
        links = align_tokens(pair, source, target, word_pairs)
        rows.append(list(chain.from_iterable(links)))
    return rows


def _align(dataset: datasets.Dataset) -> Iterable[set[WordPair]]:
    logger.info("Aligning the words of %d training pairs", len(dataset))
    return align_lexically(list(chain.from_iterable(_batches(dataset))))


def _read(path: str, files: Sequence[Path]) -> Iterator[set[WordPair]]:
    """Yield the words of each line, except for lines of the text that are blank on both sides."""
    lines, count = read_lines(path), sum(1 for _ in stream_text_files(*files))
    if len(lines) != count:
        raise UserError(
            f"{path} must have a line for each of {count} lines of {files[0]}, got {len(lines)}."
        )
    rows = zip(lines, stream_text_files(*files), strict=True)
    for number, (line, pair) in enumerate(rows, start=1):
        if any(pair):
            yield parse_alignment(line, pair, f"line {number} of {path}")


def _batches(dataset: datasets.Dataset) -> Iterator[list[SentencePair]]:
    for table in dataset.with_format("arrow").iter(ROWS_PER_BATCH):
        sources, targets = table["source"].to_pylist(), table["target"].to_pylist()
        yield [*map(SentencePair, sources, targets)]


def align_tokens(
    pair: SentencePair,
    source_spans: Sequence[Span],
    target_spans: Sequence[Span],
    words: set[WordPair],
) -> Iterator[tuple[int, int, int]]:
    """Yield the links between the tokens of a pair: a target token, a source token, and the divisor
    of the weight.

    The weights of a target token add up to 1. A pair without aligned words has no links.
    """
    if not words:
        return
    sources = defaultdict[int, list[int]](list)
    tokens = defaultdict[int, list[int]](list)
    for source, target in sorted(words):
        sources[target].append(source)
    for token, token_words in enumerate(words_of_tokens(pair.source, source_spans)):
        for word in token_words:
            tokens[word].append(token)
    source_eos, target_eos = len(source_spans) - 1, len(target_spans) - 1
    for token, token_words in enumerate(words_of_tokens(pair.target, target_spans)):
        aligned = chain.from_iterable(sources[word] for word in token_words)
        linked = sorted({source for source in aligned if tokens[source]})
        for source in linked:
            divisor = len(linked) * len(tokens[source])
            for source_token in tokens[source]:
                yield token, source_token, divisor
        if token == target_eos or (token_words and not linked):
            yield token, source_eos, 1
