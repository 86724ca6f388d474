"""
Glossaries: the translations that a user wants for some terms, read from TSV or TBX, and found in
texts.

TBX (ISO 30042) is the exchange format of termbases, here in version 2 (`termEntry`) and version 3
(`conceptEntry`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.inputs import read_input
from vanilla_transformer.files.text_files import decode_text
from vanilla_transformer.text.column_names import find_named_columns
from vanilla_transformer.text.inline_terms import Match
from vanilla_transformer.text.languages import is_of_language
from vanilla_transformer.text.scripts import normalize
from vanilla_transformer.text.units import split_units
from vanilla_transformer.text.xml_tree import LANG, local_name, parse_xml
from vanilla_transformer.user_input.reasons import Reasons

_TBX = (".tbx", ".xml")
# Units of a term. A search looks at so many from each unit of a text on.
_MAX_UNITS = 100


class Term(NamedTuple):
    """A term, its translation, and the place in a file that gives it, such as `line 3`."""

    source: str
    target: str
    place: str = ""


@dataclass(frozen=True)
class TermUse:
    """
    Terms of a source text, and their translations in a translation of it.

    Attributes:
        sentences: Number of sentences that have terms.
        terms: Number of terms in them.
        exact: Number of terms whose translation appears as it is in the glossary, in any case.
        inflected: Number of terms whose translation appears as it is or with other endings.
    """

    sentences: int
    terms: int
    exact: int
    inflected: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        shares = [f"{count / max(1, self.terms):.1%}" for count in (self.exact, self.inflected)]
        return f"{shares[0]} as given, {shares[1]} with any ending"


class _Tree:
    """Terms in a tree of their units.

    Nodes are numbers, so that deep ones need no recursion.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, str], int] = {}  # by parent and unit
        self._terms: dict[int, Term] = {}  # by node

    def __len__(self) -> int:
        return len(self._terms)

    def add(self, units: Iterable[str], term: Term) -> Term:
        """Add a term, unless there is one of the same units. Return the term of these."""
        node = 0
        for unit in units:
            node = self._nodes.setdefault((node, unit), len(self._nodes) + 1)
        return self._terms.setdefault(node, term)

    def find(self, units: Sequence[str], first: int) -> tuple[int, Term | None]:
        """Return the end of the longest term that begins at a unit, and the term; the begin and
        None without one.
        """
        node, end, term = 0, first, None
        for last in range(first, len(units)):
            child = self._nodes.get((node, units[last]))
            if child is None:
                break
            node = child
            if node in self._terms:
                end, term = last + 1, self._terms[node]
        return end, term


class Glossary:
    """
    Terms with the translations that are wanted for them.

    A term is found where its words are, in a row and whole. A term in lower case is found in any
    case, so `dog` finds `Dog` at the start of a sentence; a term with capitals, such as `IT`, is
    found as it is. Of terms that overlap, the first and then the longest is found.

    Args:
        terms: Pairs of a term and its translation, or [`Term`]s.
        casefold (`bool`): Find every term in any case.
        name (`str`): What messages call the glossary.
    """

    def __init__(
        self, terms: Iterable[tuple[str, ...]], casefold: bool = False, name: str = "The glossary"
    ):
        self.terms = list[Term]()
        self._casefold = casefold
        for source, target, *line in terms:
            self.terms.append(Term(" ".join(source.split()), " ".join(target.split()), *line))
        self._exact, self._folded = _Tree(), _Tree()
        self._base: Glossary | None = None
        if not self.terms:
            raise UserError(f"{name} must have a term with its translation, but it is empty.")
        doubles = list[str]()
        with Reasons() as reasons:
            for term in self.terms:
                with reasons.collect():
                    _check_sides(term, name)
                units = _normalize(term.source)
                if casefold or term.source == term.source.lower():
                    known = self._folded.add([unit.casefold() for unit in units], term)
                else:
                    known = self._exact.add(units, term)
                if known.target != term.target:
                    both = f"{known.target!r}{_at(known)} and {term.target!r}{_at(term)}"
                    doubles.append(f"{both} of {term.source!r}")
            if doubles:
                reasons.add(
                    f"{name} must have one translation of each term, got {'; '.join(doubles)}. "
                    "Keep one."
                )

    def __len__(self) -> int:
        return len(self._exact) + len(self._folded)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Glossary):
            return NotImplemented
        pairs = [(term.source, term.target) for term in self.terms]
        others = [(term.source, term.target) for term in other.terms]
        return (pairs, self._casefold, self._base) == (others, other._casefold, other._base)

    def __hash__(self) -> int:
        return hash((len(self.terms), self._casefold))

    def override(self, terms: Iterable[tuple[str, ...]]) -> "Glossary":
        """Return a glossary of other terms and, where it has none of them, of the terms of this
        one.
        """
        result = Glossary(terms)
        result._base = self
        return result

    def find(self, text: str) -> list[Match]:
        """Return the terms of a text, in order and without overlaps."""
        units, matches, first = split_units(text), list[Match](), 0
        exact = _normalize(text)
        folded = [unit.casefold() for unit in exact]
        while first < len(units):
            end, term = self._find_longest(exact, folded, first)
            if term is not None:
                matches.append(Match(units[first][0], units[end - 1][1], term.target))
            first = max(end, first + 1)
        return matches

    def _find_longest(
        self, exact: Sequence[str], folded: Sequence[str], first: int
    ) -> tuple[int, Term | None]:
        rows = [self._exact.find(exact, first), self._folded.find(folded, first)]
        if self._base is not None:
            rows.append(self._base._find_longest(exact, folded, first))
        return max(rows, key=itemgetter(0))  # the first of the longest ones

    def is_ignored(self, source: str, translation: str) -> bool:
        """Return whether a translation lacks a wanted one of its source, whatever its ending."""
        use = self.measure_use([source], [translation])
        return use.inflected < use.terms

    def measure_use(self, sources: Sequence[str], translations: Sequence[str]) -> TermUse:
        """Count the terms in sources whose wanted translations are in the translations of these
        sources.

        A translation that is wanted twice must be there twice.
        """
        sentences = terms = exact = inflected = 0
        for source, translation in zip(sources, translations, strict=True):
            wanted = Counter(match.target.casefold() for match in self.find(source))
            sentences += bool(wanted)
            terms += wanted.total()
            for target, count in wanted.items():
                exact += min(count, count_forms(target, translation, exactly=True))
                inflected += min(count, count_forms(target, translation))
        return TermUse(sentences, terms, exact, inflected)


_LONGEST_ENDING = 3  # letters by which a form of a word is longer than the wanted one
# Letters of a word, none of which a form lacks; of a longer word, it may lack the last one.
_SHORT = 4


def count_forms(wanted: str, text: str, exactly: bool = False) -> int:
    """Return how often a text has a phrase, in any case; unless `exactly`, its words may have other
    endings.
    """
    phrase, words = _folded_units(wanted), _folded_units(text)
    count = 0
    for first in range(len(words) - len(phrase) + 1):
        window = words[first : first + len(phrase)]
        if exactly:
            count += window == phrase
        else:
            count += all(map(_is_form, window, phrase))
    return count


def _folded_units(text: str) -> list[str]:
    text = normalize("NFC", text)
    return [text[start:end].casefold() for start, end in split_units(text)]


def _is_form(word: str, wanted: str) -> bool:
    """Return whether a word may be the wanted one with another ending."""
    start = wanted[:-1] if len(wanted) > _SHORT else wanted
    return word.startswith(start) and len(word) <= len(wanted) + _LONGEST_ENDING


def read_glossary(
    path: str | Path,
    source_language: str | None = None,
    target_language: str | None = None,
    casefold: bool = False,
) -> Glossary:
    """
    Read a glossary from a file.

    Args:
        path: TBX (version 2 or 3) if its name ends in .tbx or .xml. Otherwise each line has a term,
            a tab and its translation; the first line may name the columns, see
            [`find_named_columns`]. UTF-8.
        source_language, target_language: Codes of the languages, such as `en` or `de-AT`, which TBX
            needs.
    """
    content = read_input(path)
    if not content.strip():
        raise UserError(
            f"The glossary {path} must have a term with its translation, but it is empty."
        )
    if Path(path).suffix.lower() in _TBX:
        entries: Iterable[tuple[str, str, int]] = parse_tbx(
            content, str(path), source_language, target_language
        )
    else:
        text = decode_text(content, str(path))
        entries = _parse_tsv(text, str(path), source_language, target_language)
    terms = list[Term]()
    with Reasons() as reasons:
        with reasons.collect():
            for source, target, number in entries:
                terms.append(Term(source, target, f"line {number}"))
        if terms or not reasons:
            with reasons.collect():
                glossary = Glossary(terms, casefold, f"The glossary {path}")
    return glossary


def as_glossary(value: object, *reading: Any) -> Glossary:
    """Return a glossary, given one, the path of its file, a mapping of terms, or pairs.

    Args:
        reading: Further arguments of [`read_glossary`].
    """
    if isinstance(value, Glossary):
        return value
    if isinstance(value, str | Path):
        return read_glossary(value, *reading)
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, list | tuple):
        kinds = "a path, a mapping of terms to translations, or a list of pairs"
        raise UserError(f"`glossary` must be {kinds}, got {type(value).__name__}.")
    with Reasons() as reasons:
        for pair in pairs:
            is_pair = isinstance(pair, list | tuple) and len(pair) == 2
            if not is_pair or not all(isinstance(text, str) for text in pair):
                reasons.add(
                    f"`glossary` must have pairs of a term and its translation, got {pair!r}."
                )
    return Glossary(map(tuple, pairs))


def _parse_tsv(
    text: str, path: str, source_language: str | None, target_language: str | None
) -> Iterator[tuple[str, str, int]]:
    """Yield each term, its translation and its line."""
    source, target = 0, 1
    with Reasons() as reasons:
        for number, line in enumerate(text.split("\n"), start=1):
            cells = [cell.strip() for cell in line.split("\t")]
            if not line.strip():
                continue
            named = None
            if number == 1:
                named = find_named_columns(cells, source_language, target_language)
            if named is not None and len(cells) == 2:
                source, target = named
            elif len(cells) == 2 and all(cells):
                yield cells[source], cells[target], number
            else:
                reasons.add(
                    f"Each line of {path} must have a term, a tab and its translation, got "
                    f"{line.strip()[:60]!r} in line {number}."
                )


def _check_sides(term: Term, name: str) -> None:
    """Refuse a term without words, or with more than a sentence has."""
    for side, text in (("source", term.source), ("target", term.target)):
        count = len(split_units(text))
        if not count:
            raise UserError(f"{name} must have a word in each {side}, got {text!r}{_at(term)}.")
        if count > _MAX_UNITS:
            raise UserError(
                f"{name} must have at most {_MAX_UNITS} words and signs in each {side}, got "
                f"{count}{_at(term)}. A glossary is for terms: split it."
            )


def _normalize(text: str) -> list[str]:
    """Return the units of a text, in one form for letters with accents."""
    return [normalize("NFC", text[start:end]) for start, end in split_units(text)]


def _at(term: Term) -> str:
    return f" in {term.place}" if term.place else ""


_ENTRIES, _LANGUAGES = ("termEntry", "conceptEntry"), ("langSet", "langSec")
_SECTIONS = ("tig", "ntig", "termSec")
# Values of administrativeStatus of terms that are not to be used.
_OUTDATED = ("deprecatedTerm-admn-sts", "supersededTerm-admn-sts")


def parse_tbx(
    content: bytes, path: str, source_language: str | None, target_language: str | None
) -> Iterator[tuple[str, str, int]]:
    """
    Yield the terms of the source language, the translation of each, and its line.

    A concept's translation is its first term in the target language that is not deprecated or
    superseded. Concepts without a term in one of the languages are left out. A code such as `de`
    includes `de-AT`.

    Args:
        path: The name of the file, for messages.
    """
    try:
        root = parse_xml(content).getroot()
    except UserError as error:
        raise UserError(f"{path} must be TBX. {error}") from None
    concepts = [element for element in root.iter() if local_name(element) in _ENTRIES]
    if not concepts:
        raise UserError(
            f"{path} must be TBX with `termEntry` or `conceptEntry` elements, got none in "
            f"<{local_name(root)}>."
        )
    sections = []
    for concept in concepts:
        sections.append([child for child in concept if local_name(child) in _LANGUAGES])
    for section in chain(*sections):
        if not section.get(LANG):
            raise UserError(
                f"Each <{local_name(section)}> of {path} must have the attribute xml:lang, got "
                f"none in line {section.sourceline}."
            )
    known = sorted({section.get(LANG) for section in chain(*sections)})
    for side, language in (("source", source_language), ("target", target_language)):
        if language is None or not any(is_of_language(code, language) for code in known):
            wanted = f"name the {side} language of {path}, which has {', '.join(known)}"
            raise UserError(f"`{side}_language` must {wanted}; got {language}.")
    for concept in sections:
        sources: list[tuple[str, int, bool]] = []
        current: list[str] = []
        for section in concept:
            if is_of_language(section.get(LANG), str(source_language)):
                sources += _terms(section, path)
            if is_of_language(section.get(LANG), str(target_language)):
                for text, _, is_current in _terms(section, path):
                    if is_current:
                        current.append(text)
        if current:
            for text, line, _ in sources:
                yield text, current[0], line


def _terms(language: Any, path: str) -> Iterator[tuple[str, int, bool]]:
    """Yield each term of a language section, its line, and whether it is to be used."""
    for section in language:
        if local_name(section) not in _SECTIONS:
            continue
        term = next((node for node in section.iter() if local_name(node) == "term"), None)
        text = "" if term is None else " ".join("".join(term.itertext()).split())
        if term is None or not text:
            raise UserError(
                f"Each <{local_name(section)}> of {path} must have a <term> with text, got none in "
                f"line {section.sourceline}."
            )
        is_outdated = any((node.text or "").strip() in _OUTDATED for node in section.iter())
        yield text, term.sourceline, not is_outdated
