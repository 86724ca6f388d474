"""Translation units of XML formats, read one by one."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from vanilla_transformer.text.xml_tree import iterate_elements, local_name

from .lines import decompress
from .open_corpora import OpenCorpus

# Elements that hold code of the original document instead of text.
_CODES = {"bpt", "bx", "cp", "ec", "ept", "ex", "it", "ph", "sc", "sub", "ut", "x"}
_LINE_BREAK = re.compile(r"\s*[\n\r\t]\s*")


def iterate_units(corpus: OpenCorpus, names: Sequence[str], form: str) -> Iterator[Any]:
    """
    Yield the elements of some names from the file of a corpus, one by one.

    Args:
        form: The name of the format, for messages.

    Raises:
        ValueError: the file is corrupt or not well-formed XML.
    """
    file = corpus.files[0]
    with decompress(file) as stream:
        try:
            yield from iterate_elements(stream, names)
        except ValueError as error:
            raise ValueError(f"{file.name} must be {form}. {error}") from None


def segment_text(segment: Any, name: str) -> str:
    """
    Return the text of a segment on one line, without the codes in it.

    Raises:
        ValueError: it has an entity, which is not expanded; the message gives the `name` of the file and the line.
    """
    return _LINE_BREAK.sub(" ", "".join(_pieces(segment, name))).strip()


def _pieces(element: Any, name: str) -> Iterator[str]:
    if element.text and local_name(element) not in _CODES:
        yield element.text
    for child in element:
        if local_name(child):
            if local_name(child) not in _CODES:
                yield from _pieces(child, name)
        elif (child.text or "").startswith("&"):
            rule = f"Line {element.sourceline} of {name} must have text instead of the entity {child.text}"
            raise ValueError(f"{rule}, which is not read. Replace it.")
        yield child.tail or ""


def nothing_found_error(corpus: OpenCorpus, form: str, codes: set[str]) -> ValueError:
    """Return the error for a file without a pair in the languages of the corpus."""
    spec = corpus.spec
    found = f"has {', '.join(sorted(codes))}" if codes else "has no translation units"
    return ValueError(
        f"{corpus.files[0].name} must be {form} with pairs in the languages {spec.source_language} and "
        f"{spec.target_language}, but it {found}."
    )
