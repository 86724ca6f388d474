"""Filter the translations of a teacher, and write them as the corpora of a student."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.file_utils import atomic_folder

from .candidates import Candidate

REPORT_FILE = "report.json"
SCORE = "score"  # the reason for which pairs with the lowest scores are dropped
_EXAMPLES = 3  # of pairs that were dropped, for each reason
_SPACES = str.maketrans("\t\n\r", "   ")  # what ends a column or a line


class Row(NamedTuple):
    """A sentence of a text, the number of its corpus, and its translations."""

    corpus: int
    source: str
    candidates: list[Candidate]


@dataclass
class FilterReport:
    """
    The numbers of the translations of a teacher, kept and dropped.

    Attributes:
        sentences: Of the text.
        untranslated: Sentences without a translation.
        translations: Of the teacher.
        kept: Pairs that the student is trained on.
        dropped: Pairs that were dropped, by the first reason.
        origin: A hash of the translations and the rules.
        least_score: The lowest score that was kept; None if pairs were not filtered by it.
        examples: A few pairs that were dropped, by reason.
    """

    origin: str
    sentences: int = 0
    untranslated: int = 0
    translations: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    least_score: float | None = None
    examples: dict[str, list[list[str]]] = field(default_factory=dict)

    def add(self, reason: str, pair: SentencePair) -> None:
        """Count a pair that is dropped."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append([*pair])

    def reasons(self) -> str:
        """Return how many pairs were dropped, by reason, as text."""
        return ", ".join(f"{count:,} by {reason}" for reason, count in self.dropped.items()) or "none was dropped"


def one_line(text: str) -> str:
    """Return a text without tabs and line ends, which separate the texts of a TSV file."""
    return text.translate(_SPACES)


def lowest_score(scores: Sequence[float], share: float) -> float | None:
    """Return the lowest score that remains without a share of the pairs, or None if no pair is to be dropped."""
    count = math.floor(len(scores) * share)
    return sorted(scores)[count] if count else None


def write_student_corpora(
    folder: Path,
    rows: Callable[[], Iterator[Row]],
    corpora: int,
    drop_warnings: bool,
    drop_lowest_scores: float,
    origin: str,
) -> FilterReport:
    """
    Write the pairs that are kept to `corpus-0.tsv`, `corpus-1.tsv`, … in a folder, all at once.

    Args:
        rows: Returns the candidates of each sentence, in order.
        corpora: The number of corpora.
        drop_warnings: Drop pairs with a warning.
        drop_lowest_scores: The share of the other pairs to drop.
        origin: A hash of the translations and the rules, stored with the report.

    Raises:
        ValueError: No pair of a corpus is left.
        OSError: The folder cannot be written.
    """
    candidates = (each for row in rows() for each in row.candidates if not (drop_warnings and each.warnings))
    scores = [each.score for each in candidates if each.score is not None]
    report = FilterReport(origin, least_score=lowest_score(scores, drop_lowest_scores))
    empty = {*range(corpora)}
    with atomic_folder(folder) as temporary, ExitStack() as stack:
        names = [temporary / corpus_name(number) for number in range(corpora)]
        files = [stack.enter_context(name.open("w", encoding="utf-8", newline="\n")) for name in names]
        for row in rows():
            report.sentences += 1
            report.untranslated += not row.candidates
            for candidate in row.candidates:
                report.translations += 1
                reason = _reason(candidate, drop_warnings, report.least_score)
                if reason is None:
                    report.kept += 1
                    files[row.corpus].write(f"{one_line(row.source)}\t{one_line(candidate.target)}\n")
                    empty.discard(row.corpus)
                else:
                    report.add(reason, SentencePair(row.source, candidate.target))
        if empty:
            found = f"it leaves none of corpus {min(empty) + 1}: {report.reasons()}"
            raise ValueError(f"Filtering must leave translations of each corpus to train on, but {found}.")
        entries = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (temporary / REPORT_FILE).write_text(entries + "\n", encoding="utf-8")
    return report


def read_report(path: Path) -> FilterReport | None:
    """Return the report of an earlier run, or None if there is none or it is damaged."""
    try:
        return FilterReport(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def corpus_name(number: int) -> str:
    """Return the name of the file of a corpus."""
    return f"corpus-{number}.tsv"


def _reason(candidate: Candidate, drop_warnings: bool, least_score: float | None) -> str | None:
    """Return why a candidate is dropped, or None."""
    if drop_warnings and candidate.warnings:
        return candidate.warnings[0]
    if least_score is not None and candidate.score is not None and candidate.score < least_score:
        return SCORE
    return None


__all__ = [
    "REPORT_FILE",
    "FilterReport",
    "Row",
    "corpus_name",
    "lowest_score",
    "one_line",
    "read_report",
    "write_student_corpora",
]
