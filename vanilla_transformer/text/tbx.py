"""TBX (ISO 30042), the exchange format of termbases, in version 2 (`termEntry`) and version 3 (`conceptEntry`)."""

from collections.abc import Iterator
from typing import Any

from .xml_tree import LANG, is_of_language, local_name, parse_xml

_ENTRIES, _LANGUAGES = ("termEntry", "conceptEntry"), ("langSet", "langSec")
_SECTIONS = ("tig", "ntig", "termSec")
# Values of administrativeStatus of terms that are not to be used.
_OUTDATED = ("deprecatedTerm-admn-sts", "supersededTerm-admn-sts")


def parse_tbx(
    content: bytes, path: str, source_language: str | None, target_language: str | None
) -> Iterator[tuple[str, str, int]]:
    """
    Yield the terms of the source language, the translation of each, and its line.

    A concept's translation is its first term in the target language that is not deprecated or superseded. Concepts
    without a term in one of the languages are left out. A code such as `de` includes `de-AT`.

    Args:
        path: The name of the file, for messages.

    Raises:
        ValueError: The file is malformed or has no concepts, or a language is not given or not in the file.
        OSError: lxml is not installed.
    """
    try:
        root = parse_xml(content).getroot()
    except ValueError as error:
        raise ValueError(f"{path} must be TBX. {error}") from None
    concepts = [element for element in root.iter() if local_name(element) in _ENTRIES]
    if not concepts:
        found = f"<{local_name(root)}>"
        raise ValueError(f"{path} must be TBX with `termEntry` or `conceptEntry` elements, got none in {found}.")
    sections = [[child for child in concept if local_name(child) in _LANGUAGES] for concept in concepts]
    known = sorted({_language(section, path) for concept in sections for section in concept})
    for side, language in (("source", source_language), ("target", target_language)):
        if language is None or not any(is_of_language(code, language) for code in known):
            wanted = f"name the {side} language of {path}, which has {', '.join(known)}"
            raise ValueError(f"`{side}_language` must {wanted}; got {language}.")
    for concept in sections:
        sources = [term for section in _of(concept, str(source_language), path) for term in _terms(section, path)]
        targets = [term for section in _of(concept, str(target_language), path) for term in _terms(section, path)]
        current = [text for text, _, is_current in targets if is_current]
        if current:
            yield from ((text, current[0], line) for text, line, _ in sources)


def _of(sections: list[Any], language: str, path: str) -> list[Any]:
    return [section for section in sections if is_of_language(_language(section, path), language)]


def _terms(language: Any, path: str) -> Iterator[tuple[str, int, bool]]:
    """Yield each term of a language section, its line, and whether it is to be used."""
    for section in (child for child in language if local_name(child) in _SECTIONS):
        term = next((each for each in section.iter() if local_name(each) == "term"), None)
        text = "" if term is None else " ".join("".join(term.itertext()).split())
        if term is None or not text:
            rule = f"Each <{local_name(section)}> of {path} must have a <term> with text"
            raise ValueError(f"{rule}, got none in line {section.sourceline}.")
        is_outdated = any((each.text or "").strip() in _OUTDATED for each in section.iter())
        yield text, term.sourceline, not is_outdated


def _language(section: Any, path: str) -> str:
    code = section.get(LANG)
    if not code:
        rule = f"Each <{local_name(section)}> of {path} must have the attribute xml:lang"
        raise ValueError(f"{rule}, got none in line {section.sourceline}.")
    return code


__all__ = ["parse_tbx"]
