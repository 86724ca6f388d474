"""
The report of an evaluation for readers who are no engineers: one HTML file without scripts, which
loads nothing.

Each function returns the values of one section. `page.html`, a Jinja template that escapes all
values, shows them.
"""

import platform
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import SequenceMatcher
from importlib.metadata import version
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import regex
from jinja2 import Environment, StrictUndefined

from vanilla_transformer.decoding.pretrained import load_config
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.metric_labels import LOWER_IS_BETTER, METRIC_LABELS, OF_N_BEST
from vanilla_transformer.evaluation.scores import sentence_chrf
from vanilla_transformer.evaluation.significance import SIGNIFICANT, Estimate, Report
from vanilla_transformer.evaluation.test_sets import Evaluation
from vanilla_transformer.files.hashes import hash_file
from vanilla_transformer.files.resources import hash_content, read_part
from vanilla_transformer.text.translation_warnings import WARNINGS, WarningLimits, find_warnings
from vanilla_transformer.text.units import split_units, split_words

# Control characters, parts of a broken file name, and code points that are no characters.
_NOT_IN_HTML = regex.compile(r"[[\p{Cc}\p{Cs}\p{Noncharacter_Code_Point}]--[\t\n\r]]", regex.V1)
_FEW_SENTENCES = 200
_SHOWN, _SHOWN_CHANGES = 5, 3  # examples of a kind
_LENGTHS = ((1, 5), (6, 10), (11, 15), (16, 25), (26, None))  # words
_BIN = 10  # points of the scores of sentences
_USUAL_LENGTH = 0.1  # by which all translations may be shorter or longer than the references
# In the signature of a BLEU that counts words, to which the rule of thumb applies
_WORD_TOKENS = "tok:13a"
# From which BLEU on, and what Google's documentation of AutoML Translation says about it, in short.
_BANDS = {
    0: "almost useless",
    10: "hard to get the gist",
    20: "the gist is clear, with significant errors of grammar",
    30: "understandable to good",
    40: "high quality",
    50: "very high quality, adequate and fluent",
    60: (
        "as good as people's or better; make sure that the model was not trained on these sentences"
    ),
}
_MEANINGS = {
    "bleu": (
        "Words and runs of up to four words that a translation shares with the reference; "
        "100 is the same text"
    ),
    "chrf": (
        "Pieces of words that they share, so that another ending of a word costs less; 100 "
        "is the same text"
    ),
    "chrf++": "The same as chrF, with words and pairs of words",
    "accuracy": "Percentage of translations that are the reference, letter by letter",
    **{
        name: f"Percentage of texts of which one of the best {best} translations is the reference"
        for name, best in OF_N_BEST.items()
    },
    "ter": (
        "Changes that turn a translation into the reference, for 100 words of it; a lower "
        "value is better"
    ),
    "paper_bleu": (
        "BLEU as the tables of the paper have it; do not compare it with other kinds of BLEU"
    ),
    "tokenized_bleu": "The same, with compounds as one word",
    "loss": "How much the references surprise the model; a lower value is better",
    "comet": (
        "The judgment of a model that was trained on people's judgments; most values are "
        "from 0 to 1"
    ),
}
# By the worst and the best verdict
_TONES = {(1, 1): "good", (0, 1): "good", (-1, -1): "bad", (-1, 0): "bad"}
_VERDICTS = {1: "better", 0: "no reliable difference", -1: "worse"}


@dataclass(frozen=True)
class Setup:
    """
    How an evaluation was made.

    Attributes:
        system: Name of the model, or of the file of translations.
        command: The command line.
        version: Version of this package.
        models: Folders or Hub names of all models that translated.
        files: Files that were read, by their label, such as `Source`.
        baseline: Name of the other system, if there is one.
        limits: Limits of the warnings.
        languages: Codes of the source and the target language, if they are known.
        hardware: The machine.
        training: See `training_facts` of the model's card.
    """

    system: str
    command: str
    version: str
    models: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    baseline: str | None = None
    limits: WarningLimits = field(default_factory=WarningLimits)
    languages: tuple[str | None, str | None] = (None, None)
    hardware: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)


class ScoredSentence(NamedTuple):
    """A translated sentence with its chrF, the change from the other system, and the names of its
    warnings.
    """

    source: str
    translation: str
    reference: str
    baseline: str | None
    score: float
    change: float
    warnings: list[str]

    @property
    def words(self) -> int:
        """Return the number of words of the source or, without one, of the reference."""
        return len(split_words(self.source or self.reference))


class Bar(NamedTuple):
    """A row of a chart: its name, a number of sentences, a value and the width of its bar in
    percent.
    """

    name: str
    sentences: int
    value: float
    width: float


def render_report(evaluation: Evaluation, setup: Setup) -> str:
    """Return the HTML of a page on the quality of translations."""
    report = evaluation.report
    sentences = score_sentences(evaluation, setup.limits)
    if not sentences:
        raise UserError(
            "A report needs a sentence with a reference, but all references are blank. Leave out "
            "--report."
        )
    template = create_environment().from_string(read_part(str(__package__), "html"))
    style = read_part(str(__package__), "css")
    source, target = [(code or "").replace("_", "-") for code in setup.languages]
    values: dict[str, Any] = {"setup": setup, "sentences": sentences, "report": report}
    values |= {"source_language": source, "target_language": target, "date": datetime.now(UTC)}
    values |= {"labels": METRIC_LABELS, "meanings": _MEANINGS, "meanings_of_warnings": WARNINGS}
    values |= {"style": style, "style_hash": hash_content(style)}
    values["is_few"] = len(sentences) < _FEW_SENTENCES
    values["has_sources"] = bool(evaluation.sources)
    values["scale"] = describe_scale(report.estimates["bleu"])
    values["comparison"] = compare(report, sentences) if report.comparisons else None
    values["lengths"] = describe_lengths(sentences)
    values["distribution"] = describe_distribution(sentences)
    values["examples"] = choose_examples(sentences)
    values["warnings"] = count_warnings(sentences)
    values["warned"] = sum(bool(sentence.warnings) for sentence in sentences)
    values["speed"] = describe_speed(sentences, evaluation.seconds)
    values["versions"] = describe_versions(setup)
    values["files"] = hash_files(setup.files)
    values["models"] = list_models(setup.models)
    return template.render(values)


def create_environment() -> Environment:
    """Return the environment of the template, which escapes text and takes undefined names for
    mistakes.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.finalize = replace_characters
    environment.filters["signed"] = format_signed
    environment.filters["marked"] = mark_differences
    return environment


def replace_characters(value: object) -> object:
    """Return a text with U+FFFD for each character that HTML must not have; markup stays."""
    return _NOT_IN_HTML.sub("\ufffd", value) if type(value) is str else value


def format_signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign, and a true minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def count_warnings(
    sentences: Sequence[ScoredSentence],
) -> list[tuple[str, int, ScoredSentence]]:
    """Return the meaning of each warning, how many translations have it, and the worst one; the
    most frequent warning first.
    """
    rows = []
    for name, meaning in WARNINGS.items():
        warned = [sentence for sentence in sentences if name in sentence.warnings]
        if warned:
            rows.append((meaning, len(warned), min(warned, key=attrgetter("score"))))
    return sorted(rows, key=lambda row: -row[1])


def describe_versions(setup: Setup) -> str:
    """Return the versions of this package, of Python and of the packages that translate and
    score.
    """
    versions = {"vanilla-transformer": setup.version, "Python": platform.python_version()}
    versions |= {name: version(name) for name in ("torch", "transformers", "sacrebleu")}
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def hash_files(files: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the label, the name and the SHA-256 of each file that was read."""
    return [(label, Path(path).name, hash_file(Path(path))) for label, path in files.items()]


def list_models(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the files of weights and their SHA-256, or names on the Hub and their commits."""
    models = []
    for name in names:
        folder = Path(name)
        if not folder.is_dir():
            commit = getattr(load_config(name), "_commit_hash", None)
            models.append((name, commit or "unknown commit"))
            continue
        for path in sorted(folder.iterdir()):
            if path.suffix in (".safetensors", ".bin"):
                models.append((f"{folder.resolve().name}/{path.name}", hash_file(path)))
    return models


def score_sentences(evaluation: Evaluation, limits: WarningLimits) -> list[ScoredSentence]:
    """Return all sentences that have a reference. Without sources, they have no warnings."""
    sides = evaluation.hypotheses, evaluation.references
    scores = sentence_chrf(*sides, *evaluation.further_references)
    sources = evaluation.sources or [""] * len(scores)
    others: Sequence[str | None] = evaluation.baseline or [None] * len(scores)
    before = scores
    if evaluation.baseline is not None:
        before = sentence_chrf(evaluation.baseline, sides[1], *evaluation.further_references)
    sentences = []
    rows = zip(sources, *sides, others, scores, before, strict=True)
    for source, translation, reference, other, score, old in rows:
        if not reference:
            continue
        warnings = find_warnings(source, translation, limits) if evaluation.sources else []
        sentences.append(
            ScoredSentence(source, translation, reference, other, score, score - old, warnings)
        )
    return sentences


def describe_scale(bleu: Estimate) -> dict[str, Any] | None:
    """Return the bands of BLEU and the place of a score among them, or None if the score does not
    count words.
    """
    if _WORD_TOKENS not in bleu.signature:
        return None
    band = max(start for start in _BANDS if bleu.score >= start)
    bands = []
    for start, end in pairwise([*_BANDS, 100]):
        bands.append((start, end, _BANDS[start], start == band))
    return {
        "bands": bands,
        "meaning": _BANDS[band],
        "score": bleu.score,
        "low": bleu.low,
        "high": bleu.high,
    }


def compare(report: Report, sentences: Sequence[ScoredSentence]) -> dict[str, Any]:
    """Return which system is better by each score and by all, and the sentences that changed
    most.
    """
    # 1 if the system is better than its baseline, -1 if it is worse, 0 if that is not significant
    signs = {}
    for name, comparison in report.comparisons.items():
        is_higher = comparison.system.score > comparison.baseline.score
        is_better = is_higher != (name in LOWER_IS_BETTER)
        signs[name] = 0 if comparison.p_value >= SIGNIFICANT else 1 if is_better else -1
    verdicts = []
    for sign, verdict in _VERDICTS.items():
        names = [METRIC_LABELS[name] for name in signs if signs[name] == sign]
        if len(names) == len(signs):
            verdicts.append(verdict)
        elif names:
            verdicts.append(f"{verdict} by {' and '.join(names)}")
    rows = []
    for name, comparison in report.comparisons.items():
        difference = comparison.system.score - comparison.baseline.score
        percent = f"{100 * comparison.p_value:.2g}"
        verdict = _VERDICTS[signs[name]]
        rows.append((METRIC_LABELS[name], comparison, difference, percent, verdict))
    different = {sentence.source + sentence.reference: sentence for sentence in sentences}
    changed = sorted(different.values(), key=lambda sentence: sentence.change)
    best = [sentence for sentence in changed[::-1][:_SHOWN_CHANGES] if sentence.change > 0]
    worst = [sentence for sentence in changed[:_SHOWN_CHANGES] if sentence.change < 0]
    return {
        "tone": _TONES.get((min(signs.values()), max(signs.values())), ""),
        "verdict": "; ".join(verdicts),
        "rows": rows,
        "counts": Counter((sentence.change > 0) - (sentence.change < 0) for sentence in sentences),
        "groups": {"Improved most": best, "Became worse": worst},
    }


def describe_lengths(sentences: Sequence[ScoredSentence]) -> dict[str, Any]:
    """Return the words of all translations divided by the references' words, and the mean score by
    length.
    """
    words = sum(len(split_words(sentence.translation)) for sentence in sentences)
    expected_words = sum(len(split_words(sentence.reference)) for sentence in sentences)
    ratio = words / max(1, expected_words)
    meaning = "about as long as the references"
    if ratio < 1 - _USUAL_LENGTH:
        meaning = "shorter: parts may be missing"
    elif ratio > 1 + _USUAL_LENGTH:
        meaning = "longer: parts may be invented or repeated"
    bars = []
    for first, last in _LENGTHS:
        scores = []
        for sentence in sentences:
            if first <= max(1, sentence.words) <= (last or sentence.words):
                scores.append(sentence.score)
        if scores:
            name = f"{first}–{last}" if last else f"{first} or more"
            mean = statistics.fmean(scores)
            bars.append(Bar(name, len(scores), mean, mean))
    return {"ratio": ratio, "meaning": meaning, "bars": bars}


def describe_distribution(sentences: Sequence[ScoredSentence]) -> list[Bar]:
    """Return how many sentences have a score in each range, best first."""
    last = 100 // _BIN - 1
    counts = Counter(min(int(sentence.score // _BIN), last) for sentence in sentences)
    most = max(counts.values())
    bars = []
    for number in range(last, -1, -1):
        name = f"{_BIN * number}–{_BIN * (number + 1)}"
        count = counts[number]
        bars.append(Bar(name, count, count, 100 * count / most))
    return bars


def choose_examples(sentences: Sequence[ScoredSentence]) -> dict[str, list[ScoredSentence]]:
    """Return the best, typical and worst sentences, each once.

    Of equally good ones, the longest are shown.
    """
    different = {(sentence.source, sentence.translation): sentence for sentence in sentences}
    ranked = sorted(
        different.values(), key=lambda sentence: (-sentence.score, -len(sentence.reference))
    )
    count = min(_SHOWN, -(-len(ranked) // 3))
    best, others = ranked[:count], ranked[count:]
    middle = others[:-count]
    start = (len(middle) - count) // 2
    return {
        "Best": best,
        "Typical": middle[max(0, start) :][:count],
        "Worst": others[-count:][::-1],
    }


def describe_speed(
    sentences: Sequence[ScoredSentence], seconds: float | None
) -> dict[str, Any] | None:
    """Return how fast the model translated, or None if translations were read."""
    if seconds is None:
        return None
    words = sum(sentence.words for sentence in sentences)
    minutes = 10_000 * seconds / len(sentences) / 60
    duration = f"{minutes:.1f} minutes"
    if minutes >= 100:
        duration = f"{minutes / 60:.1f} hours"
    elif minutes >= 10:
        duration = f"{minutes:.0f} minutes"
    return {
        "seconds": seconds,
        "sentences": len(sentences) / seconds,
        "words": words / seconds,
        "duration": duration,
    }


def mark_differences(text: str, reference: str) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a text, and whether the reference lacks their words there."""
    spans = split_units(text)
    words = [text[start:end].casefold() for start, end in spans]
    others = [reference[start:end].casefold() for start, end in split_units(reference)]
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    position = 0
    for kind, first, last, _, _ in matcher.get_opcodes():
        if kind in ("replace", "delete"):
            start = spans[first][0]
            end = spans[last - 1][1]
            yield text[position:start], False
            yield text[start:end], True
            position = end
    yield text[position:], False
