"""
Alignments of words by IBM model 1 (Brown et al., 1993), fitted to the text itself.

The model knows no order of words. It is a weak aligner, and good enough to tell attention that aligns from attention
that does not.
"""

from collections import defaultdict
from collections.abc import Sequence

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import WordPair

_ITERATIONS = 5
_NONE = ""  # the word of the source that words without a counterpart come from


def align_lexically(pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the words that model 1 links in both directions, for each pair."""
    texts = [(pair.source.lower().split(), pair.target.lower().split()) for pair in pairs]
    forward = _best_sources([(source, target) for source, target in texts])
    backward = _best_sources([(target, source) for source, target in texts])
    return [
        {(source, target) for target, source in ours} & {(source, target) for source, target in theirs}
        for ours, theirs in zip(forward, backward, strict=True)
    ]


def _best_sources(texts: Sequence[tuple[list[str], list[str]]]) -> list[set[WordPair]]:
    """Return `(target, source)` for each target word of each text that comes from a source word."""
    probabilities = defaultdict[tuple[str, str], float](lambda: 1.0)
    for _ in range(_ITERATIONS):
        probabilities = _reestimate(texts, probabilities)
    found = list[set[WordPair]]()
    for source, target in texts:
        best = [max([_NONE, *source], key=lambda word: probabilities[word, each]) for each in target]
        found.append({(place, source.index(word)) for place, word in enumerate(best) if word != _NONE})
    return found


def _reestimate(
    texts: Sequence[tuple[list[str], list[str]]], probabilities: dict[tuple[str, str], float]
) -> defaultdict[tuple[str, str], float]:
    """Return the probability of each target word given a source word, after one step of EM."""
    counts, totals = defaultdict[tuple[str, str], float](float), defaultdict[str, float](float)
    for source, target in texts:
        candidates = [_NONE, *source]
        for each in target:
            whole = sum(probabilities[word, each] for word in candidates)
            for word in candidates:
                share = probabilities[word, each] / whole
                counts[word, each] += share
                totals[word] += share
    return defaultdict(float, {pair: count / totals[pair[0]] for pair, count in counts.items()})


__all__ = ["align_lexically"]
