"""TMX, the exchange format of translation memories, in any version and of any size."""

from collections.abc import Iterator, Sequence
from typing import Any

from vanilla_transformer.text.xml_tree import LANG, is_of_language, local_name

from .corpus_spec import SentencePair
from .open_corpora import OpenCorpus
from .xml_units import iterate_units, nothing_found_error, segment_text


def parse_tmx(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """
    Parse the units that have both languages. The first variant of a language is taken; `en` includes `en-US`.

    Raises:
        ValueError: the languages are not given or not in the file, or a unit is malformed (with its line).
    """
    languages, name = corpus.spec.require_languages(), corpus.files[0].name
    codes, found = set[str](), False
    for unit in iterate_units(corpus, ["tu"], "TMX"):
        variants = [(_code(variant, name), variant) for variant in unit if local_name(variant) == "tuv"]
        codes.update(code for code, _ in variants)
        sides = [_first_of(variants, language) for language in languages]
        if None not in sides:
            found = True
            yield SentencePair(*(_text(side, name) for side in sides))
    if not found:
        raise nothing_found_error(corpus, "TMX", codes)


def _code(variant: Any, name: str) -> str:
    code = variant.get(LANG) or variant.get("lang")  # up to version 1.2
    if not code:
        raise ValueError(
            f"Each <tuv> of {name} must have the attribute xml:lang, got none in line {variant.sourceline}."
        )
    return code


def _first_of(variants: Sequence[tuple[str, Any]], language: str) -> Any:
    return next((variant for code, variant in variants if is_of_language(code, language)), None)


def _text(variant: Any, name: str) -> str:
    segment = next((child for child in variant if local_name(child) == "seg"), None)
    if segment is None:
        raise ValueError(f"Each <tuv> of {name} must have a <seg>, got none in line {variant.sourceline}.")
    return segment_text(segment, name)
