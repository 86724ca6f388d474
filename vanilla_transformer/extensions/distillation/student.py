"""The training text of a student, and the comparison of student and teacher in scores, speed and size."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import hash_json
from vanilla_transformer.decoding.engine.precision import precision_of
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.decoding.pretrained import ensemble_arguments, hash_model
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.utils.file_utils import atomic_folder, read_json, write_hashes, write_text_atomically

from .teacher import CandidatePair

REPORT_FILE = "report.json"
SCORE = "score"  # the reason for which pairs with the lowest scores are dropped
_EXAMPLES = 3  # of pairs that were dropped, for each reason
_SPACES = str.maketrans("\t\n\r", "   ")  # what ends a column or a line


class Row(NamedTuple):
    """A sentence of a text, the number of its corpus, and its translations."""

    corpus: int
    source: str
    candidates: list[CandidatePair]


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
            raise UserError(f"Filtering must leave translations of each corpus to train on, but {found}.")
        entries = json.dumps(asdict(report), indent=2, ensure_ascii=False)
        (temporary / REPORT_FILE).write_text(entries + "\n", encoding="utf-8")
        stack.close()
        write_hashes(temporary)
    return report


def read_report(path: Path) -> FilterReport | None:
    """Return the report of an earlier run, or None if there is none or it is damaged."""
    try:
        return FilterReport(**read_json(path))
    except (OSError, TypeError):
        return None


def corpus_name(number: int) -> str:
    """Return the name of the file of a corpus."""
    return f"corpus-{number}.tsv"


def _reason(candidate: CandidatePair, drop_warnings: bool, least_score: float | None) -> str | None:
    """Return why a candidate is dropped, or None."""
    if drop_warnings and candidate.warnings:
        return candidate.warnings[0]
    if least_score is not None and candidate.score is not None and candidate.score < least_score:
        return SCORE
    return None


_ROUNDS = 3  # of which the fastest counts, after one that loads or compiles the steps


@dataclass(frozen=True)
class System:
    """
    Models and their decoding.

    Attributes:
        name: Name in the table.
        models: Folders or Hub names; several are an ensemble.
        weights: Weights of the models of an ensemble.
        num_beams, precision: None for the checkpoint's.
        compile: Compile the decoding steps first. Otherwise the ones of the cache are used.
    """

    name: str
    models: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    num_beams: int | None = None
    precision: str | None = None
    compile: bool = False


@dataclass(frozen=True)
class SystemResult:
    """
    The scores, the speed and the size of a system.

    Attributes:
        name: Name of the system.
        num_beams, precision: Of its decoding.
        bleu, chrf: Corpus scores of sacreBLEU, from 0 to 100.
        sentences_per_second: The highest of several rounds.
        parameters, megabytes: Of the weights of all models, as they are stored.
    """

    name: str
    num_beams: int
    precision: str
    bleu: float
    chrf: float
    sentences_per_second: float
    parameters: int
    megabytes: float


def measure(system: System, pairs: Sequence[SentencePair], path: Path) -> SystemResult:
    """
    Translate and score test text, or read the result of an earlier run of the same system from `path`.

    The translations are written to a file with the same name and the suffix `.txt`.
    """
    origin = _origin(system, pairs)
    stored = _read(path)
    if stored.get("origin") == origin:
        return SystemResult(**stored["result"])
    translate = _load(system)
    search = {} if system.num_beams is None else {"num_beams": system.num_beams}
    sources, seconds = [pair.source for pair in pairs], list[float]()
    for _ in range(1 + _ROUNDS):
        start = time.perf_counter()
        answers = translate(sources, progress_bar=False, **search)
        seconds.append(time.perf_counter() - start)
    texts = [answer["translation_text"] for answer in answers]
    scores = score(texts, [pair.target for pair in pairs])
    model, weights = translate.model, [*translate.decoded_model.parameters()]
    result = SystemResult(
        system.name,
        system.num_beams or model.generation_config.num_beams or 1,
        system.precision or precision_of(model) or str(model.dtype),
        scores.bleu,
        scores.chrf,
        len(sources) / min(seconds[1:]),
        sum(weight.numel() for weight in weights),
        sum(weight.nbytes for weight in weights) / 10**6,
    )
    write_text_atomically(path.with_suffix(".txt"), (f"{text}\n" for text in texts))
    write_text_atomically(path, json.dumps({"origin": origin, "result": asdict(result)}, indent=2) + "\n")
    return result


def as_table(results: Sequence[SystemResult]) -> str:
    """Return the results in Markdown. The speedup is over the first system."""
    columns = ["system", "beams", "precision", "BLEU", "chrF", "sentences/s", "speedup", "parameters", "MB"]
    lines = [columns, ["---"] * 3 + ["---:"] * 6]
    for each in results:
        speedup = each.sentences_per_second / results[0].sentences_per_second
        numbers = [f"{each.bleu:.2f}", f"{each.chrf:.2f}", f"{each.sentences_per_second:.1f}", f"{speedup:.2f}"]
        lines.append(
            [each.name, str(each.num_beams), each.precision, *numbers, f"{each.parameters:,}", f"{each.megabytes:.1f}"]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _load(system: System) -> Any:
    first, *others = system.models
    further = ensemble_arguments(others, system.weights)
    return load_pipeline(first, precision=system.precision, compile=True if system.compile else "auto", **further)


def _origin(system: System, pairs: Sequence[SentencePair]) -> dict[str, Any]:
    hashes = [hash_model(name) for name in system.models]
    return json.loads(json.dumps({"system": asdict(system), "models": hashes, "text": hash_json([*pairs])}))


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file of results; without one, or if it is damaged, nothing."""
    try:
        content = read_json(path)
    except OSError:
        return {}
    return content if isinstance(content, dict) else {}
