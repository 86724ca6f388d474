"""Prepared corpora of a few shards."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from vanilla_transformer.data.cleaning import CleaningReport
from vanilla_transformer.data.prepared_corpus import (
    REPORT_FILE,
    SHARD_SCHEMA,
    SHARDS,
    TOKENIZER,
    Manifest,
    describe_shard,
    write_manifest,
)
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import encode_pairs
from vanilla_transformer.data.tokenizer_training import hash_tokenizer


def write_shard(path, texts, encoded, corpus=0):
    """Write pairs of a corpus of the mix and their tokens to the file of a shard."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sources, targets = zip(*texts, strict=True)
    input_ids, labels = zip(*encoded, strict=True)
    columns = (sources, targets, [corpus] * len(texts), input_ids, labels)
    types = SHARD_SCHEMA.types
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    with pa.ipc.new_stream(str(path), SHARD_SCHEMA) as file:
        file.write_batch(pa.record_batch(arrays, schema=SHARD_SCHEMA))


def write_prepared(folder, texts, encoded, shards, tokenizer=None, corpora_of=None, **recipe):
    """Write pairs and their tokens, in their order, as a prepared corpus of some shards, and return
    its manifest.

    Args:
        corpora_of: The number of the corpus of each shard. By default there is one corpus.
    """
    entries = []
    corpora_of = corpora_of or [0] * shards
    bounds = np.linspace(0, len(texts), shards + 1).astype(int)
    for number, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        path = Path(folder, SHARDS, f"{number:05}.arrow")
        write_shard(path, texts[begin:end], encoded[begin:end], corpora_of[number])
        entries.append(describe_shard(path))
    report = {"cleaning": CleaningReport(read=len(texts)).to_dict(), "overlap": {}}
    Path(folder, REPORT_FILE).write_text(json.dumps(report))
    key = ""
    if tokenizer is not None:
        tokenizer.save_pretrained(Path(folder, TOKENIZER))
        key = hash_tokenizer(tokenizer)
    manifest = Manifest(
        pairs=len(texts),
        tokenizer=key,
        corpora=["a", "b", "c"][: max(corpora_of) + 1],
        recipe={"train_source": "train.a", "train_target": "train.b"} | recipe,
        shards=entries,
    )
    write_manifest(folder, manifest)
    return manifest


def write_prepared_lengths(folder, lengths, shards, corpora_of=None):
    """Write pairs of some lengths as a prepared corpus. Each token is the number of its pair."""
    texts = [SentencePair(str(number), str(number)) for number in range(len(lengths))]
    encoded = [([number] * length,) * 2 for number, length in enumerate(lengths)]
    return write_prepared(folder, texts, encoded, shards, corpora_of=corpora_of)


def prepare_texts(folder, pairs, tokenizer, shards, **options):
    """Write text as a prepared corpus, as the tokenizer encodes it."""
    return write_prepared(
        folder, pairs, encode_pairs(tokenizer, pairs), shards, tokenizer, **options
    )
