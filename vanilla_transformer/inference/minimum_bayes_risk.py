"""
Minimum Bayes risk decoding: the candidate that is most similar to the other ones (Eikema and Aziz, 2020).

The utility is sacrebleu's chrF or BLEU of a candidate, with another one as its reference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .request_options import split_options
from .search.option_error import OptionError
from .translations import ReturnOptions, Translation

UTILITIES = ("chrf", "bleu")
_SAMPLES = 32
_SAMPLING = {"do_sample": True, "num_beams": 1, "top_k": 0, "epsilon_cutoff": 0.02}  # as Freitag et al. (2023)
_DIGITS = 9  # beyond which two expected utilities are a tie


@dataclass(frozen=True)
class RiskOptions:
    """
    Options of a request for minimum Bayes risk decoding.

    Args:
        mbr: The utility, `"chrf"` or `"bleu"`, or None to decode without it.
        mbr_samples: The number of candidates, if they are samples; by default 32.

    Raises:
        ValueError: A value is out of range.
    """

    mbr: str | None = None
    mbr_samples: int | None = None

    def __post_init__(self) -> None:
        if self.mbr is None and self.mbr_samples is not None:
            raise OptionError(f"`mbr_samples` needs `mbr`, one of {_names()}.")
        if self.mbr is not None and self.mbr not in UTILITIES:
            raise OptionError(f"`mbr` must be one of {_names()}, got {self.mbr!r}.")
        samples = self.mbr_samples
        if samples is not None and (type(samples) is not int or samples < 2):
            raise OptionError(f"`mbr_samples` must be an integer of 2 or more, got {samples!r}.")

    def candidate_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a request for candidates: the n-best list with `num_beams`, or samples.

        Raises:
            ValueError: The options ask for one candidate, or for several translations.
        """
        if (options.get("num_return_sequences") or 1) > 1:
            raise OptionError("With `mbr` there is one translation. Leave out `num_return_sequences`.")
        beams = options.get("num_beams")
        if beams is None or options.get("do_sample"):
            count = _SAMPLES if self.mbr_samples is None else self.mbr_samples
            given = {name: value for name, value in options.items() if value is not None}
            return {**_SAMPLING, **given, "num_return_sequences": count}
        if self.mbr_samples is not None:
            raise OptionError("Give `num_beams` (candidates are the n-best list) or `mbr_samples`, not both.")
        if beams < 2:
            raise OptionError(f"`mbr` needs 2 or more candidates, got `num_beams={beams}`.")
        return {**options, "num_return_sequences": beams, "return_scores": True}


def decode_by_risk(risk: RiskOptions, options: Mapping[str, Any], decode: Callable) -> list[list[Any]]:
    """Return the translation of each sentence with the highest expected utility among candidates.

    Args:
        decode: Returns the candidates of each sentence, given the options of a request.
    """
    wanted = risk.candidate_options(options)
    chosen = [choose(candidates, str(risk.mbr), not wanted.get("do_sample")) for candidates in decode(wanted)]
    if not split_options(ReturnOptions, options)[0].requested():
        chosen = [each.text if isinstance(each, Translation) else each for each in chosen]
    return [[each] for each in chosen]


def choose(candidates: Sequence[Any], utility: str, by_probability: bool) -> Any:
    """
    Return the candidate with the highest expected utility; of a tie, the first one.

    Args:
        candidates: Texts, or a [`Translation`] each; the score of the chosen one becomes its expected utility.
        by_probability: Weigh candidates by their probabilities, for an n-best list. Otherwise each one counts equally,
            for samples, which are repeated as often as they were drawn.
    """
    texts = [each.text if isinstance(each, Translation) else each for each in candidates]
    weights = [each.log_probability for each in candidates] if by_probability else [0.0] * len(texts)
    expected = expected_utilities(texts, weights, utility)
    best = candidates[int(np.argmax(expected.round(_DIGITS)))]
    return best._replace(score=float(expected.max())) if isinstance(best, Translation) else best


def expected_utilities(texts: Sequence[str], log_weights: Sequence[float], utility: str) -> np.ndarray:
    """Return the expected utility of each text, if the right one is drawn from the texts by their weights."""
    from .sentence_utilities import pairwise_utilities  # which imports sacrebleu

    different = list(dict.fromkeys(texts))
    places = {text: place for place, text in enumerate(different)}
    each = np.exp(np.array(log_weights) - max(log_weights))
    weights = np.zeros(len(different))
    np.add.at(weights, [places[text] for text in texts], each / each.sum())
    expected = pairwise_utilities(different, utility) @ weights
    return expected[[places[text] for text in texts]]


def _names() -> str:
    return ", ".join(map(repr, UTILITIES))


__all__ = ["RiskOptions", "choose", "decode_by_risk", "expected_utilities"]
