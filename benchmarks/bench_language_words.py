"""
Measure which text is kept from translation: too much of plain sentences, and enough of software's.

    python -m benchmarks.bench_language_words --plain flores/*.devtest
    python -m benchmarks.bench_language_words --software django/docs/*.rst po/git.pot en.json

`--plain` takes text files, one sentence a line, and prints how many sentences of 1,000 have a
false alarm: a piece that is kept and is no number, address, hashtag, name of a user or emoji.
Entities and tags are read as in a translation.

`--software` takes catalogs and documentation. Others say what must be kept: the fields of a
message by its flag in PO, each in braces in JSON, and words by their role or as literals in
reStructuredText and Markdown.
The words are shown without their markup, as a reader sees them.

Measured on the test set of FLORES: 0.8 of 1,000 in 205 languages. NTREX,
every 25th: 0.3. Subtitles of films: 0. Tatoeba, every 40th: 1.1, all in Lojban. Lectures on
mathematics: 10, all of them formulas. Chat of WMT 2022: 19, nearly all of them masks such as
`#NAME#`. A sample of the files of 15 projects: placeholders 100 %, identifiers 99.1 %, options
99.5 %, names of files 99.1 %, calls 99.0 %. Identifiers of 16 projects for which
no rule was made: 99.1 %.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import regex

from vanilla_transformer.decoding.protection.inline_markup import parse_markup
from vanilla_transformer.text.protection import find_protected, kind_of

NO_ALARMS = ("number", "url", "email", "handle", "emoji")
SHOWN = 40  # examples
_FIELDS = {
    "brace": regex.compile(r"\{[^{}\s]*\}"),
    "percent": regex.compile(
        r"%(?:\d+\$|\(\w+\))?[-+0#']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[jztLq])?[diouxXeEfFgGcs]"
    ),
    "qt": regex.compile(r"%L?[1-9]\d?|%n"),
}
_PO_STRING = regex.compile(r'^"(.*)"$', regex.MULTILINE)
_OPTION = regex.compile(r"(?<![^\s('\"])--[a-z][\w-]*\w")
# A role, such as :func:`print`, and a literal of reStructuredText or Markdown.
_MARKUP = regex.compile(
    r":(?<role>[\w:-]+):`[~!]?(?<text>[^`<>\n]+)`|(?<!`)(?<ticks>``?)(?!`)(?<text>[^`\n]+)(?P=ticks)(?!`)_?"
)
_CALLS = ("func", "meth")
_ESCAPED = regex.compile(r"\\(?=[^\w\s])")


class Expected(NamedTuple):
    """A text, and where the pieces are in it that must be kept, with their kinds."""

    text: str
    pieces: Sequence[tuple[int, int, str]]


def read_messages(text: str) -> Iterator[Expected]:
    """Return the messages of a PO file that have fields or options."""
    for entry in text.split("\n\n"):
        flags, _, rest = entry.partition("\nmsgid ")
        source = regex.split(r"\nmsg(?:str|id_plural)", rest)[0]
        lines = _PO_STRING.findall(source)
        message = json.loads(f'"{"".join(lines)}"', strict=False)
        yield from read_documentation(message)
        kind = "brace" if "brace-format" in flags else "percent"
        pieces = []
        if regex.search(r"^#,.*(?<!no-)\b(?:c|python|python-brace)-format", flags, regex.MULTILINE):
            fields = _FIELDS[kind].finditer(message.replace("%%", "  "))
            pieces += [(*match.span(), "placeholder") for match in fields]
        pieces += [(*match.span(), "option") for match in _OPTION.finditer(message)]
        if pieces:
            yield Expected(message, pieces)


def read_strings(text: str) -> Iterator[Expected]:
    """Return the messages of a JSON file that have fields."""
    strings: list[str] = []
    json.loads(text, object_hook=lambda entries: strings.extend(filter(is_text, entries.values())))
    for message in strings:
        pieces = [(*match.span(), "placeholder") for match in _FIELDS["brace"].finditer(message)]
        if pieces:
            yield Expected(message, pieces)


def is_text(value: object) -> bool:
    """Return whether a value of JSON is a text."""
    return isinstance(value, str)


def read_documentation(text: str) -> Iterator[Expected]:
    """Return the lines of a documentation that have words with a kind."""
    for line in text.splitlines():
        if line[:4] in ("    ", "\t", ".. ", "|"):
            continue
        shown, pieces, end = "", [], 0
        for match in _MARKUP.finditer(line):
            word = match["text"]
            role = (match["role"] or "").rpartition(":")[2]
            if role in _CALLS and not word.endswith(")"):
                word += "()"
            shown += line[end : match.start()]
            kind = classify(word, role)
            if kind:  # without what ends a sentence
                pieces.append((len(shown), len(shown) + len(word.rstrip(".,:")), kind))
            shown += word
            end = match.end()
        if pieces:
            yield Expected(shown + line[end:], pieces)


READERS = {".po": read_messages, ".pot": read_messages, ".json": read_strings}


def classify(word: str, role: str) -> str:
    """Return the kind of a word, or an empty text if it may be one of a language."""
    if regex.search(r"\s", word) or not regex.search(r"[^\W\d]", word):
        return ""
    if regex.fullmatch(r"--?[A-Za-z][\w-]*(?:=.*)?", word):
        return "option"
    if regex.fullmatch(r"[\w.:]+\(.*\)", word):
        return "call"
    if role == "file" or regex.fullmatch(r"[\w/*.-]*\w\.[a-z]{1,4}\d?", word):
        return "file name" if regex.search(r"[./_]", word) else ""
    if regex.fullmatch(r"[\w.]+", word) and regex.search(r"\w[._]\w|__", word):
        return "identifier"
    return "" if regex.fullmatch(r"[\w.'-]+", word) else "other"


def measure_plain(paths: Sequence[Path]) -> None:
    """Print how many sentences have a false alarm."""
    alarms, count, wrong, by_file = Counter[tuple[str, str]](), 0, 0, Counter[str]()
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            count += 1
            marked = parse_markup(line)
            texts = [line] if marked is None else [part.text for part in marked.messages()]
            pieces = []
            for text in texts:
                pieces += [text[start:end] for start, end in find_protected(text)]
            kinds = [(kind_of(piece), piece) for piece in pieces]
            kinds = [(kind, piece) for kind, piece in kinds if kind not in NO_ALARMS]
            alarms.update(kinds)
            wrong += bool(kinds)
            by_file[path.stem] += bool(kinds)
    print(f"{count} sentences, {1000 * wrong / max(1, count):.2f} of 1,000 with a false alarm")
    print(by_file.most_common(12))
    for (kind, piece), number in alarms.most_common(SHOWN):
        print(f"{number:6} {kind:12} {piece}")


def measure_software(paths: Sequence[Path]) -> None:
    """Print the share of what must be kept that is kept, by kind."""
    counts, kept, lost = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for path in paths:
        read = READERS.get(path.suffix, read_documentation)
        for text, pieces in read(path.read_text(encoding="utf-8", errors="replace")):
            spans = find_protected(text)
            for start, end, kind in pieces:
                counts[kind] += 1
                if any(low <= start and end <= high for low, high in spans):
                    kept[kind] += 1
                else:
                    lost[kind, text[start:end]] += 1
    for kind, count in counts.most_common():
        print(f"{kind:12} {count:7} {100 * kept[kind] / count:6.2f} % kept")
    print(
        f"{'all':12} {counts.total():7} {100 * kept.total() / max(1, counts.total()):6.2f} % kept"
    )
    for shown in sorted({kind for kind, _ in lost}):
        examples = [(piece, number) for (kind, piece), number in lost.items() if kind == shown]
        for piece, number in sorted(examples, key=itemgetter(1), reverse=True)[:SHOWN]:
            print(f"{number:6} {shown:12} {piece}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--software", action="store_true")
    parser.add_argument("paths", nargs="+", type=Path)
    arguments = parser.parse_args()
    (measure_plain if arguments.plain else measure_software)(arguments.paths)
