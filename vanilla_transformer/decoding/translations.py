"""Translations of sentences: their text, with what the options of a request ask for."""

from collections.abc import Sequence
from typing import NamedTuple

from vanilla_transformer.text.units import split_units

from .token_texts import Token


class Link(NamedTuple):
    """Characters of a source that became characters of its translation, and the attention between
    them, up to 1.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    weight: float

    def shift(self, source: int, target: int) -> "Link":
        """Return the link in texts with so many more characters before."""
        start, end = self.source_start + source, self.source_end + source
        target_start, target_end = self.target_start + target, self.target_end + target
        return Link(start, end, target_start, target_end, self.weight)


class Translation(NamedTuple):
    """
    A translation of one sentence, as text, with what the options of its request ask for.

    Attributes:
        score, log_probability: See [`Hypothesis`]; 0 if `generate()` decoded it.
        tokens: The tokens, EOS included, and one of log-probability 0 for text that is copied.
        is_open: Words of the sentence are in it, because the model adds signs of placeholders to
            their translation.
        similarity: Similarity of the sentence to the one of a memory whose translation this is, if
            it is 1, or follows; 0 without one.
        alignment: Links between the sentence and its translation.
    """

    text: str
    score: float = 0.0
    log_probability: float = 0.0
    tokens: Sequence[Token] = ()
    is_open: bool = False
    similarity: float = 0.0
    alignment: Sequence[Link] = ()


def join_pieces(
    source: str, pieces: Sequence[tuple[int, str, Translation]], space: str = ""
) -> Translation:
    """Return the joined translations of the pieces of a text, with the white space between these,
    without scores.

    Args:
        pieces: The start, the text and the translation of each piece.
        space: Text between pieces that touch.
    """
    target = ""
    end = 0
    tokens = list[Token]()
    links = list[Link]()
    for start, text, translation in pieces:
        target += source[end:start] or (space if end else "")
        shift = len(target)
        tokens += [token._replace(end=token.end + shift) for token in translation.tokens]
        links += [link.shift(start, shift) for link in translation.alignment]
        target += translation.text
        end = start + len(text)
    return Translation(target + source[end:], tokens=tokens, alignment=links)


def copy_sentence(text: str, lost: Sequence[Token] = ()) -> Translation:
    """Return a text as its own translation, instead of one whose tokens are lost and get no
    text.
    """
    tokens = [Token(len(text), 0.0)]
    tokens += [token._replace(end=len(text)) for token in lost]
    links = [Link(*unit, *unit, 1.0) for unit in split_units(text)]
    return Translation(text, tokens=tokens, alignment=links)
