"""
The steps of `prepare`. Each makes parts of its own of what earlier steps have written, by itself:
any machine that sees the folder may run it.

Repetitions are looked for by ranges of hashes: a step writes the hashes of each shard by range, and
the next one reads a range of all shards.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice, pairwise
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from transformers import AutoTokenizer

from vanilla_transformer.data.cached_texts import (
    SCHEMA,
    CachedTexts,
    read_report,
    write_pairs,
    write_report,
    write_texts,
)
from vanilla_transformer.data.cleaning import (
    KEPT,
    RULE_NAMES,
    CleaningReport,
    check_texts,
    clean_text,
    count_broken,
    find_duplicates,
    find_language_mistakes,
    hash_columns,
    pairs_of,
)
from vanilla_transformer.data.cleaning_rules import REPETITIONS, SAMPLED_PAIRS, PairRules
from vanilla_transformer.data.corpus import count_overlap, find_fitting
from vanilla_transformer.data.data_arguments import (
    DataArguments,
    augmentations,
    cleaning_rules,
    corpus_specs,
)
from vanilla_transformer.data.prepare_data import load_held_out
from vanilla_transformer.data.prepared_corpus import (
    ENCODED_SCHEMA,
    REPORT_FILE,
    SHARD_SCHEMA,
    SHARDS,
    TOKENIZER,
    Manifest,
    ShardEntry,
    describe_shard,
    write_manifest,
)
from vanilla_transformer.data.readers import (
    ROWS_PER_BATCH,
    Piece,
    SentencePair,
    open_corpus,
    read_rows,
    split_corpus,
)
from vanilla_transformer.data.texts import Texts
from vanilla_transformer.data.tokenized_corpus import (
    EncodedPairs,
    TokenTable,
    encode_sides,
    open_arrow_files,
)
from vanilla_transformer.data.tokenizer_training import hash_tokenizer, load_or_train_tokenizer
from vanilla_transformer.files.atomic import atomic_folder, write_text_atomically
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.files.temporary import sync
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import find_languages

_MOST_RANGES = 256  # of hashes: as many files are read for each shard
_PIECES_FILE, _ENTRY_FILE = "pieces.json", "entry.json"
_CHECKS_FILE, _GROUPS_FILE = "checks.parquet", "groups.arrow"


@dataclass(frozen=True)
class Preparation:
    """
    A corpus that is prepared in a folder.

    Args:
        recipe: The keys of [`DataArguments`] that differ from their defaults.
        tokenizer: The tokenizer to load, or None to train one.
        shard_pairs: Pairs of a shard that is read.
    """

    folder: Path
    recipe: dict[str, Any]
    tokenizer: str | None
    shard_pairs: int

    @property
    def work(self) -> Path:
        """The folder of the steps, each with a folder for each of its parts."""
        return self.folder / "work"

    @property
    def data(self) -> DataArguments:
        return DataArguments(**self.recipe)

    @property
    def repetitions(self) -> list[str]:
        """The rules on repetitions of any corpus, in their order."""
        names = {name for rules in cleaning_rules(self.data) for name in rules.drop}
        return [name for name in REPETITIONS if name in names]

    @property
    def pieces(self) -> list[list[Any]]:
        """The pieces of all corpora, as the step `split` writes them."""
        of_corpora = [read_json(part / _PIECES_FILE) for part in self.parts("split")]
        return [*chain.from_iterable(of_corpora)]

    def shards(self, corpus: str = "*") -> list[Path]:
        """Return the files of the text that was read, of all corpora or of one. Their names begin
        with the number of the corpus.
        """
        paths = self.work.glob(f"read/[0-9]*/{corpus}-*.arrow")
        return sorted(paths, key=_numbers_of_shard)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of parts of a step, by its unit."""
        sizes = {"corpus": len(corpus_specs(self.data)), "piece": len(self.pieces)}
        sizes |= {"shard": len(self.shards()), "text": 1}
        return sizes | {"range": min(sizes["shard"], _MOST_RANGES)}

    def parts(self, step: str) -> list[Path]:
        """Return the folders that a step has written, in the order of the text."""
        return sorted(self.work.glob(f"{step}/[0-9]*"), key=_number_of_part)

    def find_broken(self, shard: int, repetitions: Sequence[str]) -> np.ndarray:
        """Return the number of the rule that drops each pair of a shard, by the rules on single
        pairs and some on repetitions.
        """
        checks = parquet.read_table(self.parts("check")[shard] / _CHECKS_FILE, columns=["rule"])
        broken = checks["rule"].to_numpy().copy()
        rules = cleaning_rules(self.data)[_corpus_of(self.shards()[shard])]
        for name in repetitions:
            parts = self.parts(f"match-{name}") if name in rules.drop else []
            for part in parts:
                broken[_read_group(part, shard)["row"].to_numpy()] = RULE_NAMES.index(name)
        return broken

    def load_texts(self) -> Texts:
        """Return the cleaned text, memory-mapped, with its report."""
        report, parts = CleaningReport(), self.parts("filter")
        for part in (*self.parts("read"), *parts):
            report.extend(read_report(part))
        report.check_kept()
        text = datasets.concatenate_datasets([*map(open_arrow_files, parts)])
        data, training = self.data, CachedTexts(text, report, "prepared")
        rules, changes = cleaning_rules(data), augmentations(data)
        held_out = load_held_out(data)
        cache = self.work / "cache"
        return Texts(data, corpus_specs(data), rules, changes, training, *held_out, [], cache)


@dataclass(frozen=True)
class Step:
    """
    A step, as an executor of datatrove calls it: of `world_size` tasks, the one with the number
    `rank` makes each `world_size`-th part. A part that exists is not made again.

    Args:
        write: Writes a part into a folder, given its number.
        unit: The input of a part: a corpus, a piece of one, a shard, a range of hashes, or the
            whole text.
    """

    name: str
    preparation: Preparation
    write: Callable[[Preparation, int, Path], None]
    unit: str = "shard"

    def __call__(self, data: object = None, rank: int = 0, world_size: int = 1) -> None:
        for number in range(rank, self.preparation.sizes[self.unit], world_size):
            part = self.preparation.work / self.name / f"{number:05d}"
            if not part.exists():
                with atomic_folder(part) as aside:
                    self.write(self.preparation, number, aside)


def steps_of(preparation: Preparation) -> list[Step]:
    """Return the steps in their order. Each needs all parts of the ones before."""
    steps = [
        Step("split", preparation, _split, "corpus"),
        Step("read", preparation, _read, "piece"),
        Step("check", preparation, _check),
    ]
    for name in preparation.repetitions:
        group, match = partial(_group, rule_name=name), partial(_match, rule_name=name)
        steps.append(Step(f"group-{name}", preparation, group))
        steps.append(Step(f"match-{name}", preparation, match, "range"))
    steps.append(Step("filter", preparation, _filter))
    steps.append(Step("vocabulary", preparation, _write_tokenizer, "text"))
    steps.append(Step("tokenize", preparation, _tokenize))
    steps.append(Step("finish", preparation, _finish, "text"))
    return steps


def _split(preparation: Preparation, number: int, folder: Path) -> None:
    """Find the pieces of a corpus, with as many lines each as a shard has pairs. For each write the
    number of the corpus, the versions of its files, and the values of the piece.
    """
    with open_corpus(corpus_specs(preparation.data)[number]) as corpus:
        pieces = split_corpus(corpus, preparation.shard_pairs)
        rows = [(number, corpus.versions, piece) for piece in pieces]
    (folder / _PIECES_FILE).write_text(json.dumps(rows), encoding="utf-8")


def _read(preparation: Preparation, number: int, folder: Path) -> None:
    """Read a piece of a corpus, and write its text in shards, without the pairs that break rules on
    lines.
    """
    report = CleaningReport()
    number, versions, values = preparation.pieces[number]
    rules = cleaning_rules(preparation.data)[number]
    with open_corpus(corpus_specs(preparation.data)[number]) as corpus:
        # A file that has changed since it was split would have its lines at other places.
        piece = corpus._replace(versions=[*map(tuple, versions)], piece=Piece(*values))
        pairs = clean_text(corpus.spec, read_rows(piece), rules, report)
        for shard in count():
            first = [*islice(pairs, 1)]
            if not first:
                break
            rest = islice(pairs, preparation.shard_pairs - 1)
            name = f"{number:05d}-{shard:05d}.arrow"
            with pa.ipc.new_stream(str(folder / name), SCHEMA) as file:
                write_pairs(file, chain(first, rest), number)
    write_report(folder, report)


def _check(preparation: Preparation, number: int, folder: Path) -> None:
    """Apply the rules on single pairs to a shard, of which some take the beginning of its corpus as
    usual.
    """
    path = preparation.shards()[number]
    corpus = _corpus_of(path)
    sample: list[SentencePair] = []
    for shard in preparation.shards(f"{corpus:05d}"):
        texts = _open_shard(shard)
        sample += pairs_of(texts, np.arange(len(texts))[: SAMPLED_PAIRS - len(sample)])
        if len(sample) == SAMPLED_PAIRS:
            break  # and opens no further one
    spec = corpus_specs(preparation.data)[corpus]
    rules = PairRules.for_corpus(spec, cleaning_rules(preparation.data)[corpus], sample)
    checks = check_texts(_open_shard(path), {corpus: rules}, preparation.repetitions, num_proc=1)
    parquet.write_table(checks.data.table, folder / _CHECKS_FILE)


def _group(preparation: Preparation, number: int, folder: Path, rule_name: str) -> None:
    """Write the hashes of the pairs of a shard that no earlier rule drops, by their range."""
    repetitions = preparation.repetitions
    earlier = repetitions[: repetitions.index(rule_name)]
    rows = np.flatnonzero(preparation.find_broken(number, earlier) == KEPT)
    names = ["rank", *hash_columns(rule_name)]
    path = preparation.parts("check")[number] / _CHECKS_FILE
    checks = parquet.read_table(path, columns=names).take(rows)
    columns = {name: checks[name].to_numpy() for name in names}
    ranges = preparation.sizes["range"]
    numbers = (columns[names[1]] >> 32) * ranges >> 32
    _write_groups(folder, {"row": rows} | columns, numbers.astype(np.int64), ranges)


def _match(preparation: Preparation, number: int, folder: Path, rule_name: str) -> None:
    """Find the pairs of all shards that repeat another one, whose hashes are in a range."""
    groups = [_read_group(part, number) for part in preparation.parts(f"group-{rule_name}")]
    table = pa.Table.from_batches(groups)
    shards = np.repeat(np.arange(len(groups)), [group.num_rows for group in groups])
    ranks, compared = table["rank"].to_numpy(), np.ones(len(table), dtype=bool)
    first, second = hash_columns(rule_name)
    repeated = find_duplicates(table[first], table[second], ranks, compared)
    rows = table["row"].to_numpy()[repeated]
    _write_groups(folder, {"row": rows}, shards[repeated], len(groups))


def _filter(preparation: Preparation, number: int, folder: Path) -> None:
    """Write the pairs of a shard that no rule drops, and count the others."""
    texts, report = _open_shard(preparation.shards()[number]), CleaningReport()
    broken = preparation.find_broken(number, preparation.repetitions)
    count_broken(texts, broken, report)
    write_texts(folder, texts, broken == KEPT, report)


def _write_tokenizer(preparation: Preparation, number: int, folder: Path) -> None:
    """Train the tokenizer, or load it, and add the tokens of the recipe."""
    texts = preparation.load_texts()
    load_or_train_tokenizer(texts, preparation.tokenizer).save_pretrained(folder)


def _tokenize(preparation: Preparation, number: int, folder: Path) -> None:
    """Tokenize a shard, drop pairs by their lengths without tags, and describe the others."""
    tokenizer = AutoTokenizer.from_pretrained(preparation.parts("vocabulary")[0])
    encode, languages = partial(encode_sentences, tokenizer), find_languages(tokenizer)
    corpus = _corpus_of(preparation.shards()[number])
    direction = corpus_specs(preparation.data)[corpus].direction
    rules, report = cleaning_rules(preparation.data), CleaningReport()
    texts = open_arrow_files(preparation.parts("filter")[number])
    path, written = folder / f"{number:05d}.arrow", 0
    with pa.ipc.new_stream(str(path), SHARD_SCHEMA) as file:
        for first in range(0, len(texts), ROWS_PER_BATCH):
            rows = texts.select(range(first, min(first + ROWS_PER_BATCH, len(texts))))
            sides = encode_sides(rows[:], encode)
            pairs = EncodedPairs(TokenTable(datasets.Dataset(pa.table(sides, ENCODED_SCHEMA))))
            kept = find_fitting(pairs, rows, rules, report)
            if languages is not None:
                tokens = languages.tokens(direction)
                sides["input_ids"] = languages.begin(sides["input_ids"], tokens.source)
                sides["labels"] = languages.begin(sides["labels"], tokens.target)
            table = pa.table(rows[:] | sides, SHARD_SCHEMA)
            file.write_table(table.filter(pa.array(kept)))
            written += int(kept.sum())
    entry: dict[str, Any] | None = None
    if written:
        entry = describe_shard(path).model_dump()
    (folder / _ENTRY_FILE).write_text(json.dumps(entry), encoding="utf-8")
    write_report(folder, report)


def _finish(preparation: Preparation, number: int, folder: Path) -> None:
    """Move the shards to where training reads them, and write what describes them. All of it can
    be repeated.
    """
    output, texts = preparation.folder, preparation.load_texts()
    report, overlaps = texts.training.report, dict[str, Any]()
    uncleaned = datasets.concatenate_datasets([*map(_open_shard, preparation.shards())])
    report.warnings += find_language_mistakes(uncleaned, texts.specs)
    for name, held_out in texts.held_out.items():
        overlaps[name] = vars(count_overlap(texts.training.dataset, held_out))
    entries: list[ShardEntry] = []
    (output / SHARDS).mkdir(exist_ok=True)
    for part in preparation.parts("tokenize"):
        report.extend(read_report(part))
        entry = read_json(part / _ENTRY_FILE)
        if entry is not None:
            entry["file"] = f"{SHARDS}/{len(entries):05d}.arrow"
            entries.append(ShardEntry(**entry))
            with suppress(FileNotFoundError):  # which was moved before
                os.replace(part / f"{part.name}.arrow", output / entry["file"])
    report.check_kept()
    content = {"cleaning": report.to_dict(), "overlap": overlaps}
    write_text_atomically(output / REPORT_FILE, json.dumps(content, indent=2) + "\n")
    with atomic_folder(output / TOKENIZER, replace=True) as aside:
        shutil.copytree(preparation.parts("vocabulary")[0], aside, dirs_exist_ok=True)
    sync(output / SHARDS)  # or a power loss would leave a manifest of moved shards
    tokenizer = AutoTokenizer.from_pretrained(output / TOKENIZER)
    pairs = sum(entry.pairs for entry in entries)
    corpora = [spec.name for spec in texts.specs]
    manifest = Manifest(
        pairs=pairs,
        tokenizer=hash_tokenizer(tokenizer),
        corpora=corpora,
        recipe=preparation.recipe,
        shards=entries,
    )
    write_manifest(output, manifest)


def _number_of_part(part: Path) -> int:
    return int(part.name)  # of six digits and more, too, which names would sort otherwise


def _numbers_of_shard(shard: Path) -> tuple[int, int]:
    """Return the number of the piece that was read, and of its shard."""
    return _number_of_part(shard.parent), int(shard.stem.partition("-")[2])


def _corpus_of(shard: Path) -> int:
    return int(shard.name.partition("-")[0])


def _open_shard(path: Path) -> datasets.Dataset:
    return datasets.Dataset.from_file(str(path))


def _write_groups(
    folder: Path, columns: Mapping[str, np.ndarray], numbers: np.ndarray, groups: int
) -> None:
    """Write the rows of each group as one batch, given the group of each row."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(groups + 1))
    rows = pa.RecordBatch.from_pydict(columns).take(pa.array(order))
    with pa.ipc.new_file(str(folder / _GROUPS_FILE), rows.schema) as file:
        for first, last in pairwise(bounds.tolist()):
            file.write_batch(rows.slice(first, last - first))


def _read_group(part: Path, number: int) -> pa.RecordBatch:
    return pa.ipc.open_file(pa.memory_map(str(part / _GROUPS_FILE))).get_batch(number)
