"""Documents are translated by functions of texts, which may lose what must survive."""

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.projection import proportional_links
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch
from vanilla_transformer.decoding.sentences import ignore
from vanilla_transformer.decoding.translations import Link, Translation
from vanilla_transformer.extensions import documents


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

    def constrain_sentences(sentences, phrases):
        texts = [sentence.text for sentence in sentences]
        return to_rows(texts, constrain(texts, [list(words) for words in phrases]))

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


def translate_document(text, format, translate, splitter, direction=None, **options):
    """Return a document that a function of texts has translated, see [`by_texts`]."""
    further = {} if direction is None else {"direction": direction}
    translate = by_texts(translate, **options)
    return documents.translate_document(text, format, translate, splitter, **further)
