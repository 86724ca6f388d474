"""
Sentences, and the protocol of whatever translates them. Nothing here needs torch.

Whatever decodes is a [`Decode`]: an engine, or `generate()` of any model. A step takes a decode and
returns one, so reranking, terms and the text that must survive are steps around a search, and a new
one needs no change of the others:

    def add_full_stop(decode: Decode) -> Decode:
        def decode_with_full_stop(sentences, options, report):
            rows = decode(sentences, options, report)
            return [[each._replace(text=each.text + ".") for each in row] for row in rows]

        return decode_with_full_stop
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from vanilla_transformer.text.inline_terms import AnnotatedText
from vanilla_transformer.text.protection import Range
from vanilla_transformer.text.values import replace_values

from .options import TranslationOptions
from .translations import Translation


class Draft(NamedTuple):
    """
    A translation that may be the right one of a sentence, and the preference for its words.

    Attributes:
        source: The similar sentence that it translates, if it is known. Words that are as likely
            for the sentence as for that one are preferred more.
    """

    text: str
    bias: float = 0.0
    source: str = ""

    def with_values(self, text: str) -> "Draft":
        """Return the draft of a text, with its numbers, placeholders and so on instead of the ones
        of the source, if that is known.
        """
        if not self.source:
            return self
        before = replace_values(self.source, self.source, text)
        after = replace_values(self.text, self.source, text)
        return self._replace(text=after, source=before)


class Sentence(NamedTuple):
    """
    A line or sentence that is decoded by itself.

    Attributes:
        separator: The white space before the next sentence of the text.
        tokens: Token ids, which may begin with tokens of languages; a search encodes sentences
            without them.
        seed: Seed of its samples, if the request has a seed.
        phrases: Token ids of the phrases that its translation must contain.
        prefix: Token ids with which its translation must begin; None if the request has no
            prefixes.
        annotation: The text with inline terms, if `tokens` are the ids of that.
        kept: Places of text that must survive, if patterns do not tell; see [`ProtectedSearch`].
        draft: A translation that may be right, which the search checks.
    """

    text: str
    separator: str
    tokens: Sequence[int]
    seed: int | None = None
    phrases: Sequence[Sequence[int]] = ()
    prefix: Sequence[int] | None = None
    annotation: AnnotatedText | None = None
    kept: Sequence[Range] | None = None
    draft: Draft | None = None


Report = Callable[[int], object]  # of the sentences that were translated since the last report


class Decode(Protocol):
    """Return the translations of each sentence, best first, as the options of their request say."""

    def __call__(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]: ...


Step = Callable[[Decode], Decode]


class TranslateSentences(Protocol):
    """Return the translation of each sentence, with the text at [`Sentence.kept`] if it can."""

    def __call__(self, sentences: Sequence[Sentence]) -> Sequence[Translation]: ...


def ignore(done: int) -> None:
    """Report nothing: the sentences that were translated are parts of others."""
