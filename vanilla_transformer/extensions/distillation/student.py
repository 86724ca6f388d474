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
    from vanilla_transformer.data.cleaning import abbreviate  # which imports `datasets`

    def usable(row: Row) -> list[Candidate]:
        drops = options.drop_warnings
        candidates = []
        for candidate in row.candidates:
            if not is_dropped(candidate, drops):
                candidates.append(candidate)
        return candidates

    score = combine_scores(chain.from_iterable(map(usable, rows())))

    def choose(row: Row) -> list[Candidate]:
        return sorted(usable(row), key=score, reverse=True)[: options.most]

    chosen = chain.from_iterable(map(choose, rows()))
    scores = np.fromiter((score(candidate) for candidate in chosen if candidate.scores), float)
    count = math.floor(len(scores) * options.drop_lowest_scores)
    report = FilterReport()
    if count:
        report.least_score = float(np.partition(scores, count)[count])
    empty = {*range(corpora)}
    with atomic_folder(folder) as temporary, ExitStack() as stack:
        paths = []
        for number in range(corpora):
            paths.append(temporary / Path(CORPUS_FILE.format(number)).name)
        files = []
        for path in paths:
            file = path.open("w", encoding="utf-8", newline="\n")
            files.append(stack.enter_context(file))
        for row in rows():
            report.sentences += 1
            report.untranslated += not row.candidates
            report.translations += len(row.candidates)
            best = {*map(id, choose(row))}
            for candidate in row.candidates:
                if is_dropped(candidate, options.drop_warnings):
                    reason = candidate.warnings[0]
                elif id(candidate) not in best:
                    reason = CHOICE
                elif (
                    report.least_score is not None
                    and candidate.scores
                    and score(candidate) < report.least_score
                ):
                    reason = SCORE
                else:
                    report.kept += 1
                    files[row.corpus].write(as_tsv(row.source, candidate.target))
                    empty.discard(row.corpus)
                    continue
                report.dropped[reason] = report.dropped.get(reason, 0) + 1
                examples = report.examples.setdefault(reason, [])
                if len(examples) < _EXAMPLES:
                    example = [abbreviate(row.source), abbreviate(candidate.target)]
                    examples.append(example)
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
