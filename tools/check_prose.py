#!/usr/bin/env python3
"""Report banned turns of phrase and British spellings in code, docs and recipes.

    python tools/check_prose.py                        # everything
    python tools/check_prose.py --paths docs README.md

Python files are read through their comments, strings and identifiers; other files as a whole. Text
between backticks is code and is skipped. A word that is right where it stands goes into `ALLOWED`.
"""

import argparse
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = [
    "vanilla_transformer",
    "tests",
    "tools",
    "benchmarks",
    "scripts",
    "examples",
    "notebooks",
    "recipes",
]
FOLDERS += ["model_card", "docs"]
FILES = [
    "setup.py",
    "pyproject.toml",
    "Makefile",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
FILES += ["CITATION.cff"]
SUFFIXES = {
    ".py",
    ".md",
    ".yaml",
    ".yml",
    ".toml",
    ".cff",
    ".html",
    ".js",
    ".css",
    ".cfg",
    ".txt",
    ".ipynb",
    "",
}
SKIPPED = {"tools/check_prose.py", "tests/tools/test_check_prose.py"}  # both quote the list
SKIPPED_FOLDERS = {"benchmarks/results", "docs/_build", "docs/images"}

# File → phrases that are right there, as found by the check (lower case). An entry that matches
# nothing is an error.
# An argument of transformers
ALLOWED: dict[str, set[str]] = {"tests/m2m_100_models.py": {"legacy_behaviour"}}

_BE = "(?:is|are|was|were|be|been|being)"
_OWN = "(?:one's|its|their|our|your|my|his|her)"
# "a folder of its own", but not "the path of its own folder"
_NO_NOUN = (
    r"(?=\s*(?:[^\w\s]|\Z|"
    r"(?:and|or|in|with|that|which|for|to|is|are|where|when|as|at|by|on|from|if)\b))"
)
TURNS = {
    r"behind": "after; beyond; next to",
    r"anew": "again",
    r"whoever": "anyone who; a user who",
    r"nobody": "no one; or name who",
    r"those of": "repeat the noun",
    r"in (?:the )?place of": "instead of",
    rf"{_BE} (?:told|asked)": "name the action: receives, gets, is given, requested",
    r"(?:go|goes|going|gone|went)[ -]on": "continue; resume",
    r"(?:lie|lies|lay|lying|lain)": "is; is stored; sits",
    r"no less": "at least; as well; also",
    r"(?:as it came out|as they came out)": "unchanged; as generated",
    r"what (?:is|are|was|were|has|have|had)": "use a noun: the missing files, not what is missing",
    r"what an?": "use a noun: a user's steps, not what a user does",
    rf"of {_OWN} own{_NO_NOUN}": "own, custom, separate: its own folder, not a folder of its own",
    r"the one\b[^.;:]{1,60}?\bthe other": "the first … the second",
    r"the other way (?:round|around)": "vice versa; the reverse",
    r"all the same": "still; anyway",
    r"(?:whilst|amongst)": "while; among",
}

_ISE = (
    "apologi|authori|capitali|categori|characteri|crystalli|customi|digiti|discreti|emphasi|equali|finali|generali|harmoni|"
    "hypothesi|initiali|itemi|locali|materiali|maximi|memori|minimi|moderni|neutrali|normali|optimi|organi|paralleli|penali|"
    "prioriti|quanti|randomi|reali|recogni|regulari|seriali|speciali|stabili|standardi|summari|symboli|synchroni|tokeni|"
    "utili|vectori|visuali"
)
_OUR = "behavi|col|fav|flav|harb|hon|hum|lab|neighb|rum|vap"
_DOUBLED = (
    r"cancel|channel|counsel|dial|equal|fuel|initial|label|level|marshal|model|panel|pencil|signal|spiral|total|"
    r"travel|tunnel"
)
SPELLINGS = {
    rf"(?:de|re|un|de-|re-|pre)?(?:{_ISE})s(?:e|ed|es|er|ers|ing|able|ation|ations)": (
        "-ize, -ization"
    ),
    r"(?:analys|paralys|catalys)(?:e|ed|er|ers|ing)": "-yze",
    rf"\w*(?:{_OUR})our(?:s|ed|ing|ite|ites|able|al|hood|less|ful)?": "-or: behavior, color",
    rf"(?:{_DOUBLED})l(?:ed|ing|er|ers|ings)": "one l: canceled, labeled, modeling, traveling",
    r"(?:learnt|spelt|burnt|dreamt|leant|leapt)": "learned, spelled, burned",
    r"(?:licence|defence|offence|pretence)s?": "license, defense",
    r"practis(?:e|ed|es|ing)": "practice",
    r"(?:centre|metre|litre|fibre|calibre|theatre)(?:s|d)?": "-er: center, meter",
    r"(?:grey|greyed|artefacts?|programmes?|catalogues?|analogues?"
    r"|judgements?|acknowledgements?)": (
        "gray, artifact, program, catalog, analog, judgment, acknowledgment"
    ),
    r"(?:towards|per cent|ageing|maths|sceptic\w*|fulfil|skilful|focuss(?:ed|ing))": (
        "toward, percent, aging, math, skeptic, fulfill, skillful, focused"
    ),
}


@dataclass(frozen=True)
class Finding:
    """One banned phrase: where it stands and how to say it."""

    path: str
    line: int
    phrase: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r} → {self.advice}"


def _compile(phrases: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    """Compile phrases so that any whitespace, a line break too, separates their words."""
    return [
        (
            re.compile(
                rf"(?<![\w'-]){phrase.replace(' ', chr(92) + 's+')}(?![\w'])", re.IGNORECASE
            ),
            advice,
        )
        for phrase, advice in phrases.items()
    ]


PATTERNS = _compile(TURNS | SPELLINGS)
_NO_SUBJECT = "As|At|By|For|From|How|If|In|Of|On|So|That|To|When|Where|Which|With"
PATTERNS.append(
    (
        re.compile(rf"^ {{8,}}(?!\w*Error)\w+: (?:{_NO_SUBJECT})\b", re.MULTILINE),
        "begin with a noun or Whether",
    )
)
_QUESTION = re.compile(r"[^.!?\0]*\?")
_NOT_PROSE = re.compile(r"``[^`]*``|`[^`]*`|https?://\S+")


def find(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (offset, phrase, advice) of each banned phrase in `text`, where code is blanked by NUL
    characters.
    """
    for pattern, advice in PATTERNS:
        for match in pattern.finditer(text):
            if match[0].lower().startswith("what") and _QUESTION.match(text, match.end()):
                continue  # "What is a token?" asks; only the noun clause is banned
            yield match.start(), " ".join(match[0].split()), advice


def blank(text: str) -> str:
    """Replace inline code and addresses by NUL characters, keeping the offsets."""
    return _NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), text)


def prose_of_python(source: str) -> str:
    """Return `source` with the code blanked by NUL characters: comments, strings and identifiers
    remain.

    An underscore of an identifier becomes a space, so that `test_goes_on` reads "test goes on".
    Offsets are kept.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    prose = ["\n" if char == "\n" else " " if char.isspace() else "\0" for char in source]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        kept = token.string
        if token.type == tokenize.COMMENT:
            kept = " " + kept[1:]
        elif token.type == tokenize.STRING:
            kept = _text_of_string(kept)
        elif token.type == tokenize.NAME:
            kept = kept.replace("_", " ")
        else:
            kept = ""
        if kept and end - start == len(kept):
            prose[start:end] = kept
    return "".join(prose)


def _text_of_string(literal: str) -> str:
    """Blank the prefix, the quotes, escapes and replacement fields of a string literal, keeping its
    length.
    """
    prefix = re.match(r"[A-Za-z]*", literal)[0]  # type: ignore[index]
    quote = 3 if literal[len(prefix) :][:3] in ('"""', "'''") else 1
    opening = len(prefix) + quote
    text = literal[opening : len(literal) - quote]
    text = re.sub(r"\\.", "  ", text)
    if "f" in prefix.lower():
        text = re.sub(r"\{[^{}]*\}", lambda match: "\0" * len(match[0]), text)
    return " " * opening + text + " " * quote


def check_file(path: Path) -> list[Finding]:
    """Return the banned phrases in one file and in its name."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
    source = path.read_text(encoding="utf-8")
    is_python = path.suffix == ".py"
    text = blank(prose_of_python(source) if is_python else source)
    findings = [
        Finding(name, source.count("\n", 0, offset) + 1, phrase, advice)
        for offset, phrase, advice in find(text)
    ]
    findings += [
        Finding(name, 1, phrase, f"{advice} (the file's name)")
        for _, phrase, advice in find(re.sub(r"[_/.]", " ", name))
    ]
    return sorted(findings, key=lambda finding: finding.line)


def files_of(paths: list[str]) -> list[Path]:
    """Return the text files under `paths`, each once."""
    found = set()
    for path in (ROOT / path for path in paths):
        candidates = path.rglob("*") if path.is_dir() else [path]
        found |= {file for file in candidates if file.is_file() and file.suffix in SUFFIXES}
    return sorted(file for file in found if not _is_skipped(file))


def _is_skipped(file: Path) -> bool:
    name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.as_posix()
    hidden = any(
        part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info")
        for part in Path(name).parts
    )
    return (
        hidden
        or name in SKIPPED
        or any(name.startswith(f"{folder}/") for folder in SKIPPED_FOLDERS)
    )


def main(arguments: list[str] | None = None) -> int:
    """Print the findings and return 1 if there are any."""
    parser = argparse.ArgumentParser(
        description="Report banned turns of phrase and British spellings."
    )
    parser.add_argument(
        "--paths", nargs="+", help="files and folders to check, relative to the repository"
    )
    paths = parser.parse_args(arguments).paths
    missing = [path for path in paths or [] if not (ROOT / path).exists()]
    if missing:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    findings = [
        finding for file in files_of(paths or [*FOLDERS, *FILES]) for finding in check_file(file)
    ]
    allowed = {(name, phrase) for name, phrases in ALLOWED.items() for phrase in phrases}
    wrong = [
        finding for finding in findings if (finding.path, finding.phrase.lower()) not in allowed
    ]
    for finding in wrong:
        print(finding)
    unused = (
        allowed - {(finding.path, finding.phrase.lower()) for finding in findings}
        if not paths
        else set()
    )
    for name, phrase in sorted(unused):
        print(
            f"tools/check_prose.py: ALLOWED has {phrase!r} for {name}, where it is not found; "
            "remove it"
        )
    if wrong or unused:
        print(
            f"{len(wrong)} banned phrases in {len({finding.path for finding in wrong})} files.",
            file=sys.stderr,
        )
    return int(bool(wrong or unused))


if __name__ == "__main__":
    sys.exit(main())
