"""Translations that tests know in advance, and documents that they translate.

Words are in upper case, in order or reversed, with their alignment. A translation may lose what must
survive.
"""

import re

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.projection import proportional_links
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch
from vanilla_transformer.decoding.sentences import ignore
from vanilla_transformer.decoding.translations import Link, Translation
from vanilla_transformer.extensions import documents
from vanilla_transformer.text.languages import NO_DIRECTION
from vanilla_transformer.text.protection import find_protected

# Translations without messages, by their formats
NO_MESSAGES = {"json": "{}", "strings": "", "properties": "\n", "fluent": ""}
NO_MESSAGES |= {"resx": "<root />", "xml": "<resources>\n</resources>"}
NO_MESSAGES |= {"csv": "key,note,text\n", "tsv": "key\tnote\ttext\n"}
NO_MESSAGES |= {"stringsdict": '<plist version="1.0">\n<dict/>\n</plist>\n'}
COLUMNS = {"csv": "text", "tsv": "text"}  # of tables that are translated
_WORD, _UNIT = re.compile(r"\S+"), re.compile(r"\w+|[^\w\s]")


def by_word(change):
    """Return a model that changes text in place, with the alignment of its words and marks."""
    return lambda texts: [(change(text), _in_place(_UNIT, text)) for text in texts]


def _in_place(pattern, text):
    """Return links between parts of a text and the same parts of its translation."""
    return [(*match.span(), *match.span(), 1.0) for match in pattern.finditer(text)]


def shout(texts):
    """Return each text in upper case with an alignment of its words."""
    return [(text.upper(), _in_place(_WORD, text)) for text in texts]


def copy(texts):
    """Return each text as it is, without an alignment."""
    return [(text, None) for text in texts]


def invent(texts):
    """Return each text in upper case with half a placeholder, as a small model writes it."""
    return [(f"% {text.upper()}", None) for text in texts]


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
        rows = zip(texts, phrases, translate(texts), strict=True)
        for text, of_text, (translation, links) in rows:
            for phrase in of_text:
                translation = translation.replace(phrase.upper(), phrase)
            answers.append((translation, links) if len(text) % 2 else None)
        return answers

    return constrain


def to_rows(texts, answers):
    """Return translations, given their texts and alignments; None where there is none."""
    rows = []
    for text, answer in zip(texts, answers, strict=True):
        if answer is None:
            rows.append(None)
            continue
        translation, alignment = answer
        links = [Link(*link) for link in alignment or ()]
        links = links or proportional_links(len(text), translation)
        rows.append([Translation(translation, alignment=links)])
    return rows


def by_texts(translate, masks=(), constrain=None, protect=True):
    """Return a function that translates sentences, as documents need it.

    Args:
        translate: Returns the translation of each text and its alignment, or None.
        masks: Words that it copies.
        constrain: Returns the same for texts whose translations must contain phrases, or None.
    """

    def decode(sentences, options, report):
        texts = [sentence.text for sentence in sentences]
        return to_rows(texts, translate(texts))

    def constrain_sentences(sentences):
        texts = [sentence.text for sentence in sentences]
        phrases = []
        for sentence in sentences:
            kept_phrases = []
            for start, end in sentence.kept:
                kept_phrases.append(sentence.text[start:end])
            phrases.append(kept_phrases)
        return to_rows(texts, constrain(texts, phrases))

    options = TranslationOptions(protect=protect)
    if not masks and constrain is None:
        return lambda sentences: [row[0] for row in decode(sentences, options, ignore)]
    again = constrain and constrain_sentences
    search = ProtectedSearch(decode, options, masks, constrain=again)
    return lambda sentences: [row[0] for row in search(sentences, ignore)]


def block_translator(translate, splitter, masks=(), constrain=None, protect=True):
    """Return the translator of blocks by a function of texts, see [`by_texts`]."""
    kept = by_texts(translate, masks, constrain, protect)
    return documents.BlockTranslator(kept, splitter, protect)


def translate_document(text, format, translate, splitter, direction=None, columns="", **options):
    """Return a document that a function of texts has translated, see [`by_texts`]."""
    further = {} if direction is None else {"direction": direction}
    further["columns"] = columns
    translate = by_texts(translate, **options)
    return documents.translate_document(text, format, translate, splitter, **further)


def update_document(text, format, earlier, translation, direction=NO_DIRECTION, columns=""):
    """Return a document that did not change with what its translation has, without a model."""
    previous = earlier, translation
    document = documents.parse_document(text, format, direction, previous=previous, columns=columns)
    assert document.blocks == []
    return document.render([])
