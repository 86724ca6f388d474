"""
Minimum Bayes risk decoding: the candidate that is most similar to the other ones (Eikema and Aziz,
2020).

The utility is sacrebleu's chrF or BLEU of a candidate, with another one as its reference.
"""

from collections.abc import Sequence

import numpy as np

from vanilla_transformer.decoding.options import MBR_SAMPLES, OptionError, TranslationOptions
from vanilla_transformer.decoding.sentences import Decode, Report, Sentence
from vanilla_transformer.decoding.translations import Translation

# As Freitag et al. (2023).
_SAMPLING = {"do_sample": True, "num_beams": 1, "top_k": 0, "epsilon_cutoff": 0.02}
_DIGITS = 9  # beyond which two expected utilities are a tie


def risk_candidates(options: TranslationOptions) -> TranslationOptions:
    """Return the options of a search for candidates: the n-best list with `num_beams`, or
    samples.
    """
    num_returned = options.num_return_sequences or 1
    if options.is_given("num_return_sequences") and num_returned > 1:
        raise OptionError("With `mbr` there is one translation. Leave out `num_return_sequences`.")
    beams = options.num_beams if options.is_given("num_beams") else None
    if beams is None or _samples(options):
        count = MBR_SAMPLES if options.mbr_samples is None else options.mbr_samples
        missing = {}
        for name, value in _SAMPLING.items():
            if not options.is_given(name):
                missing[name] = value
        return options.override(**missing, num_return_sequences=count)
    if options.mbr_samples is not None:
        raise OptionError(
            "Give `num_beams` (candidates are the n-best list) or `mbr_samples`, not both."
        )
    if beams < 2:
        raise OptionError(f"`mbr` needs 2 or more candidates, got `num_beams={beams}`.")
    return options.override(num_return_sequences=beams, return_scores=True)


def choose_by_risk(decode: Decode) -> Decode:
    """Return a decode of the candidate of each sentence with the highest expected utility, see
    [`risk_candidates`].
    """

    def decode_by_risk(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        options = risk_candidates(options)
        utility, by_probability = str(options.mbr), not _samples(options)
        rows = decode(sentences, options, report)
        return [[choose(candidates, utility, by_probability)] for candidates in rows]

    return decode_by_risk


def _samples(options: TranslationOptions) -> bool:
    return options.do_sample and options.is_given("do_sample")


def choose(candidates: Sequence[Translation], utility: str, by_probability: bool) -> Translation:
    """
    Return the candidate with the highest expected utility; of a tie, the first one.

    Args:
        candidates: The score of the chosen one becomes its expected utility.
        by_probability: Weigh candidates by their probabilities, for an n-best list. Otherwise each
            one counts equally, for samples, which are repeated as often as they were drawn.
    """
    texts = [candidate.text for candidate in candidates]
    weights = [0.0] * len(texts)
    if by_probability:
        weights = [candidate.log_probability for candidate in candidates]
    expected = expected_utilities(texts, weights, utility)
    best = candidates[int(np.argmax(expected.round(_DIGITS)))]
    return best._replace(score=float(expected.max()))


def expected_utilities(
    texts: Sequence[str], log_weights: Sequence[float], utility: str
) -> np.ndarray:
    """Return the expected utility of each text, if the right one is drawn from the texts by their
    weights.
    """
    from .sentence_utilities import PAIRWISE  # which imports sacrebleu

    different = list(dict.fromkeys(texts))
    index_of = {text: index for index, text in enumerate(different)}
    indices = [index_of[text] for text in texts]
    relative = np.exp(np.array(log_weights) - max(log_weights))
    weights = np.zeros(len(different))
    np.add.at(weights, indices, relative / relative.sum())
    expected = PAIRWISE[utility](different) @ weights
    return expected[indices]
