"""Entries that the package's pipeline adds to a translation on request: scores, tokens, alignments and warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vanilla_transformer.pipeline_vanilla_transformer import Segment
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .alignments import Link
from .confidence import Calibration, measure_features
from .engine.hypothesis import Hypothesis
from .token_texts import token_entries


@dataclass(frozen=True)
class ReturnOptions:
    """Options of a request that add entries to its answers."""

    return_scores: bool = False
    return_tokens: bool = False
    return_alignments: bool = False
    return_confidence: bool = False
    return_warnings: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is not bool:
                raise ValueError(f"`{name}` must be True or False, got {value!r}.")

    def requested(self) -> str | None:
        """Return the name of the first option that is on, or None."""
        return next((name for name, value in vars(self).items() if value), None)

    def need_alignments(self, config: Any) -> bool:
        """Return whether alignments are computed, to be returned or for the confidence.

        Raises:
            ValueError: The confidence is requested of a model that was not calibrated.
        """
        calibration = Calibration.from_config(config) if self.return_confidence else None
        return self.return_alignments or (calibration is not None and calibration.needs_alignments)


class Translation(NamedTuple):
    """
    A translation of one segment, as text.

    Attributes:
        score, log_probability: See [`Hypothesis`].
        token_log_probabilities: The log-probability of each token, EOS included.
        tokens: `{"text": …, "log_probability": …}` for each token.
        alignment: Links between the segment and its translation.
    """

    text: str
    score: float
    log_probability: float
    token_log_probabilities: list[float]
    tokens: list[dict[str, Any]]
    alignment: list[Link]


def build_translation(
    text: str, hypothesis: Hypothesis, alignment: list[Link], tokenizer: Any, options: ReturnOptions
) -> Translation:
    """Return a hypothesis as text, with its tokens if they are requested."""
    scored = hypothesis.tokens, hypothesis.token_log_probabilities
    tokens = token_entries(tokenizer, *scored) if options.return_tokens else []
    scores = hypothesis.score, hypothesis.log_probability, hypothesis.token_log_probabilities
    return Translation(text, *scores, tokens, alignment)


def join_entries(
    segments: Sequence[Segment], translations: Sequence[Translation], text: str, options: ReturnOptions, config: Any
) -> dict[str, Any]:
    """Return the requested entries of a text, given the translation of each of its segments.

    Alignments count the characters of the text from its first segment, and of the joined translation.
    The log-probability is the sum over the segments, and the score is their mean: so n-best lists stay in order. A
    blank text has no segments, and its empty translation is certain: both are 0. The confidence and the warnings are
    about the text as a whole.

    Args:
        text: The joined translation.
        config: The configuration of the model.
    """
    entries: dict[str, Any] = {}
    source = "".join(segment.text + segment.separator for segment in segments)
    if options.return_scores:
        entries["score"] = sum(each.score for each in translations) / max(1, len(translations))
        entries["log_probability"] = float(sum(each.log_probability for each in translations))
    if options.return_confidence:
        values = [value for each in translations for value in each.token_log_probabilities]
        features = measure_features(source, text, values, _join_links(segments, translations))
        entries["confidence"] = Calibration.from_config(config).predict(features)
    if options.return_warnings:
        entries["warnings"] = find_warnings(source, text, WarningLimits.from_config(config))
    if options.return_tokens:
        entries["tokens"] = [token for each in translations for token in each.tokens]
    if options.return_alignments:
        entries["alignment"] = _join_links(segments, translations)
    return entries


def shift_sources(answer: Any, characters: int) -> None:
    """Move the sources of an answer's links, or of the links of n-best answers, by so many characters."""
    for each in answer if isinstance(answer, list) else [answer]:
        each["alignment"] = [link.shift(characters, 0) for link in each["alignment"]]


def _join_links(segments: Sequence[Segment], translations: Sequence[Translation]) -> list[Link]:
    links, source, target = list[Link](), 0, 0
    for segment, translation in zip(segments, translations, strict=True):
        links += [link.shift(source, target) for link in translation.alignment]
        source += len(segment.text + segment.separator)
        target += len(translation.text + (segment.separator or " "))
    return links


def rename_text(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of the pipeline with its translation as `text`, as the command line and HTTP show it."""
    entries = dict(answer)
    return {"text": entries.pop("translation_text"), **entries}


__all__ = ["ReturnOptions", "Translation", "build_translation", "join_entries", "rename_text", "shift_sources"]
