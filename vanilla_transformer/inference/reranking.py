"""
Rerank n-best lists by a reverse model and by length.

    score(y) = log p(y | x) + λ_reverse · log p(x | y) + λ_length · |y|

The log-linear score of Li and Jurafsky (2016, "Mutual Information and Diverse Decoding Improve Neural Machine
Translation", section 3) without a language model: a noisy channel beside the direct model. |y| counts tokens,
EOS included.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

from .forced_decoding import encode_as_trained, score_tokens
from .language_options import LanguageOptions
from .pretrained import load_seq2seq, load_tokenizer
from .request_options import split_options
from .search.option_error import OptionError
from .translations import ReturnOptions, Translation

_MOST_TOKENS = 4096  # in a batch of forced decoding
REVERSE_WEIGHT, LENGTH_WEIGHT = 0.5, 0.5


@dataclass(frozen=True)
class RerankOptions:
    """
    The weights of a request that is reranked.

    Args:
        rerank_reverse_weight: λ_reverse, by default 0.5.
        rerank_length_weight: λ_length, by default 0.5.

    Raises:
        ValueError: A weight is not a finite number, or the reverse one is negative.
    """

    rerank_reverse_weight: float | None = None
    rerank_length_weight: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_number = type(value) in (int, float) and np.isfinite(value)
            if value is not None and not (is_number and (value >= 0 or name == "rerank_length_weight")):
                kind = "a finite number" if name == "rerank_length_weight" else "a number of 0 or more"
                raise OptionError(f"`{name}` must be {kind}, got {value!r}.")

    def check_unused(self) -> None:
        """Check that a request that is not reranked has no weights.

        Raises:
            ValueError: It has one.
        """
        for name, value in vars(self).items():
            if value is not None:
                raise OptionError(f"`{name}` needs `rerank_reverse`, a model of the other direction.")

    @property
    def weights(self) -> tuple[float, float]:
        """λ_reverse and λ_length."""
        reverse, length = self.rerank_reverse_weight, self.rerank_length_weight
        return (REVERSE_WEIGHT if reverse is None else reverse), (LENGTH_WEIGHT if length is None else length)

    def candidate_options(self, options: Mapping[str, Any], beams: int, count: int) -> dict[str, Any]:
        """Return the options of a request for the n-best list, with the tokens of each candidate.

        Args:
            beams, count: The beam size of the request, and the number of translations.

        Raises:
            ValueError: The request is for samples, or has too few beams.
        """
        if options.get("do_sample"):
            raise OptionError("Reranking is for the n-best list of beam search. Leave out `do_sample`.")
        if beams < 2 or count > beams:
            rule = f"at least as many candidates as translations, and 2 or more; got {count} of `num_beams={beams}`"
            raise OptionError(f"Reranking needs {rule}.")
        return {**options, "num_return_sequences": beams, "return_scores": True, "return_tokens": True}


class Candidate(NamedTuple):
    """A translation to rerank: its text, its log-probability, and its number of tokens, EOS included."""

    text: str
    log_probability: float
    length: int


class Features(NamedTuple):
    """The values that determine the score of a candidate."""

    log_probability: float
    reverse_log_probability: float
    length: int


class Reranker:
    """
    Compute the scores of candidates with a model of the reverse direction.

    Args:
        model: A translation model from the target language to the source language.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, name: str | Path, device: Any) -> "Reranker":
        """Load the model of a folder or of a name on the Hub.

        Raises:
            OSError, ValueError: As [`load_seq2seq`] raises them.
        """
        return cls(load_seq2seq(name, "translates").to(device), load_tokenizer(name))

    def features(
        self,
        sentences: Sequence[str],
        candidates: Sequence[Sequence[Candidate]],
        direction: Direction = NO_DIRECTION,
    ) -> list[list[Features]]:
        """Return the features of the candidates of each sentence.

        Args:
            direction: From the language of the candidates to the one of the sentences, if the model has several.
        """
        pairs = [(each.text, sentence) for sentence, some in zip(sentences, candidates, strict=True) for each in some]
        different = list(dict.fromkeys(pairs))  # several candidates may have the same text
        texts, sources = [text for text, _ in different], [source for _, source in different]
        encoded = encode_as_trained(self.model, self.tokenizer, texts, sources, direction)
        rows = score_tokens(self.model, *encoded, _MOST_TOKENS)
        reverse = dict(zip(different, map(sum, rows), strict=True))
        return [
            [Features(each.log_probability, float(reverse[each.text, sentence]), each.length) for each in some]
            for sentence, some in zip(sentences, candidates, strict=True)
        ]

    def rerank(
        self,
        sentences: Sequence[str],
        candidates: Sequence[Sequence[Translation]],
        weights: tuple[float, float],
        direction: Direction = NO_DIRECTION,
    ) -> list[list[Translation]]:
        """Return the candidates of each sentence, which have their tokens, with their new scores, best first.

        Candidates with equal scores stay in the given order.
        """
        ranked = []
        plain = [
            [Candidate(each.text, each.log_probability, len(each.tokens)) for each in some] for some in candidates
        ]
        for some, features in zip(candidates, self.features(sentences, plain, direction), strict=True):
            scores = np.array([combine(each, weights) for each in features])
            order = np.argsort(-scores, kind="stable")
            ranked.append([some[place]._replace(score=float(scores[place])) for place in order])
        return ranked


def decode_reranked(
    reranker: Reranker,
    rerank: RerankOptions,
    sentences: Sequence[str],
    options: Mapping[str, Any],
    beams: int,
    count: int,
    decode: Callable,
) -> list[list[Any]]:
    """Return the best translations of each sentence, by their new scores.

    Args:
        beams, count: See [`RerankOptions.candidate_options`].
        decode: Returns the candidates of each sentence, given the options of a request.
    """
    found = decode(rerank.candidate_options(options, beams, count))
    languages, _ = split_options(LanguageOptions, options)
    direction = NO_DIRECTION if find_languages(reranker.tokenizer) is None else languages.reversed
    best = [ranked[:count] for ranked in reranker.rerank(sentences, found, rerank.weights, direction)]
    is_detailed = split_options(ReturnOptions, options)[0].requested()
    return best if is_detailed else [[each.text for each in ranked] for ranked in best]


def combine(features: Features, weights: tuple[float, float]) -> float:
    """Return the score of a candidate, given λ_reverse and λ_length."""
    reverse, length = weights
    return features.log_probability + reverse * features.reverse_log_probability + length * features.length


__all__ = ["Candidate", "Features", "RerankOptions", "Reranker", "combine", "decode_reranked"]
