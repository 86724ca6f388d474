"""Translate text of the target language back, to train on it as parallel text (Sennrich et al.
2016).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.data.readers import file_format
from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.decoding.corpus_shards import (
    SHARD_LINES,
    CorpusShards,
    Shard,
    Work,
    work_in_turn,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.text_folders import hash_texts, stream_texts, text_files
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .student import as_tsv

TSV, JSONL = ".tsv", ".jsonl"
BLANK = "blank"  # the reason for which lines without text or without translation are dropped


class BackTranslations(NamedTuple):
    """Numbers of lines of the text, of written pairs, and of dropped lines by reason: blank, or a
    warning.
    """

    lines: int
    pairs: int
    dropped: dict[str, int]


def check_output(output: Path, tag: str | None) -> None:
    """Check where back-translations are written, and with which tag."""
    if file_format(output.name) not in (TSV, JSONL):
        raise UserError(f"Pairs must be written to a {TSV} or {JSONL} file, got {output}.")
    if tag is not None and (not tag.strip() or tag.split() != [tag]):
        raise UserError(f"A tag must be one word, such as <BT>, got {tag!r}.")


def back_translate(
    translate: TranslationPipeline,
    text: Path,
    output: Path,
    origin: Mapping[str, Any],
    tag: str | None = None,
    keep_warnings: bool = False,
    resume: bool = False,
    batch_size: int = 32,
    work: Work | None = None,
) -> BackTranslations:
    """
    Translate each line of a text, and write pairs of the translation as source and the line as
    target.

    A file `.tsv` has source TAB target on each line, and `.jsonl` objects with `source` and
    `target`. While it is written, finished shards are in a folder `NAME.partial` beside it.

    Args:
        text: A file, or a folder whose files are one text.
        translate: The pipeline of a model that translates to the source language. A `seed` among
            its options gives each shard its own samples.
        origin: All that translations depend on besides their text, as JSON.
        tag: Written before each source, and a space.
        keep_warnings: Keep translations with a warning, see [`find_warnings`].
        resume: Continue an interrupted run.
        work: What translates instead of this process, by [`translate_shard`].
    """
    text_files(text, output)  # or the output might be read, too
    described = {"input": hash_texts(text), **origin}
    total = sum(1 for _ in stream_texts(text))
    shards = CorpusShards.beside(output, described, SHARD_LINES, total)
    if work is None:
        here = partial(translate_shard, translate, batch_size)
        work = partial(work_in_turn, work=here)
    limits, dropped = WarningLimits.from_config(translate.model.config), Counter[str]()
    before = "" if tag is None else f"{tag} "
    as_line = as_tsv if file_format(output.name) == TSV else _as_json

    def kept_lines() -> Iterator[str]:
        results = map(json.loads, shards.result_lines(total))
        pairs = zip(results, stream_texts(text), strict=True)
        for source, line in pairs:
            reasons: list[str] = []
            if not source.strip() or not line.strip():
                reasons = [BLANK]
            elif not keep_warnings:
                reasons = find_warnings(line, source, limits)
            if reasons:
                dropped[reasons[0]] += 1
            else:
                yield as_line(before + source, line)
        if dropped.total() == total:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
            raise UserError(
                f"Some line must have a usable translation, but all are dropped: {counts}."
            )

    with shards.held(resume):
        shards.complete(stream_texts(text), work)
        write_text_atomically(output, kept_lines())
        shards.delete()
    return BackTranslations(total, total - dropped.total(), dict(dropped))


def translate_shard(translate: TranslationPipeline, batch_size: int, shard: Shard) -> list[str]:
    """Return the translation of each line of a shard as JSON."""
    seed = translate.default_options.get("seed")
    shard_seed = None if seed is None else seed + shard.number
    answers = translate(shard.lines, batch_size, False, seed=shard_seed)
    lines = []
    for answer in answers:
        lines.append(json.dumps(answer["translation_text"], ensure_ascii=False))
    return lines


def _as_json(source: str, target: str) -> str:
    return json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n"
