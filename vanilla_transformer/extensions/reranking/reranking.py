"""
Rerank n-best lists by a reverse model and by length, or by the quality that a model predicts.

    score(y) = log p(y | x) + λ_reverse · log p(x | y) + λ_length · |y|

The log-linear score of Li and Jurafsky (2016, "Mutual Information and Diverse Decoding Improve
Neural Machine Translation", section 3) without a language model: a noisy channel beside the direct
model. |y| counts tokens, EOS included. A model of quality, see [`comet`], scores by itself.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.decoding.forced_decoding import encode_as_trained, score_tokens
from vanilla_transformer.decoding.options import RERANKING, OptionError, TranslationOptions
from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
from vanilla_transformer.decoding.sentences import Decode, Report, Sentence, Step
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

from .minimum_bayes_risk import choose_by_risk

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

_MOST_TOKENS = 4096  # in a batch of forced decoding
REVERSE_WEIGHT, LENGTH_WEIGHT = 0.5, 0.5  # by default


def steps(pipeline: "TranslationPipeline", options: TranslationOptions) -> Iterator[Step]:
    """Yield the steps that choose among the candidates of each sentence."""
    weights = (name for name in RERANKING if getattr(options, name) is not None)
    weight = next(weights, None)
    if weight is not None and weight not in getattr(pipeline.reranker, "options", ()):
        raise OptionError(f"`{weight}` needs `rerank_reverse`, a model of the other direction.")
    if options.mbr is not None:
        yield choose_by_risk
    if pipeline.reranker is not None:
        yield partial(rerank, reranker=pipeline.reranker)


def rerank(decode: Decode, reranker: "Reranker | QualityReranker") -> Decode:
    """Return a decode of the best of the n-best list of each sentence, with the scores of a
    reranker.

    Candidates stay in their order if their scores are equal.
    """

    def decode_reranked(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        if options.mbr is not None:
            raise OptionError(
                f"Give `mbr` or `{reranker.argument}`, not both: each one chooses from the "
                "candidates."
            )
        if options.do_sample:
            raise OptionError(
                "Reranking is for the n-best list of beam search. Leave out `do_sample`."
            )
        beams, count = options.num_beams or 1, options.count
        if beams < 2 or count > beams:
            raise OptionError(
                "Reranking needs at least as many candidates as translations, and 2 or more; got "
                f"{count} of `num_beams={beams}`."
            )
        search = options.override(
            num_return_sequences=beams, return_scores=True, return_tokens=True
        )
        candidates = decode(sentences, search, report)
        sources = [sentence.text for sentence in sentences]
        scores = iter(reranker.score(sources, candidates, options))
        n_best = []
        for translations in candidates:
            scored = [translation._replace(score=next(scores)) for translation in translations]
            scored.sort(key=lambda translation: translation.score, reverse=True)
            n_best.append(scored[:count])
        return n_best

    return decode_reranked


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

    argument, options = "rerank_reverse", RERANKING

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase):
        self.model, self.tokenizer = model.eval(), tokenizer

    @classmethod
    def load(cls, name: str | Path, device: torch.device) -> "Reranker":
        """Load the model of a folder or of a name on the Hub."""
        return cls(load_seq2seq(name, "translates").to(device), load_tokenizer(name))

    def features(
        self,
        sentences: Sequence[str],
        candidates: Sequence[Sequence[Translation]],
        direction: Direction = NO_DIRECTION,
    ) -> list[list[Features]]:
        """Return the features of the candidates of each sentence, which have their tokens.

        Args:
            direction: Languages of the candidates and of the sentences, if the model has several.
        """
        pairs = []
        for sentence, translations in zip(sentences, candidates, strict=True):
            pairs += [(translation.text, sentence) for translation in translations]
        # Several candidates may have the same text.
        different = list(dict.fromkeys(pairs))
        texts = [text for text, _ in different]
        sources = [source for _, source in different]
        encoded = encode_as_trained(self.model, self.tokenizer, texts, sources, direction)
        rows = score_tokens(self.model, *encoded, _MOST_TOKENS)
        reverse = dict(zip(different, map(sum, rows), strict=True))
        features = []
        for sentence, translations in zip(sentences, candidates, strict=True):
            row = []
            for translation in translations:
                backward = float(reverse[translation.text, sentence])
                length = len(translation.tokens)
                row.append(Features(translation.log_probability, backward, length))
            features.append(row)
        return features

    def score(
        self,
        sentences: Sequence[str],
        candidates: Sequence[Sequence[Translation]],
        options: TranslationOptions,
    ) -> list[float]:
        """Return the score of each candidate of each sentence, one after the other."""
        reverse, length = (getattr(options, name) for name in RERANKING)
        reverse_weight = REVERSE_WEIGHT if reverse is None else reverse
        length_weight = LENGTH_WEIGHT if length is None else length
        direction = NO_DIRECTION
        if find_languages(self.tokenizer) is not None:
            direction = Direction(options.tgt_lang, options.src_lang)
        rows = self.features(sentences, candidates, direction)
        scores = []
        for features in chain.from_iterable(rows):
            scores.append(combine(features, (reverse_weight, length_weight)))
        return scores


class QualityReranker:
    """
    Order candidates by the quality that a model predicts.

    Args:
        model: A model of quality that needs no references.
    """

    argument, options = "rerank_quality", ()

    def __init__(self, model: PreTrainedModel):
        self.model = model

    @classmethod
    def load(cls, name: str | Path, device: torch.device) -> "QualityReranker":
        """Load the model of a folder or of a name on the Hub."""
        from vanilla_transformer.extensions.quality.comet import Comet

        return cls(Comet.load(name, without_references=True).to(device))

    def score(
        self,
        sentences: Sequence[str],
        candidates: Sequence[Sequence[Translation]],
        options: TranslationOptions,
    ) -> list[float]:
        """Return the quality of each candidate of each sentence, one after the other."""
        sources: list[str] = []
        texts: list[str] = []
        for sentence, translations in zip(sentences, candidates, strict=True):
            sources += [sentence] * len(translations)
            texts += [translation.text for translation in translations]
        return self.model.score(sources, texts).tolist()


RERANKERS: dict[str, Any] = {kind.argument: kind for kind in (Reranker, QualityReranker)}


def combine(features: Features, weights: tuple[float, float]) -> float:
    """Return the score of a candidate, given λ_reverse and λ_length."""
    reverse, length = weights
    channel = reverse * features.reverse_log_probability
    return features.log_probability + channel + length * features.length
