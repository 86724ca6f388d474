"""
Inline terms: the translation that is wanted for a term, written into the source text beside the
term.

    The <term> dog <trans> Köter </term> sleeps.

This is the annotation of Dinu et al. (2019), "Training Neural Machine Translation to Apply
Terminology Constraints", with special tokens instead of source factors. In training some terms are
hidden, as in Ailem et al. (2021), "Encouraging Neural Machine Translation to Satisfy Terminology
Constraints": `<term> <trans> Köter </term>`. A model that could always read the term would not need
the annotation.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .units import Span

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TERM_TOKENS = ("<term>", "<trans>", "</term>")


class Match(NamedTuple):
    """Where a term begins and ends in a text, and the translation wanted for it."""

    start: int
    end: int
    target: str


class AnnotatedText(NamedTuple):
    """
    A text with inline terms.

    Attributes:
        text: Text with the annotations.
        plain: Without them.
        places: Place of each annotation in `text`, and of its term in `plain`.
    """

    text: str
    plain: str
    places: Sequence[tuple[Span, Span]]

    def original(self, span: Span) -> Span:
        """Return characters of `plain`, given some of `text`; a part of an annotation stands for
        its whole term.
        """
        start, end = self._find(span[0], 0), self._find(span[1], 1)
        return start, max(start, end)

    def _find(self, position: int, side: int) -> int:
        """Return where a range begins (side 0) or ends (side 1) that does so at a position of
        `text`.
        """
        offset = 0
        for annotation, term in self.places:
            if position < annotation[0] + side:
                break
            if position < annotation[1] + side:
                return term[side]
            offset = term[1] - annotation[1]
        return position + offset


def annotate(text: str, matches: Sequence[Match], hidden: Collection[int] = ()) -> AnnotatedText:
    """
    Write the wanted translations of terms into a text.

    Args:
        matches: The terms, in order and without overlaps.
        hidden: The numbers of the terms that are left out, so that only their translation is in the
            text.
    """
    begin, between, end = TERM_TOKENS
    pieces, places, position, length = list[str](), list[tuple[Span, Span]](), 0, 0
    for number, match in enumerate(matches):
        words = [
            begin,
            *([] if number in hidden else [text[match.start : match.end]]),
            between,
            match.target,
            end,
        ]
        pieces += [text[position : match.start], " ".join(words)]
        first = length + len(pieces[-2])
        length = first + len(pieces[-1])
        places.append(((first, length), (match.start, match.end)))
        position = match.end
    return AnnotatedText("".join([*pieces, text[position:]]), text, places)


def knows_inline_terms(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Return whether a vocabulary has the tokens of inline terms, so that its model was trained
    with them.
    """
    return set(TERM_TOKENS) <= getattr(tokenizer, "get_added_vocab", dict)().keys()
