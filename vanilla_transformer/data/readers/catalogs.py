"""Messages of programs: PO and TS files with their translations, and two files with the same
keys.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import regex

from vanilla_transformer.data.readers.gettext_catalogs import (
    ACCELERATOR,
    find_catalog_languages,
    pair_strings,
    read_catalog,
    read_messages,
    uses_access_keys,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import FORMAT_OF_ENDING
from vanilla_transformer.files.text_files import decode_document, decompress
from vanilla_transformer.text.languages import is_of_language

from .corpora import OpenCorpus, SentencePair
from .xml_formats import nothing_found_error


def _are_of(codes: Sequence[str | None], languages: Sequence[str]) -> bool:
    """Return whether codes that a file names are of the languages, as far as it names any."""
    pairs = zip(codes, languages, strict=True)
    return all(not code or is_of_language(code, language) for code, language in pairs)


def parse_catalog(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Parse the messages on one line each, without accelerators. One that is not translated or fuzzy
    has a blank target.

    A file from the target to the source language is reversed. Of plurals, the singular and the
    first form are a pair, and so are the plural and the last form. Forms between them have a blank
    source.
    """
    languages, form = corpus.spec.require_languages(), FORMAT_OF_ENDING[corpus.spec.format].name
    (store,) = _read_files(corpus, read_catalog)
    named, has_pairs = find_catalog_languages(store, form), False
    order = 0  # in which the file has the languages; 0 if it has others
    if _are_of(named, languages):
        order = 1
    elif _are_of(named, languages[::-1]):
        order = -1
    has_keys = any(uses_access_keys(str(unit.source)) for unit in store.units)
    for unit in store.units if order else ():
        if unit.istranslatable():
            sources, targets = pair_strings(unit.source, unit.target, has_keys)
            has_pairs |= unit.istranslated()
            if not unit.istranslated():
                targets = [""]
            if len(sources) == 1 or len(targets) == 1:
                sources, targets = sources[-1:], targets[-1:]
            blanks = [""] * (len(targets) - len(sources))
            for texts in zip([*sources[:-1], *blanks, sources[-1]], targets, strict=True):
                yield SentencePair(*[*map(_write_on_line, texts)][::order])
    if not has_pairs:
        raise nothing_found_error(corpus, form.upper(), {code for code in named if code})


def parse_messages(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Pair the messages of two files by their keys, without accelerators.

    A key that a file lacks has a blank side.
    """
    sources, targets = _read_files(corpus, read_messages)
    if sources.keys().isdisjoint(targets):
        raise UserError(
            f"The two files of {corpus.spec.name} must have messages with the same keys, they have "
            "none."
        )
    has_keys = any(map(uses_access_keys, sources.values()))
    for key in sources | targets:
        (source,), (target,) = pair_strings(sources.get(key, ""), targets.get(key, ""), has_keys)
        yield SentencePair(_write_on_line(source), _write_on_line(target))


def _read_files(corpus: OpenCorpus, read: Callable[[str, str], Any]) -> Iterator[Any]:
    form = FORMAT_OF_ENDING[corpus.spec.format].name
    for file in corpus.files:
        with decompress(file) as stream:
            text, _ = decode_document(stream.read(), file.name, form)
        try:
            yield read(text.removeprefix("\ufeff").replace("\r\n", "\n"), form)
        except UserError as error:
            raise UserError(f"{file.name}: {error}") from None


def _write_on_line(text: str) -> str:
    return " ".join(regex.sub(ACCELERATOR, "", text).split())
