"""The alignment error rate of Och and Ney, "A Systematic Comparison of Various Statistical Alignment Models", 2003."""

from collections.abc import Sequence
from typing import NamedTuple

from vanilla_transformer.data.word_alignments import GoldAlignment, WordPair


class AlignmentScores(NamedTuple):
    """Shares from 0 to 1: with links A, sure links S and possible links P, S included in P.

    error_rate: `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)`
    precision: `|A ∩ P| / |A|`
    recall: `|A ∩ S| / |S|`
    """

    error_rate: float
    precision: float
    recall: float


def score_alignments(found: Sequence[set[WordPair]], gold: Sequence[GoldAlignment]) -> AlignmentScores:
    """Compare the links of all sentences with the gold links. Without any links on either side there is no error.

    Raises:
        ValueError: There are more sentences on one side.
    """
    rows = [*zip(found, gold, strict=True)]
    links = sum(len(ours) for ours, _ in rows)
    sure = sum(len(theirs.sure) for _, theirs in rows)
    found_sure = sum(len(ours & theirs.sure) for ours, theirs in rows)
    found_possible = sum(len(ours & theirs.possible) for ours, theirs in rows)
    error_rate = 1.0 - (found_sure + found_possible) / (links + sure) if links + sure else 0.0
    return AlignmentScores(
        error_rate,
        precision=found_possible / links if links else 1.0,
        recall=found_sure / sure if sure else 1.0,
    )


__all__ = ["AlignmentScores", "score_alignments"]
