"""TMX, the exchange format of translation memories, and XLIFF 1.2 and 2, in files of any size."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vanilla_transformer.data.readers.xliff import (
    CODES,
    PLACEHOLDERS,
    UNITS,
    Status,
    find_child,
    read_segments,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import decompress
from vanilla_transformer.text.languages import is_of_language
from vanilla_transformer.text.protection import are_two_words
from vanilla_transformer.text.xml_tree import LANG, iterate_elements, local_name

from .corpora import OpenCorpus, SentencePair

if TYPE_CHECKING:
    from lxml.etree import _Element as Element


def parse_tmx(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Parse the units that have both languages.

    The first variant of a language is taken; `en` includes `en-US`.
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    codes, has_pairs = set[str](), False
    for unit in iterate_units(corpus, ["tu"], "TMX"):
        variants = dict[str, "Element"]()
        for variant in unit:
            if local_name(variant) != "tuv":
                continue
            code = variant.get(LANG) or variant.get("lang")  # up to version 1.2
            if not code:
                requirement = f"Each <tuv> of {name} must have the attribute xml:lang"
                raise UserError(f"{requirement}, got none in line {variant.sourceline}.")
            variants.setdefault(code, variant)
        codes.update(variants)
        sides = []
        for language in languages:
            of_language = [code for code in variants if is_of_language(code, language)]
            sides += of_language[:1]
        if len(sides) == len(languages):
            has_pairs = True
            yield SentencePair(*(_variant_text(variants[side], name) for side in sides))
    if not has_pairs:
        raise nothing_found_error(corpus, "TMX", codes)


def _variant_text(variant: "Element", name: str) -> str:
    segment = find_child(variant, "seg")
    if segment is None:
        number = variant.sourceline
        raise UserError(f"Each <tuv> of {name} must have a <seg>, got none in line {number}.")
    return segment_text(segment, name)


# In the nearest ancestor with one of them
_CODES = ("source-language", "srcLang"), ("target-language", "trgLang")


def parse_xliff(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Parse the segments. One that has no translation, by its state or because it copies the source,
    has a blank target. The header of a PO file, of which po2xliff makes a unit, is none.

    A file from the target to the source language is reversed.
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    codes, has_pairs = set[str](), False
    for unit in iterate_units(corpus, UNITS, "XLIFF"):
        if unit.get("restype") == "x-gettext-domain-header":
            continue
        ancestors, ends = list(unit.iterancestors()), list[str]()
        for attributes in _CODES:
            values = (ancestor.get(attribute) for ancestor in ancestors for attribute in attributes)
            ends.append(next(filter(None, values), ""))
        order = 0  # in which the file has the languages; 0 if it has others
        if all(map(is_of_language, ends, languages)):
            order = 1
        elif all(map(is_of_language, ends[::-1], languages)):
            order = -1
        for segment in read_segments(unit):
            is_translated = segment.status is Status.DONE and segment.target is not None
            if is_translated:
                codes.update(filter(None, ends))
            if order:
                has_pairs |= is_translated
                texts = ["", ""]
                if segment.source is not None:
                    texts[0] = segment_text(segment.source, name)
                if is_translated:
                    texts[1] = segment_text(segment.target, name)
                yield SentencePair(*texts[::order])
    if not has_pairs:
        raise nothing_found_error(corpus, "XLIFF", codes)


_PARTING = re.compile("\0+")  # which XML cannot contain
_LINE_BREAK = re.compile(r"(?<!\s)[^\S\n\r\t]*+[\n\r\t]\s*+")


def iterate_units(corpus: OpenCorpus, names: Sequence[str], form: str) -> Iterator["Element"]:
    """
    Yield the elements of some names from the file of a corpus, one by one.

    Args:
        form: The name of the format, for messages.
    """
    file = corpus.files[0]
    with decompress(file) as stream:
        try:
            yield from iterate_elements(stream, names)
        except UserError as error:
            raise UserError(f"{file.name} must be {form}. {error}") from None


def segment_text(segment: "Element", name: str) -> str:
    """Return the text of a segment on one line, without the codes in it."""

    def part(mark: re.Match) -> str:  # a space between words, which would be one word without it
        before = mark.string[: mark.start()][-1:]
        after = mark.string[mark.end() :][:1]
        return " " if are_two_words(before, after) else ""

    text = _LINE_BREAK.sub(" ", "".join(_pieces(segment, name)))
    return _PARTING.sub(part, text).strip()


def _pieces(element: "Element", name: str) -> Iterator[str]:
    if element.text and local_name(element) not in CODES:
        yield element.text
    for child in element:
        if local_name(child):
            if local_name(child) not in CODES:
                yield from _pieces(child, name)
            elif local_name(child) in PLACEHOLDERS:
                yield "\0"
        elif (child.text or "").startswith("&"):
            requirement = f"Line {element.sourceline} of {name} must have text instead of"
            requirement += f" the entity {child.text}"
            raise UserError(f"{requirement}, which is not read. Replace it.")
        yield child.tail or ""


def nothing_found_error(corpus: OpenCorpus, form: str, codes: set[str]) -> UserError:
    """Return the error for a file without a pair in the languages of the corpus."""
    spec = corpus.spec
    content = f"has {', '.join(sorted(codes))}" if codes else "has no translated units"
    return UserError(
        f"{corpus.files[0].name} must be {form} with pairs in the languages {spec.source_language} "
        f"and {spec.target_language}, but it {content}."
    )
