"""The training text of a student: the translations of its teacher that are kept."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.file_utils import atomic_folder

from .teacher import Candidate

REPORT_FILE, CORPUS_FILE = "report.json", "corpus-{}.tsv"
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
        sentences: Number of sentences of the text.
        untranslated: Sentences without a translation.
        translations: Number of translations of the teacher.
        kept: Pairs that the student is trained on.
        dropped: Pairs that were dropped, by the first reason.
        least_score: The lowest score that was kept; None if pairs were not filtered by it.
        examples: A few pairs that were dropped, by reason.
    """

    sentences: int = 0
    untranslated: int = 0
    translations: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    least_score: float | None = None
    examples: dict[str, list[list[str]]] = field(default_factory=dict)

    def reasons(self) -> str:
        """Return how many pairs were dropped, by reason, as text."""
        return ", ".join(f"{count:,} by {reason}" for reason, count in self.dropped.items()) or "none was dropped"


def one_line(text: str) -> str:
    """Return a text without tabs and line ends, which separate the texts of a TSV file."""
    return text.translate(_SPACES)


def as_tsv(source: str, target: str) -> str:
    """Return the line of a pair."""
    return f"{one_line(source)}\t{one_line(target)}\n"


def write_student_corpora(
    folder: Path, rows: Callable[[], Iterator[Row]], corpora: int, drop_warnings: bool, drop_lowest_scores: float
) -> FilterReport:
    """
    Write the pairs that are kept to `corpus-0.tsv`, `corpus-1.tsv`, … in a folder, all at once, with a report.

    Args:
        rows: Returns the candidates of each sentence, in order.
        corpora: The number of corpora.
        drop_warnings: Drop pairs with a warning.
        drop_lowest_scores: The share of the other pairs to drop.
    """
    candidates = (candidate for row in rows() for candidate in row.candidates)
    usable = (candidate for candidate in candidates if not (drop_warnings and candidate.warnings))
    scores = sorted(candidate.score for candidate in usable if candidate.score is not None)
    count = math.floor(len(scores) * drop_lowest_scores)
    report = FilterReport(least_score=scores[count] if count else None)
    empty = {*range(corpora)}
    with atomic_folder(folder) as temporary, ExitStack() as stack:
        paths = [temporary / CORPUS_FILE.format(number) for number in range(corpora)]
        files = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for row in rows():
            report.sentences += 1
            report.untranslated += not row.candidates
            report.translations += len(row.candidates)
            for target, warnings, score in row.candidates:
                is_low = report.least_score is not None and score is not None and score < report.least_score
                reason = warnings[0] if drop_warnings and warnings else SCORE if is_low else None
                if reason is None:
                    report.kept += 1
                    files[row.corpus].write(as_tsv(row.source, target))
                    empty.discard(row.corpus)
                    continue
                report.dropped[reason] = report.dropped.get(reason, 0) + 1
                examples = report.examples.setdefault(reason, [])
                if len(examples) < _EXAMPLES:
                    examples.append([row.source, target])
        if empty:
            raise UserError(
                "Filtering must leave translations of each corpus to train on, but it leaves none of corpus "
                f"{min(empty) + 1}: {report.reasons()}."
            )
        entries = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (temporary / REPORT_FILE).write_text(entries + "\n", encoding="utf-8")
        stack.close()
    return report
