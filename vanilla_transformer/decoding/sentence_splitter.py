"""Sentence splitters: functions that return the sentences of a text, in order."""

import logging
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.loading.model_names import reporting_panics
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.languages import base_language
from vanilla_transformer.user_input.user_modules import find_object

SentenceSplitter = Callable[[str], Sequence[str]]
_WORD = re.compile(r"\S+")
# Spaces of several bytes, within which sentencex cuts, and panics
_LONG_SPACES = re.compile(r"[^\S\x00-\x7F]")
_LONGEST = 10_000  # characters; for some marks, sentencex takes quadratic time
logger = logging.getLogger(__name__)
# Languages whose ordinals end in a period, by the days of dates in CLDR, and the orthographies of
# the last three
_WITH_ORDINALS = re.compile(
    "bs|cs|da|de|dsb|et|fi|fo|frr|gsw|hr|hsb|hu|is|ksh|lb|lv|nb|nds|nn|prg|sk|sl|smn|sr|wae|eu|pl|tr"
)
# The period of an ordinal or of the number of an item, as in any language, and as where ordinals
# end in one
_NUMBER = r"\.(?<=(?<![\w.,:/'’-])[1-9]\d?\.)(?=\s"
_ITEM_NUMBERS = regex.compile(rf"{_NUMBER}+\p{{Ll}}|(?<=(?:\A|[.!?…]\s+)\W*\d+\.)\s)")
_ORDINALS = regex.compile(rf"{_NUMBER})")
# The period of an abbreviation or of the number of a year, before a word in lower case, a hyphen or
# a slash, and of the sign of a number. A single quotation mark may be an apostrophe, as in 'n Hond.
_WITHIN_SENTENCE = regex.compile(
    r"""\.(?=\.{0,2}+["”»)\]\p{M}\p{Cf}]*+\s++["“„«(\[]*+\p{Ll})"""
    r"|\.(?<=\d\.)(?=[-–—/º])|\.(?<=\b[Nn][°º]\.)(?=\s*+\d)"
)
# Commas of Burmese, and its mark of the genitive, which end sentences for sentencex
_NO_ENDS = str.maketrans("၊၏", ",,")
# Khmer and Tibetan marks, and the Greek question mark
_NEW_TO_SENTENCEX = re.compile("[។៕།༎༏༐༑༔\u037e]")


class AbbreviationSplitter:
    """
    Split a text where a sentence ends, and not after an abbreviation, an ordinal or the number of
    an item. A sentence after a period begins in lower case only if the whole text has no capitals.

    This is sentencex with its lists of words.

        >>> AbbreviationSplitter("en")("Dr. Smith slept. He woke up.")
        ['Dr. Smith slept.', 'He woke up.']

    Args:
        language: The code of the language of the text, such as `en`, `pt-BR` or `deu_Latn`. A
            language that sentencex does not know has the abbreviations of a similar one, or of
            English. Without a language, they are of English, and any number up to 99 with a period
            may be an ordinal.
    """

    def __init__(self, language: str | None = None):
        with requires_extra("documents", "Sentence splitting"):
            from sentencex import segment

            self.language = base_language(language or "en")
            self._segment = segment
        has_ordinals = language is None or _WITH_ORDINALS.fullmatch(self.language)
        self._numbers = _ORDINALS if has_ordinals else _ITEM_NUMBERS

    def __call__(self, text: str) -> list[str]:
        sentences = list[str]()
        start = 0
        while len(text) - start > _LONGEST:
            part = text[start : start + _LONGEST]
            of_part = self._split(part)
            if len(of_part) > 1:
                end = part.rindex(of_part.pop())  # the last one may continue
            else:  # a sentence that is as long is cut at white space
                end = max(0, part.rfind(" ")) or len(part)
                of_part = [part[:end].strip()]
            sentences += filter(None, of_part)
            start += end
        return sentences + self._split(text[start:])

    def _split(self, text: str) -> list[str]:
        try:
            with reporting_panics("sentencex failed"):
                plain = _LONG_SPACES.sub(" ", text).translate(_NO_ENDS)
                sentences = self._segment(self.language, plain)
                if len(sentences) > 1:
                    ends = self._numbers.sub(",", plain)
                    if not plain.islower():
                        ends = _WITHIN_SENTENCE.sub(",", ends)
                    sentences = self._segment(self.language, ends)
        except UserError as error:
            message = "%.80r is split after each mark that ends a sentence, because %s"
            logger.warning(message, text, error)
            return split_simply(text)
        ends = accumulate(map(len, sentences), initial=0)
        parts = list[str]()
        for start, end in pairwise(ends):
            sentence = text[start:end].strip()
            if _NEW_TO_SENTENCEX.search(sentence):
                parts += split_simply(sentence)
            elif sentence:
                parts.append(sentence)
        return parts


def split_simply(text: str) -> list[str]:
    """Split a text after each mark that ends a sentence in some script, as the pipeline of a
    checkpoint does.
    """
    from vanilla_transformer.pipeline_vanilla_transformer import Segment, split_sentences

    return [segment.text for segment in split_sentences(Segment(text.strip(), ""))]


def find_splitter(name: str, language: str | None = None) -> SentenceSplitter:
    """Return the splitter that a flag names: `abbreviations`, `simple`, or `module:function` for
    your own.
    """
    if name == "abbreviations":
        return AbbreviationSplitter(language)
    if name == "simple":
        return split_simply
    known = "'abbreviations', 'simple' or the place of a function, such as 'my_module:split'"
    return find_object(name, f"`sentence_splitter` must be {known}")


def sentence_ranges(text: str, splitter: SentenceSplitter) -> list[tuple[int, int]]:
    """Return where the sentences of a text begin and end. All between them is white space."""
    ranges, end = list[tuple[int, int]](), 0
    sentences = splitter(text)
    is_list = isinstance(sentences, list | tuple)
    if not is_list or not all(isinstance(part, str) for part in sentences):
        requirement = "`sentence_splitter` must return a list of strings"
        raise UserError(f"{requirement}, got {sentences!r:.80}.")
    for sentence in sentences:
        start = text.find(sentence.strip(), end)
        if start < 0 or text[end:start].strip():
            raise UserError(_WRONG.format(sentence))
        end = start + len(sentence.strip())
        if end > start:
            ranges.append((start, end))
    if text[end:].strip():
        raise UserError(_WRONG.format(_WORD.search(text, end)[0]))  # type: ignore[index]
    return ranges


_WRONG = (
    "`sentence_splitter` must return all sentences of the text in order and unchanged; "
    "the mistake is near {!r}."
)
