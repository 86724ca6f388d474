"""The text of a distillation: pairs of corpora, sources of a text file, or a file of sources with
their candidates.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, Strict, ValidationError

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import open_file, stream_lines

_EXAMPLE = '{"source": "A dog.", "candidates": [{"text": "Ein Hund.", "score": -0.2}]}'


class Entry(NamedTuple):
    """A source, the number of its corpus, and its reference, or the candidates and maybe scores of
    a file.
    """

    corpus: int
    source: str
    reference: str | None = None
    candidates: list[str] | None = None
    scores: list[float] | None = None


class DistillationText(NamedTuple):
    """A hash of the text, the number of its entries, and a function that yields them."""

    key: str
    total: int
    entries: Callable[[], Iterator[Entry]]


def text_of_file(path: str, has_candidates: bool) -> DistillationText:
    """Return the text of a file, of which all lines are checked. It may be a pipe."""
    read = read_candidates if has_candidates else read_sources
    with open_file(Path(path)) as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()
    return DistillationText(key, sum(1 for _ in read(path)), lambda: read(path))


def read_sources(path: str) -> Iterator[Entry]:
    """Yield the lines of a text file that are not blank."""
    return (Entry(0, line.strip()) for line in stream_lines(path) if line.strip())


class _Candidate(BaseModel, str_strip_whitespace=True):
    text: str
    score: Annotated[FiniteFloat, Strict()] | None = None


def _from_text(candidate: object) -> object:
    return _Candidate(text=candidate) if isinstance(candidate, str) else candidate


class _Line(BaseModel, str_strip_whitespace=True):
    source: str = Field(min_length=1)
    candidates: list[Annotated[_Candidate, BeforeValidator(_from_text)]]
    scores: None = None  # a list beside the texts would be missed


def read_candidates(path: str) -> Iterator[Entry]:
    """Yield the sources of a JSONL file with their candidates, of which all or none in the file
    have a score.
    """
    scored: bool | None = None
    for number, text in enumerate(stream_lines(path, may_be_markup=True), start=1):
        if not text.strip():
            continue
        try:
            line = _Line.model_validate_json(text)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            location = ".".join(map(str, fault["loc"]))
            reason = f"{location}: {fault['msg']}" if location else fault["msg"]
            reason = reason.replace("at line 1 column", "at column")
            raise UserError(
                f"Line {number} of {path} must be JSON such as {_EXAMPLE}, but: {reason}."
            ) from error
        texts = [candidate.text for candidate in line.candidates]
        scores = []
        for candidate in line.candidates:
            if candidate.score is not None:
                scores.append(candidate.score)
        if line.candidates:
            scored = bool(scores) if scored is None else scored
            if len(scores) != scored * len(texts):
                raise UserError(
                    "All candidates of a file must have a `score`, or none, but line "
                    f"{number} of {path} has {len(scores)} of {len(texts)}."
                )
        yield Entry(0, line.source, None, texts, scores or None)
