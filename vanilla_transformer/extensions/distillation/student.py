"""
The training text of a student, by one rule: translations with warnings are dropped, of the others
of a source the ones with the best scores are chosen, and of all these the share with the lowest
scores is dropped.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import atomic_folder

from .distillation_arguments import CORPUS_FILE, DistillationArguments
from .teacher import Candidate, is_dropped

REPORT_FILE = "report.json"
# The reasons for which pairs are dropped whose source has a better one, and the ones with the
# lowest scores.
CHOICE, SCORE = "choice", "score"
_EXAMPLES = 10  # of pairs that were dropped, for each reason
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
        translations: Number of translations.
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

    def add_dropped(self, reason: str, source: str, target: str) -> None:
        """Count a pair that is dropped, and keep it if it is one of the first for its reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            from vanilla_transformer.data.cleaning import abbreviate  # which imports `datasets`

            examples.append([abbreviate(source), abbreviate(target)])

    def reasons(self) -> str:
        """Return how many pairs were dropped, by reason, as text."""
        counts = [f"{count:,} by {reason}" for reason, count in self.dropped.items()]
        return ", ".join(counts) or "none was dropped"

    def __str__(self) -> str:
        """Return the report in Markdown."""
        lines = [
            f"{self.kept:,} of {self.translations:,} translations of {self.sentences:,} sentences "
            "are kept."
        ]
        if self.untranslated:
            lines.append(f"{self.untranslated:,} sentences have no translation.")
        for reason, count in self.dropped.items():
            examples = (f"- {source} | {target}" for source, target in self.examples[reason])
            lines += ["", f"Dropped by {reason}: {count:,}, such as", "", *examples]
        return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """Return a text without tabs and line ends, which separate the texts of a TSV file."""
    return text.translate(_SPACES)


def as_tsv(source: str, target: str) -> str:
    """Return the line of a pair."""
    return f"{one_line(source)}\t{one_line(target)}\n"


class CandidateFilter:
    """
    Decide which candidates a student learns.

    Args:
        rows: Returns the candidates of each sentence, in order.
        options: Says how many candidates a sentence keeps, and which share of all is dropped.

    Attributes:
        least_score: The lowest score that is kept, or None if no score is too low.
    """

    def __init__(self, rows: Callable[[], Iterator[Row]], options: DistillationArguments):
        self.options = options
        self._score = combine_scores(chain.from_iterable(map(self._usable, rows())))
        chosen = chain.from_iterable(map(self._choose, rows()))
        scored = (self._score(candidate) for candidate in chosen if candidate.scores)
        scores = np.fromiter(scored, float)
        count = math.floor(len(scores) * options.drop_lowest_scores)
        self.least_score = float(np.partition(scores, count)[count]) if count else None

    def find_reasons(self, row: Row) -> Iterator[str | None]:
        """Yield for each candidate of a sentence the reason to drop it, or None."""
        chosen = {*map(id, self._choose(row))}
        for candidate in row.candidates:
            if is_dropped(candidate, self.options.drop_warnings):
                yield candidate.warnings[0]
            elif id(candidate) not in chosen:
                yield CHOICE
            elif self._is_too_low(candidate):
                yield SCORE
            else:
                yield None

    def _usable(self, row: Row) -> list[Candidate]:
        candidates = []
        for candidate in row.candidates:
            if not is_dropped(candidate, self.options.drop_warnings):
                candidates.append(candidate)
        return candidates

    def _choose(self, row: Row) -> list[Candidate]:
        candidates = sorted(self._usable(row), key=self._score, reverse=True)
        return candidates[: self.options.most]

    def _is_too_low(self, candidate: Candidate) -> bool:
        if self.least_score is None or not candidate.scores:
            return False
        return self._score(candidate) < self.least_score


def write_student_corpora(
    folder: Path, rows: Callable[[], Iterator[Row]], corpora: int, options: DistillationArguments
) -> FilterReport:
    """
    Write the pairs that are kept to `corpus-0.tsv`, `corpus-1.tsv`, … in a folder, all at once,
    with a report.

    Args:
        rows: Returns the candidates of each sentence, in order.
        corpora: The number of corpora.
    """
    candidate_filter = CandidateFilter(rows, options)
    report = FilterReport(least_score=candidate_filter.least_score)
    empty = {*range(corpora)}
    with atomic_folder(folder) as temporary, ExitStack() as stack:
        files = []
        for number in range(corpora):
            path = temporary / Path(CORPUS_FILE.format(number)).name
            file = path.open("w", encoding="utf-8", newline="\n")
            files.append(stack.enter_context(file))
        for row in rows():
            report.sentences += 1
            report.untranslated += not row.candidates
            report.translations += len(row.candidates)
            reasons = candidate_filter.find_reasons(row)
            for candidate, reason in zip(row.candidates, reasons, strict=True):
                if reason is not None:
                    report.add_dropped(reason, row.source, candidate.target)
                    continue
                report.kept += 1
                files[row.corpus].write(as_tsv(row.source, candidate.target))
                empty.discard(row.corpus)
        if empty:
            raise UserError(
                "Filtering must leave translations of each corpus to train on, but it leaves none "
                f"of corpus {min(empty) + 1}: {report.reasons()}."
            )
        entries = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (temporary / REPORT_FILE).write_text(entries + "\n", encoding="utf-8")
        stack.close()
    return report


def combine_scores(candidates: Iterable[Candidate]) -> Callable[[Candidate], float]:
    """Return a function for the score of a candidate, which has as many scores as each one here, or
    none.
    """
    scored = (candidate.scores for candidate in candidates if candidate.scores)
    first = next(scored, [])
    if len(first) < 2:
        return lambda candidate: sum(candidate.scores)
    values = chain(first, chain.from_iterable(scored))
    table = np.fromiter(values, float).reshape(-1, len(first))
    mean, deviation = table.mean(axis=0), table.std(axis=0)
    deviation[deviation == 0] = 1

    def score(candidate: Candidate) -> float:
        if not candidate.scores:
            return 0.0
        return float(((candidate.scores - mean) / deviation).mean())

    return score
