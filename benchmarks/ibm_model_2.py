"""Word alignments by IBM model 2 of nltk, fitted in both directions."""

from collections.abc import Sequence

from nltk.translate import AlignedSent, IBMModel2

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import WordPair

Links = list[set[WordPair]]


def align_both_ways(fitted: Sequence[SentencePair], iterations: int, count: int) -> tuple[Links, Links]:
    """Fit both directions to `fitted` and return the links of its first `count` pairs in each of them."""
    sources, targets = ([words(pair[side]) for pair in fitted] for side in (0, 1))
    forward = _links(sources, targets, iterations, count)
    backward = _links(targets, sources, iterations, count)
    return forward, [{(source, target) for target, source in links} for links in backward]


def words(text: str) -> list[str]:
    """Return the white-space words in lower case, without the punctuation at them."""
    return [word.strip(".,?!").lower() or word for word in text.split()]


def _links(sources: list[list[str]], targets: list[list[str]], iterations: int, count: int) -> Links:
    """Return `(source word, target word)` links: each target word has at most one source word."""
    # nltk generates the first sentence of an AlignedSent from the second one.
    corpus = [AlignedSent(target, source) for source, target in zip(sources, targets, strict=True)]
    IBMModel2(corpus, iterations)
    return [{(source, target) for target, source in pair.alignment if source is not None} for pair in corpus[:count]]


def intersect(forward: Links, backward: Links) -> Links:
    """Keep the links of both directions."""
    return [ours & theirs for ours, theirs in zip(forward, backward, strict=True)]
