"""Ids of the headings of Markdown, which systems make of their texts and links name."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from itertools import product
from urllib.parse import unquote

from vanilla_transformer.text.scripts import normalize

# Where a link leads in its document, and ids that authors write
_FRAGMENT = re.compile(
    r"(?:\]\([ \t]*<?|\]:\s*<?|\bhref\s*=\s*[\"']?)#([^\s\"'<>(){}]+)", re.IGNORECASE
)
_WRITTEN = re.compile(
    r"\{:?[^{}\n#]*+#([^\s{}]+)|\b(?:id|name)\s*=\s*[\"']?([^\s\"'<>]+)|^[ \t]*\(([^()\s]+)\)=",
    re.IGNORECASE | re.MULTILINE,
)
_ATTRIBUTES = re.compile(r"\{[^{}]*+\}\s*\Z")  # of a heading


def find_anchors(text: str, headings: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """
    Yield what stands before and after the translation of each heading, so that the links of its
    document lead there: nothing if no link does, or if the document has that id.

    An id has the letters and digits of its heading. Systems differ in all else: some leave out
    accents, and digits at the beginning. Equal headings are numbered.

    Args:
        headings: The text of each, and its source.
    """
    written = {"".join(groups) for groups in _WRITTEN.findall(text)}
    fragments = defaultdict[str, list[str]](list)
    for fragment in sorted({*_FRAGMENT.findall(unquote(text))} - written):
        fragments[_read_letters(fragment)].append(fragment)
    forms, counts = list[list[str]](), Counter[str]()
    for content, source in headings:
        letters, of_source = _read_letters(content), _read_letters(_ATTRIBUTES.sub("", source))
        number = str(counts[letters] or "")
        counts[letters] += 1
        forms.append([letters + number, of_source + number, letters.lstrip("0123456789") + number])
    ids: list[list[str]] = [[] for _ in headings]
    for kind, (index, names) in product(range(3), enumerate(forms)):
        ids[index] += fragments.pop(names[kind], [])
    attributes, has_ids = list[str](), "{{<" in text
    for _, source in headings:
        match = _ATTRIBUTES.search(source)
        attributes.append(match[0] if match else "")
        has_ids |= "#" in attributes[-1]
    for attribute, names in zip(attributes, ids, strict=True):
        if names and has_ids and not attribute:
            yield "", f" {{#{names[0]}}}"
            continue
        tags = ""
        for name in names:
            tags += f'<a id="{escape(name)}"></a>'
        yield tags, ""


def _read_letters(text: str) -> str:
    """Return the letters and digits of a text without their case and accents."""
    letters = unicodedata.normalize("NFKD", normalize("NFC", text))
    return "".join(filter(str.isalnum, letters)).casefold()
