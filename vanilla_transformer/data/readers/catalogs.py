"""PO and TS files: the messages of programs with their translations."""

from collections.abc import Iterator

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.catalogs import ACCELERATOR, find_catalog_languages, read_catalog, strings_of
from vanilla_transformer.text.languages import is_of_language
from vanilla_transformer.utils.text_files import decode_text, decompress

from .corpora import OpenCorpus, SentencePair, file_format
from .xml_formats import nothing_found_error


def parse_catalog(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Parse the messages on one line each, without accelerators. One that is not translated or fuzzy has a blank target.

    A file from the target to the source language is reversed. Of plurals, the last forms are a pair.
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    form = file_format(name)[1:]
    with decompress(corpus.files[0]) as stream:
        text = decode_text(stream.read(), name).replace("\r\n", "\n")
    try:
        store = read_catalog(text, form)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    named, found = find_catalog_languages(store, form), False
    order = next(
        (
            order
            for order in (1, -1)
            if all(not code or is_of_language(code, own) for code, own in zip(named, languages[::order], strict=True))
        ),
        None,
    )
    for unit in store.units if order else ():
        if unit.istranslatable() and not unit.isheader():
            sources, targets = strings_of(unit.source), strings_of(unit.target)
            is_done = unit.istranslated() and all(targets)
            found |= is_done
            texts = sources[-1], targets[-1] if is_done else ""
            sides = [" ".join(regex.sub(ACCELERATOR, "", text).split()) for text in texts]
            yield SentencePair(*sides[::order])
    if not found:
        raise nothing_found_error(corpus, form.upper(), {code for code in named if code})
