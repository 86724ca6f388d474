"""The API of LibreTranslate, for its clients: `POST /translate` and `/detect` with the entry `q`, `GET /languages`."""

import asyncio
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

import regex
from pydantic import BaseModel, Field, WithJsonSchema, model_validator

from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.resources import DOCUMENT_ENDINGS
from vanilla_transformer.text.languages import Direction, find_code

from .language_detection import Detected, DetectLanguages, choose_language, language_name
from .limits import Limits, Refusal
from .schema import FORM

_LONGEST_NAME = 100  # characters
_TOKEN_BYTES = 24


class TranslatedFile(NamedTuple):
    """A file that waits to be downloaded, the client that sent it, and the time at which it is deleted."""

    name: str
    content: bytes
    client: str
    deadline: float


class TranslatedFiles:
    """Keep files for some time.

    If there is no room for a file, the oldest ones of the client with the most bytes are deleted, so that a client
    with many files takes room from itself.

    Args:
        limits: `file_seconds` and `max_file_bytes`.
        clock: Returns the time in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self._limits, self._clock = limits, clock
        self._files: OrderedDict[str, TranslatedFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, name: str, content: bytes, client: str) -> str:
        """Add a file, and return the name by which it is downloaded: a token that cannot be guessed, and its own."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        deadline = self._clock() + self._limits.file_seconds
        self._files[token] = TranslatedFile(name, content, client, deadline)
        self._make_room()
        asyncio.get_running_loop().call_later(self._limits.file_seconds, self._delete_old)
        return f"{token}.{name}"

    def find(self, name: str) -> TranslatedFile:
        """Return the file of a name that [`add`] returned.

        Raises:
            Refusal: 404; there is none.
        """
        self._delete_old()
        found = self._files.get(name.partition(".")[0])
        if found is None:
            rule = f"Files are deleted after {self._limits.file_seconds} seconds, or earlier if there are many"
            raise Refusal(404, f"There is no such file. {rule}. Send it again.")
        return found

    def _delete_old(self) -> None:
        while self._files and next(iter(self._files.values())).deadline <= self._clock():
            self._files.popitem(last=False)

    def _make_room(self) -> None:
        sizes: Counter[str] = Counter()
        for each in self._files.values():
            sizes[each.client] += len(each.content)
        while sizes.total() > self._limits.max_file_bytes:
            ((client, _),) = sizes.most_common(1)
            oldest = next(token for token, each in self._files.items() if each.client == client)
            sizes[client] -= len(self._files.pop(oldest).content)


def find_format(name: str) -> str:
    """Return the format of a file.

    Raises:
        Refusal: 422; the ending of its name is no known one.
    """
    ending = PurePosixPath(name).suffix.lower()
    if ending not in DOCUMENT_ENDINGS:
        raise Refusal(422, f"The name of the file must end with one of {', '.join(DOCUMENT_ENDINGS)}.")
    return DOCUMENT_ENDINGS[ending]


def name_translation(name: str, language: str) -> str:
    """Return the name of the translation of a file, which has only harmless characters."""
    path = PurePosixPath(name.replace("\\", "/"))
    stem, code = (regex.sub(r"[^\w\p{N}-]+", "_", text)[:_LONGEST_NAME] for text in (path.stem, language))
    return f"{stem}.{code}{path.suffix.lower()}"


_STRING: dict[str, Any] = {"type": "string"}
_DETECTED = "auto"
_LEAST_CONFIDENCE = 1.0  # percent, of a language that `/detect` lists besides the most probable one
# The statuses of LibreTranslate for refusals that have another one in this service.
_STATUSES = {401: 403, 422: 400}


class Question(BaseModel):
    """A request in the form of LibreTranslate, in JSON or as a form, whose numbers are texts."""

    q: Annotated[Any, WithJsonSchema({"anyOf": [_STRING, {"type": "array", "items": _STRING}]})]
    source: Annotated[Any, WithJsonSchema(_STRING)] = Field(None, description="Code of a language, or `auto`.")
    target: Annotated[Any, WithJsonSchema(_STRING)] = Field(None, description="Code of a language.")
    format: Annotated[Any, WithJsonSchema(_STRING)] = "text"
    alternatives: Annotated[Any, WithJsonSchema({"type": "integer", "minimum": 0})] = 0
    api_key: Annotated[Any, WithJsonSchema(_STRING)] = None

    @model_validator(mode="before")
    @classmethod
    def _check_text(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "q" not in content:
            raise OptionError("The body must have the entry `q`.")
        return content

    @property
    def key(self) -> str:
        """Return the key of the request, or an empty string."""
        return str(self.api_key or "")

    @property
    def asks_for_detection(self) -> bool:
        """Whether the source language is to be detected."""
        return self.source == _DETECTED

    def list_languages(self, detect: DetectLanguages) -> list[dict[str, Any]]:
        """
        Return the languages that the text may be in, the most probable first.

        Raises:
            Refusal: 422; there is no text.
        """
        if not isinstance(self.q, str):
            raise Refusal(422, "`q` must be a text.")
        best, *others = detect(self.q)
        return [each._asdict() for each in (best, *others) if each is best or each.confidence >= _LEAST_CONFIDENCE]

    def detect_source(self, detect: DetectLanguages, directions: Sequence[Direction]) -> Detected | None:
        """Return the most probable one of the languages from which there is a translation, or None without any."""
        target = find_code(str(self.target), (str(each.target) for each in directions))
        sources = [str(each.source) for each in directions if each.target == target]
        if not sources:
            return None
        texts = self.q if isinstance(self.q, list) else [self.q]
        return choose_language(detect("\n".join(text for text in texts if isinstance(text, str))), sources)

    def to_content(self) -> dict[str, Any]:
        """
        Return the content of the request in the form of this service, without its languages.

        Raises:
            Refusal: 422; an entry is invalid.
        """
        content: dict[str, Any] = {"text": self.q}
        if not re.fullmatch(r"\d{1,9}", str(self.alternatives or 0)):
            raise Refusal(422, "`alternatives` must be a number of 0 or more, of at most 9 digits.")
        if self._alternatives:
            content["num_return_sequences"] = self._alternatives + 1
        if self.format not in (None, "text"):
            content["format"] = self.format
        return content

    @property
    def _alternatives(self) -> int:
        return int(self.alternatives or 0)

    def find_direction(self, directions: Sequence[Direction]) -> Direction | None:
        """
        Return the one of `directions` that the request asks for, or None if there are none.

        Raises:
            Refusal: 422; a language is missing, or the service does not translate between the languages.
        """
        source, target = self.source, self.target
        if not isinstance(source, str) or not isinstance(target, str):
            raise Refusal(422, "`source` and `target` must be given: the codes of two languages.")
        if not directions:
            return None
        target = find_code(target, (str(each.target) for each in directions))
        into = [each for each in directions if each.target == target]
        found = source if source == _DETECTED else find_code(source, (str(each.source) for each in into))
        fitting = [each for each in into if found in (each.source, _DETECTED)]
        if not fitting:
            known = ", ".join(map(str, directions[:12]))
            raise Refusal(422, f"`source` and `target` must be a direction of this service: {known}.")
        if source == _DETECTED and len(fitting) > 1:
            raise Refusal(422, "`source` must be given: the detection of languages is not installed.")
        return fitting[0]

    def answer(self, translations: Sequence[Sequence[str]], detected: Detected | None = None) -> dict[str, Any]:
        """Return the answer to the request, given the translations of each text, best first.

        Args:
            detected: The source language, if it was detected.
        """
        best, others = [row[0] for row in translations], [list(row[1:]) for row in translations]
        is_list = isinstance(self.q, list)
        content: dict[str, Any] = {"translatedText": best if is_list else best[0]}
        if detected is not None:
            content["detectedLanguage"] = [detected._asdict()] * len(best) if is_list else detected._asdict()
        if self._alternatives:
            content["alternatives"] = others if is_list else others[0]
        return content


def parse_form(body: bytes, content_type: str) -> dict[str, Any] | None:
    """Return the entries of a form with `q`, or None if the body has another form."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        return None
    pairs = parse_qsl(body.decode(errors="replace"), keep_blank_values=True)
    texts = [value for name, value in pairs if name == "q"]
    return dict(pairs) | {"q": texts[0] if len(texts) == 1 else texts} if texts else None


def refuse(refusal: Refusal) -> tuple[dict[str, str], int]:
    """Return the content and the status of an answer that refuses a request."""
    return {"error": str(refusal)}, _STATUSES.get(refusal.status, refusal.status)


def list_languages(directions: Sequence[Direction]) -> list[dict[str, Any]]:
    """Return the source languages with their names in English and their target languages."""
    targets: dict[str, list[str]] = {}
    for direction in directions:
        targets.setdefault(str(direction.source), []).append(str(direction.target))
    return [{"code": code, "name": language_name(code), "targets": known} for code, known in targets.items()]
