"""XLIFF 1.2 and 2: the translated segments of translation tools."""

from collections.abc import Iterator
from typing import Any

from vanilla_transformer.text.xml_tree import is_of_language, local_name

from .corpus_spec import SentencePair
from .open_corpora import OpenCorpus
from .xml_units import iterate_units, nothing_found_error, segment_text

_SOURCE_CODES, _TARGET_CODES = ("source-language", "srcLang"), ("target-language", "trgLang")


def parse_xliff(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Parse the segments that have a target. A file from the target to the source language is reversed.

    Raises:
        ValueError: the languages are not given or not in the file, or it has no such segment.
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    codes, found = set[str](), False
    for unit in iterate_units(corpus, ["trans-unit", "segment"], "XLIFF"):
        sides = [next((child for child in unit if local_name(child) == side), None) for side in ("source", "target")]
        if None in sides:
            continue
        ends = [_inherited(unit, attributes) for attributes in (_SOURCE_CODES, _TARGET_CODES)]
        codes.update(code for code in ends if code)
        order = next((order for order in (1, -1) if _matches(ends[::order], languages)), None)
        if order is not None:
            found = True
            yield SentencePair(*(segment_text(side, name) for side in sides[::order]))
    if not found:
        raise nothing_found_error(corpus, "XLIFF", codes)


def _inherited(unit: Any, attributes: tuple[str, str]) -> str:
    """Return the value of an attribute in the nearest ancestor that has one of its two names."""
    values = (ancestor.get(attribute) for ancestor in unit.iterancestors() for attribute in attributes)
    return next((value for value in values if value), "")


def _matches(codes: list[str], languages: tuple[str, str]) -> bool:
    return all(is_of_language(code, language) for code, language in zip(codes, languages, strict=True))
