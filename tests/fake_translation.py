"""Translations that tests know in advance: words in upper case, in order or reversed, with their
alignment.
"""

import re

from vanilla_transformer.text.protection import find_protected

_WORD, _UNIT = re.compile(r"\S+"), re.compile(r"\w+|[^\w\s]")


def by_word(change):
    """Return a model that changes text in place, with the alignment of its words and marks."""
    return lambda texts: [
        (change(text), [(*match.span(), *match.span(), 1.0) for match in _UNIT.finditer(text)])
        for text in texts
    ]


def shout(texts):
    """Return each text in upper case with an alignment of its words."""
    return [
        (text.upper(), [(*match.span(), *match.span(), 1.0) for match in _WORD.finditer(text)])
        for text in texts
    ]


def copy(texts):
    """Return each text as it is, without an alignment."""
    return [(text, None) for text in texts]


def reverse(texts):
    """Return the words of each text in reverse order and upper case, with their alignment."""
    return [_reverse(text) for text in texts]


def _reverse(text):
    translation, links = "", []
    for match in reversed(list(_WORD.finditer(text))):
        translation += " " if translation else ""
        start = len(translation)
        translation += match[0].upper()
        links.append((*match.span(), start, len(translation), 1.0))
    return translation, links


def without_alignment(translate):
    """Return a function that translates as `translate` does, and returns no alignment."""
    return lambda texts: [(text, None) for text, _ in translate(texts)]


def copy_kept(translate):
    """Return a function that copies placeholders, numbers and so on as a trained model would."""

    def call(texts):
        answers = []
        for text, (translation, links) in zip(texts, translate(texts), strict=True):
            for start, end in find_protected(text):
                translation = translation.replace(text[start:end].upper(), text[start:end])
            answers.append((translation, links))
        return answers

    return call


def contain(translate):
    """Return a function that translates under constraints, or refuses to, as for texts of even
    length.
    """

    def constrain(texts, phrases):
        answers = []
        for text, own, (translation, links) in zip(texts, phrases, translate(texts), strict=True):
            for phrase in own:
                translation = translation.replace(phrase.upper(), phrase)
            answers.append((translation, links) if len(text) % 2 else None)
        return answers

    return constrain
