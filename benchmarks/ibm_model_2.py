"""Word alignments by IBM model 2 of nltk, fitted in both directions and symmetrized."""

from collections.abc import Iterable, Sequence

from nltk.translate import AlignedSent, IBMModel2

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import WordPair

_NEIGHBORS = [(here, there) for here in (-1, 0, 1) for there in (-1, 0, 1) if (here, there) != (0, 0)]
Links = list[set[WordPair]]


def align_both_ways(fitted: Sequence[SentencePair], iterations: int, count: int) -> tuple[Links, Links]:
    """Fit both directions to `fitted` and return the links of its first `count` pairs in each of them."""
    sources, targets = ([_tokens(pair[side]) for pair in fitted] for side in (0, 1))
    forward = _links(sources, targets, iterations, count)
    backward = _links(targets, sources, iterations, count)
    return forward, [{(source, target) for target, source in links} for links in backward]


def _tokens(text: str) -> list[str]:
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


def grow_diagonally(forward: Links, backward: Links) -> Links:
    """Extend the intersection by neighboring links of one direction (grow-diag of Koehn et al., 2003).

    nltk's `grow_diag_final_and` returns the union, since it looks words up in a dictionary of two other keys.
    """
    return [_grow(ours & theirs, ours | theirs) for ours, theirs in zip(forward, backward, strict=True)]


def _grow(links: set[WordPair], union: set[WordPair]) -> set[WordPair]:
    grown = set(links)
    while True:
        added = {link for link in _neighbors(grown) if link in union - grown and not _both_linked(link, grown)}
        if not added:
            return grown
        grown.add(min(added))


def _neighbors(links: Iterable[WordPair]) -> set[WordPair]:
    return {(source + here, target + there) for source, target in links for here, there in _NEIGHBORS}


def _both_linked(link: WordPair, links: set[WordPair]) -> bool:
    return any(link[0] == source for source, _ in links) and any(link[1] == target for _, target in links)
