"""The API of LibreTranslate, for its clients: `POST /translate` and `/detect` with the entry `q`,
`GET /languages`.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple

import regex
from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import SHORTEST_IDENTIFIED, Direction

from .language_detection import (
    Detected,
    DetectLanguages,
    choose_language,
    closest_languages,
    language_name,
)
from .limits import Limits, Refusal

_LONGEST_NAME = 100  # characters
_TOKEN_BYTES = 24


class TranslatedFile(NamedTuple):
    """A file that waits to be downloaded."""

    name: str
    content: bytes
    client: str


class TranslatedFiles:
    """Keep files for `file_seconds`.

    Beyond `max_file_bytes`, the oldest ones of the client with the most bytes are deleted, so that
    a client with many files takes room from itself.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._files: dict[str, TranslatedFile] = {}

    def add(self, name: str, content: bytes, client: str) -> str:
        """Add a file, and return the name by which it is downloaded: a token that cannot be
        guessed, and its own.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._files[token] = TranslatedFile(name, content, client)
        sizes: Counter[str] = Counter()
        for file in self._files.values():
            sizes[file.client] += len(file.content)
        while sizes.total() > self._limits.max_file_bytes:
            ((largest, _),) = sizes.most_common(1)
            tokens = (token for token, file in self._files.items() if file.client == largest)
            oldest = next(tokens)
            sizes[largest] -= len(self._files.pop(oldest).content)
        loop = asyncio.get_running_loop()
        loop.call_later(self._limits.file_seconds, self._files.pop, token, None)
        return f"{token}.{name}"

    def find(self, name: str) -> TranslatedFile:
        """Return the file of a name that [`add`] returned."""
        token = name.partition(".")[0]
        if token not in self._files:
            reason = (
                f"Files are deleted after {self._limits.file_seconds} seconds, or earlier "
                "beyond --max_file_bytes"
            )
            raise Refusal(404, f"There is no such file. {reason}. Send it again.")
        return self._files[token]


def name_translation(name: str, language: str) -> str:
    """Return the name of the translation of a file, which has only harmless characters."""
    path = PurePosixPath(name.replace("\\", "/"))
    names = (path.stem, language)
    stem, code = (regex.sub(r"[^\w\p{N}-]+", "_", name)[:_LONGEST_NAME] for name in names)
    return f"{stem}.{code}{path.suffix.lower()}"


_STRING: dict[str, Any] = {"type": "string"}
DETECTED = "auto"


class Question(BaseModel):
    """A request in the form of LibreTranslate, in JSON or as a form or a query, whose numbers are
    texts.
    """

    q: Annotated[Any, WithJsonSchema({"anyOf": [_STRING, {"type": "array", "items": _STRING}]})]
    source: Annotated[Any, WithJsonSchema(_STRING)] = Field(
        None, description="Code of a language, or `auto`."
    )
    target: Annotated[Any, WithJsonSchema(_STRING)] = Field(None, description="Code of a language.")
    format: Annotated[Any, WithJsonSchema(_STRING)] = "text"
    columns: Annotated[Any, WithJsonSchema(_STRING)] = Field(
        "", description="Columns of CSV and TSV that are translated: names or numbers."
    )
    existing: Annotated[Any, WithJsonSchema(_STRING)] = Field(
        None, description="A translation of a document of messages: it gets what it lacks."
    )
    previous: Annotated[Any, WithJsonSchema({"type": "array", "items": _STRING})] = Field(
        [], description="An earlier version of a document and its translation, which is kept."
    )
    alternatives: Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 0})] = 0
    api_key: Annotated[Any, WithJsonSchema(_STRING)] = None

    @model_validator(mode="before")
    @classmethod
    def _check_text(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "q" not in content:
            raise UserError("The body must have the entry `q`.")
        return content

    @property
    def asks_for_detection(self) -> bool:
        """Whether the source language is to be detected."""
        return isinstance(self.source, str) and self.source.lower() == DETECTED

    @property
    def texts(self) -> Any:
        """The texts, still unchecked."""
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def num_hypotheses(self) -> int:
        """The number of translations of each text."""
        if not re.fullmatch(r"\d{1,9}", str(self.alternatives or 0)):
            raise Refusal(422, "`alternatives` must be a number of 0 or more, of at most 9 digits.")
        return int(self.alternatives or 0) + 1

    def detect_sources(
        self, detect: DetectLanguages, directions: Sequence[Direction]
    ) -> list[Detected] | None:
        """Return the most probable one of the languages from which there is a translation, for each
        text, or `target` if a text is clearly in that language.

        The answer is None without any. The texts were checked.
        """
        codes = closest_languages(str(self.target), _targets(directions))
        target = next(iter(codes), None)
        sources = []
        for direction in directions:
            if direction.target == target:
                sources.append(str(direction.source))
        if not sources:
            return None
        chosen = []
        for text in self.texts:
            codes = [str(self.target)] if len(text) >= SHORTEST_IDENTIFIED else []
            chosen.append(choose_language(detect(text), sources, codes))
        return chosen

    def find_direction(self, directions: Sequence[Direction]) -> Direction | None:
        """Return the one of `directions` that the request asks for, or None if there are none."""
        source, target = self.source, self.target
        if not isinstance(source, str) or not isinstance(target, str):
            raise Refusal(422, "`source` and `target` must be given: the codes of two languages.")
        if not directions:
            return None
        for code in closest_languages(target, _targets(directions)):
            pairs = [pair for pair in directions if pair.target == code]
            sources = [str(pair.source) for pair in pairs]
            if self.asks_for_detection and len(sources) > 1:
                raise Refusal(
                    422, "`source` must be given: the detection of languages is not installed."
                )
            fitting = sources
            if not self.asks_for_detection:
                fitting = closest_languages(source, sources)
            if fitting:
                return pairs[sources.index(fitting[0])]
        known = ", ".join(map(str, directions[:12]))
        raise Refusal(422, f"`source` and `target` must be a direction of this service: {known}.")

    def answer(
        self, translations: Sequence[Sequence[str]], detected: Sequence[Detected] | None = None
    ) -> dict[str, Any]:
        """Return the answer to the request, given the translations of each text, best first.

        Args:
            detected: The source language of each text, if they were detected.
        """
        columns: dict[str, list[Any]] = {}
        columns["translatedText"] = [row[0] for row in translations]
        if detected is not None:
            columns["detectedLanguage"] = list(detected)
        if self.num_hypotheses > 1:
            columns["alternatives"] = [list(row[1:]) for row in translations]
        is_list = isinstance(self.q, list)
        return {name: values if is_list else values[0] for name, values in columns.items()}


class Correction(Question):
    """A text, and the translation that a person wants for it."""

    s: Annotated[Any, WithJsonSchema(_STRING)]

    @model_validator(mode="after")
    def _check_texts(self) -> "Correction":
        if not (isinstance(self.q, str) and isinstance(self.s, str)):
            raise UserError("`q` and `s` must be two texts.")
        if not (self.q.strip() and self.s.strip()):
            raise UserError("`q` and `s` must not be blank.")
        return self


def _targets(directions: Sequence[Direction]) -> list[str]:
    return list(dict.fromkeys(str(direction.target) for direction in directions))


def name_language(code: str) -> dict[str, str]:
    """Return the code of a language with its name, as LibreTranslate lists them."""
    return {"code": code, "name": language_name(code)}
