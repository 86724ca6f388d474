"""
Apply the cleaning rules to a corpus, and report the dropped pairs, the lengths of all pairs, and
wrong languages.

The result is the same for any number of processes.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from operator import add
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import (
    escape_invalid_unicode,
    has_invalid_unicode,
    invalid_unicode_error,
)
from vanilla_transformer.text.languages import (
    SHORTEST_IDENTIFIED,
    identify,
    is_clearly_another,
    language_code,
    load_identifier,
)

from .cleaning_rules import (
    REPETITIONS,
    RULES,
    CleaningRules,
    PairRules,
    hash_repetition,
    rank_case,
)
from .readers import ROWS_PER_BATCH, CorpusRow, CorpusSpec, SentencePair, blank_side_error
from .tokenized_corpus import choose_num_proc

logger = logging.getLogger(__name__)

# {"source", "target" or "ratio": {"kept" or "dropped": counts}}
Histograms = dict[str, dict[str, list[int]]]

LENGTH_EDGES = np.arange(0, 510, 10)  # characters; longer texts count for the last bin
# Binary logarithms of the characters of the target divided by the characters of the source
RATIO_EDGES = np.linspace(-3, 3, 49)


def count_lengths(texts: datasets.Dataset, kept: np.ndarray) -> Histograms:
    """Count the lengths of both sides in characters and the logarithm of their ratio to base 2, by
    a mask of pairs.
    """
    sources = pc.utf8_length(texts.data.column("source")).to_numpy()
    targets = pc.utf8_length(texts.data.column("target")).to_numpy()
    ratios = np.log2(targets / sources)
    return {
        "source": _count_by_mask(sources, LENGTH_EDGES, kept),
        "target": _count_by_mask(targets, LENGTH_EDGES, kept),
        "ratio": _count_by_mask(ratios, RATIO_EDGES, kept),
    }


def _count_by_mask(values: np.ndarray, edges: np.ndarray, kept: np.ndarray) -> dict[str, list[int]]:
    """Count kept and dropped values between edges. Those beyond the edges count for the last
    bins.
    """
    edges = np.array([-np.inf, *edges[1:-1], np.inf])
    kept_counts, _ = np.histogram(values[kept], edges)
    dropped_counts, _ = np.histogram(values[~kept], edges)
    return {"kept": kept_counts.tolist(), "dropped": dropped_counts.tolist()}


def pairs_of(texts: datasets.Dataset, rows: np.ndarray) -> list[SentencePair]:
    """Return the pairs in some rows of texts."""
    chosen = texts[rows.tolist()]
    return list(map(SentencePair, chosen["source"], chosen["target"]))


EXAMPLES = 3
_EXAMPLE_CHARACTERS = 100


@dataclass
class CleaningReport:
    """Numbers of pairs read and dropped by each rule, with the first few examples, lengths and
    warnings.
    """

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, rule_name: str, pairs: Sequence[SentencePair], count: int | None = None) -> None:
        """Count `count` pairs (by default `len(pairs)`) that a rule dropped; `pairs` holds the
        first of them.
        """
        dropped = len(pairs) if count is None else count
        self.dropped[rule_name] = self.dropped.get(rule_name, 0) + dropped
        examples = self.examples.setdefault(rule_name, [])
        for source, target in pairs[: EXAMPLES - len(examples)]:
            examples.append([abbreviate(source), abbreviate(target)])

    def add_rows(self, rule_name: str, texts: datasets.Dataset, rows: np.ndarray) -> None:
        """Count rows of texts that a rule dropped."""
        self.add(rule_name, pairs_of(texts, rows[:EXAMPLES]), len(rows))

    def extend(self, other: "CleaningReport") -> None:
        """Add the report of another part of the text, which follows this one."""
        self.read += other.read
        self.warnings += other.warnings
        for name, count in other.dropped.items():
            self.dropped[name] = self.dropped.get(name, 0) + count
            examples = self.examples.setdefault(name, [])
            examples += other.examples[name][: EXAMPLES - len(examples)]
        for side, counts in other.histograms.items():
            totals = self.histograms.setdefault(side, {})
            for kind, values in counts.items():
                totals[kind] = [*map(add, totals.get(kind, [0] * len(values)), values)]

    def warn(self, warnings: Sequence[str]) -> None:
        """Log warnings, and keep them."""
        for warning in warnings:
            logger.warning(warning)
        self.warnings += warnings

    @property
    def kept(self) -> int:
        """Return the number of pairs that no rule dropped."""
        return self.read - sum(self.dropped.values())

    def check_kept(self) -> None:
        """Refuse rules that drop every pair."""
        if not self.kept:
            raise UserError(
                f"Cleaning must leave some pairs of the training text, got none. {self}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self) | {"kept": self.kept}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CleaningReport":
        """Build a report from the result of `to_dict`."""
        names = [item.name for item in fields(cls)]
        return cls(**{name: values[name] for name in names})

    def __str__(self) -> str:
        lines = [f"{self.kept:,} of {self.read:,} pairs kept.", *self.warnings]
        for rule_name, description in RULES.items():
            count = self.dropped.get(rule_name)
            if count:
                share = 100 * count / self.read
                percent = f"{share:.0f}" if share >= 10 else f"{share:.2g}"
                lines.append(f"  {count:,} dropped ({percent} %): {description}, such as")
                for source, target in self.examples[rule_name]:
                    lines.append(f"    {source} | {target}")
        return "\n".join(lines)


def abbreviate(text: str) -> str:
    """Shorten text to one line for a report, with escape sequences for invalid Unicode."""
    text = " ".join(text.split())
    if len(text) > _EXAMPLE_CHARACTERS:
        text = text[:_EXAMPLE_CHARACTERS] + " …"
    return escape_invalid_unicode(text)


_WAY_OUT = ", or leave such pairs out by `drop: [{}]`"


def clean_text(
    spec: CorpusSpec, rows: Iterable[CorpusRow], rules: CleaningRules | None, report: CleaningReport
) -> Iterator[SentencePair]:
    """
    Yield the pairs that the rules on single pairs keep.

    Lines blank on both sides are always dropped. So are pairs without text on a side where they are
    no lines that a user can edit, as in a dataset or an archive.

    Args:
        rules: None for held-out text, for which a recipe can enable none.
    """
    way_out = _WAY_OUT
    if rules is None:
        way_out, rules = "", CleaningRules()
    is_editable = spec.dataset is None and spec.format in ("", ".tsv", ".jsonl")
    for number, pair, score in rows:
        report.read += 1
        if rules.min_score is not None and score is None and any(pair):
            requirement = f"`min_score` needs scores, but line {number} of {spec.name} has none"
            raise UserError(
                f"{requirement}. Leave it out, or set `min_score: null` for this corpus in "
                "`corpora`."
            )
        if has_invalid_unicode(pair.source) or has_invalid_unicode(pair.target):
            rule_name = "invalid_unicode"
            side = 0 if has_invalid_unicode(pair.source) else 1
            if rule_name not in rules.drop:
                hint = way_out.format(rule_name)
                raise invalid_unicode_error(number, spec.location(side), pair[side], hint)
        elif not (pair.source and pair.target):
            rule_name = "empty"
            side = 1 if pair.source else 0
            if any(pair) and is_editable and rule_name not in rules.drop:
                hint = way_out.format(rule_name)
                raise blank_side_error(number, spec.location(side), hint)
        elif rules.min_score is not None and score is not None and score < rules.min_score:
            rule_name = "min_score"
        elif "identical" in rules.drop and pair.source == pair.target:
            rule_name = "identical"
        else:
            yield pair
            continue
        report.add(rule_name, [pair])


RULE_NAMES = list(RULES)
KEPT = -1  # instead of the number of a rule that drops a pair


def find_broken(
    texts: datasets.Dataset,
    pair_rules: Sequence[PairRules],
    report: CleaningReport,
    num_proc: int | None = None,
) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is True for pairs that break a rule, and count them in
    `report`.

    Args:
        texts: Columns `source`, `target` and `corpus`, the number of the pair's corpus.
        pair_rules: The rules of each corpus.
        num_proc (`int`): Number of processes. By default all cores, if the text is long enough.
    """
    wanted: set[str] = set()
    for corpus_rules in pair_rules:
        wanted.update(corpus_rules.rules.drop)
    repetitions = [name for name in REPETITIONS if name in wanted]
    broken = np.full(len(texts), KEPT, np.int8)
    misaligned = "misaligned" in wanted
    has_checks = any(corpus_rules.checks for corpus_rules in pair_rules)
    if repetitions or misaligned or has_checks:
        results = check_texts(texts, pair_rules, repetitions, num_proc)
        broken = results.data.column("rule").to_numpy().copy()
        corpora = texts.data.column("corpus").to_numpy()
        ranks = results.data.column("rank").to_numpy()
        for name in repetitions:
            drops = np.array([name in corpus_rules.rules.drop for corpus_rules in pair_rules])
            first, second = results.data.select(hash_columns(name)).columns
            # Pairs that earlier rules drop are no repetitions.
            repeated = find_duplicates(first, second, ranks, broken == KEPT)
            broken[repeated & drops[corpora]] = RULE_NAMES.index(name)
        if misaligned:
            _find_misaligned(texts, broken, pair_rules, report, num_proc)
    count_broken(texts, broken, report)
    return broken != KEPT


def check_texts(
    texts: datasets.Dataset,
    pair_rules: Sequence[PairRules] | Mapping[int, PairRules],
    repetitions: Sequence[str],
    num_proc: int | None = None,
) -> datasets.Dataset:
    """Return of each pair the number of the rule that it breaks, its rank, and its hashes by some
    rules on repetitions, in columns of [`hash_columns`].
    """
    features = {"rule": datasets.Value("int8"), "rank": datasets.Value("int8")}
    for name in repetitions:
        features |= dict.fromkeys(hash_columns(name), datasets.Value("uint64"))
    return texts.map(
        partial(_check_batch, pair_rules=pair_rules, repetitions=repetitions),
        batched=True,
        remove_columns=texts.column_names,
        features=datasets.Features(features),
        num_proc=choose_num_proc(len(texts), num_proc),
        writer_batch_size=ROWS_PER_BATCH,
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint="cleaning",  # without it `datasets` would hash the function
        desc="Cleaning",
    )


def count_broken(texts: datasets.Dataset, broken: np.ndarray, report: CleaningReport) -> None:
    """Count the dropped pairs by the number of the rule that each breaks, and the lengths of all
    pairs.
    """
    for number, name in enumerate(RULE_NAMES):
        rows = np.flatnonzero(broken == number)
        if len(rows):
            report.add_rows(name, texts, rows)
    report.histograms = count_lengths(texts, broken == KEPT)


def _find_misaligned(
    texts: datasets.Dataset,
    broken: np.ndarray,
    pair_rules: Sequence[PairRules],
    report: CleaningReport,
    num_proc: int | None,
) -> None:
    """Mark the misaligned pairs of each direction in `broken`, if it has enough pairs to find
    them.
    """
    from vanilla_transformer.extensions.cleaning.misalignment import LEAST_PAIRS, find_misaligned

    corpora = texts.data.column("corpus").to_numpy()
    numbers_of: dict[str, list[int]] = {}
    for number, corpus_rules in enumerate(pair_rules):
        if "misaligned" in corpus_rules.rules.drop:
            numbers_of.setdefault(corpus_rules.direction, []).append(number)
    for numbers in numbers_of.values():
        rows = np.flatnonzero((broken == KEPT) & np.isin(corpora, numbers))
        if len(rows) < LEAST_PAIRS:
            notice = f"Misaligned pairs are not looked for: that needs {LEAST_PAIRS:,} pairs"
            report.warn([f"{notice} of one direction, got {len(rows):,}."])
            continue
        processes = choose_num_proc(len(rows), num_proc)
        misaligned = find_misaligned(texts.select(rows), processes)
        broken[rows[misaligned]] = RULE_NAMES.index("misaligned")


def _check_batch(
    batch: dict[str, list[Any]],
    pair_rules: Sequence[PairRules] | Mapping[int, PairRules],
    repetitions: Sequence[str],
) -> dict[str, list[Any]]:
    pairs = list(map(SentencePair, batch["source"], batch["target"]))
    broken = []
    for pair, corpus in zip(pairs, batch["corpus"], strict=True):
        name = pair_rules[corpus].find_broken(pair)
        broken.append(KEPT if name is None else RULE_NAMES.index(name))
    directions = [pair_rules[corpus].direction for corpus in batch["corpus"]]
    columns: dict[str, Any] = {"rule": broken, "rank": list(map(rank_case, pairs))}
    for name in repetitions:
        hashes = b"".join(map(partial(hash_repetition, name), pairs, directions))
        numbers = np.frombuffer(hashes, np.uint64).reshape(-1, 2)
        columns |= dict(zip(hash_columns(name), numbers.T, strict=True))
    return columns


def hash_columns(rule_name: str) -> list[str]:
    """Return the names of the columns of a rule's hashes: numbers, which need no offsets."""
    return [f"{rule_name}_0", f"{rule_name}_1"]


_SAMPLE = 300  # pairs of each corpus, evenly spaced
_SUSPICIOUS = 0.2  # share of the sample, from which on a corpus is reported


def find_language_mistakes(texts: datasets.Dataset, specs: Sequence[CorpusSpec]) -> list[str]:
    """
    Return a warning, with examples, for each corpus of which a fifth is in another direction or
    language.

    Corpora without `source_language` and `target_language`, or with names of languages that are no
    codes, are not checked.
    """
    if not any(spec.source_language and spec.target_language for spec in specs):
        return []
    try:
        load_identifier()
    except UserError as error:
        logger.info("The languages of the corpora are not checked. %s", error)
        return []
    corpora, warnings = texts.data.column("corpus").to_numpy(), []
    for number, spec in enumerate(specs):
        rows = np.flatnonzero(corpora == number)
        spaced = rows[:: max(1, len(rows) // _SAMPLE)]
        pairs = pairs_of(texts, spaced[:_SAMPLE])
        pairs = [pair for pair in pairs if min(map(len, pair)) >= SHORTEST_IDENTIFIED]
        for mistake, wrong in _suspect_languages(spec, pairs):
            if len(wrong) > _SUSPICIOUS * len(pairs):
                text = mistake.format(f"{len(wrong)} of {len(pairs)} pairs")
                lines = [f"The corpus {spec.name} has {text}. Examples:"]
                for source, target in wrong[:EXAMPLES]:
                    lines.append(f"    {abbreviate(source)} | {abbreviate(target)}")
                warnings.append("\n".join(lines))
                break
    return warnings


def _suspect_languages(
    spec: CorpusSpec, pairs: Sequence[SentencePair]
) -> Iterator[tuple[str, Sequence[SentencePair]]]:
    """Yield each mistake that a corpus may have with its languages, and the pairs that look so."""
    source, target = map(language_code, spec.direction)
    if source is None or target is None or source == target:
        return
    swapped: list[SentencePair] = []
    for pair in pairs:
        if identify(pair.source) == target and identify(pair.target) == source:
            swapped.append(pair)
    yield "its sides swapped in {}. Exchange its source and target", swapped
    for side, code in (("source", source), ("target", target)):
        others = [pair for pair in pairs if is_clearly_another(getattr(pair, side), code)]
        hint = "Check it, or set `drop: [other_languages]`"
        yield f"a {side} in another language than {code} in {{}}. {hint}", others


# Of the hashes, which are sorted one after another: each takes some 50 bytes for each of its pairs.
_HASH_RANGES = 16


def find_duplicates(
    first: pa.ChunkedArray, second: pa.ChunkedArray, ranks: np.ndarray, kept: np.ndarray
) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is True for all but one of equal pairs.

    Args:
        first, second: The halves of the hashes of all pairs, uint64.
        ranks (of shape `(pairs,)`): Of equal pairs the one with the lowest rank is kept, and of
            these the earliest.
        kept (of shape `(pairs,)`): A mask of the pairs to compare.
    """
    last = pa.scalar(_HASH_RANGES - 1, pa.uint64())
    ranges = pc.bit_wise_and(first, last).cast(pa.uint8()).to_numpy()
    duplicates = np.zeros(len(ranks), dtype=bool)
    for number in range(_HASH_RANGES):
        in_range = kept & (ranges == number)
        rows = np.flatnonzero(in_range)
        firsts = first.filter(pa.array(in_range)).to_numpy()
        seconds = second.filter(pa.array(in_range)).to_numpy()
        # Stable: the earliest of equal pairs comes first.
        order = np.lexsort((ranks[rows], seconds, firsts))
        repeated = np.diff(firsts[order]) == 0
        repeated &= np.diff(seconds[order]) == 0
        duplicates[rows[order[1:][repeated]]] = True
    return duplicates
