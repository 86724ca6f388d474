"""The API of LibreTranslate, for its clients: `POST /translate` and `/detect` with the entry `q`, `GET /languages`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from vanilla_transformer.text.languages import Direction

from .language_detection import Detected, DetectLanguages, choose_language
from .language_names import language_name
from .limits import Refusal

FORM = "application/x-www-form-urlencoded"
# The entries of a request, for `/openapi.json`.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["q", "source", "target"],
    "properties": {
        "q": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "source": {"type": "string"},
        "target": {"type": "string"},
        "format": {"type": "string", "default": "text"},
        "alternatives": {"type": "integer", "minimum": 0, "default": 0},
        "api_key": {"type": "string"},
    },
}
DETECTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["q"],
    "properties": {"q": {"type": "string"}, "api_key": {"type": "string"}},
}
_DETECTED = "auto"
_LEAST_CONFIDENCE = 1.0  # percent, of a language that `/detect` lists besides the most probable one
# The statuses of LibreTranslate for refusals that have another one in this service.
_STATUSES = {401: 403, 422: 400}


class Question(NamedTuple):
    """
    A request in the form of LibreTranslate.

    Attributes:
        entries: By name, see [`SCHEMA`].
        detected: The source language, if it was detected.
    """

    entries: Mapping[str, Any]
    detected: Detected | None = None

    @property
    def api_key(self) -> str:
        """Return the key of the request, or an empty string."""
        return str(self.entries.get("api_key") or "")

    @property
    def asks_for_detection(self) -> bool:
        """Whether the source language is to be detected."""
        return self.entries.get("source") == _DETECTED

    def list_languages(self, detect: DetectLanguages) -> list[dict[str, Any]]:
        """
        Return the languages that the text may be in, the most probable first.

        Raises:
            Refusal: 422; there is no text.
        """
        text = self.entries["q"]
        if not isinstance(text, str):
            raise Refusal(422, "`q` must be a text.")
        best, *others = detect(text)
        return [each._asdict() for each in (best, *others) if each is best or each.confidence >= _LEAST_CONFIDENCE]

    def detect_source(self, detect: DetectLanguages, directions: Sequence[Direction]) -> "Question":
        """Return the question with the most probable one of the languages from which there is a translation."""
        sources = [str(each.source) for each in directions if each.target == self.entries.get("target")]
        if not sources:
            return self
        texts = self.entries["q"] if isinstance(self.entries["q"], list) else [self.entries["q"]]
        detected = choose_language(detect("\n".join(text for text in texts if isinstance(text, str))), sources)
        return Question({**self.entries, "source": detected.language}, detected)

    def to_content(self) -> dict[str, Any]:
        """
        Return the content of the request in the form of this service, without its languages.

        Raises:
            Refusal: 422; an entry is invalid.
        """
        content: dict[str, Any] = {"text": self.entries["q"]}
        alternatives = self.entries.get("alternatives") or 0
        if not str(alternatives).isdecimal():
            raise Refusal(422, "`alternatives` must be a number of 0 or more.")
        if int(alternatives):
            content["num_return_sequences"] = int(alternatives) + 1
        if self.entries.get("format") not in (None, "text"):
            content["format"] = self.entries["format"]
        return content

    def find_direction(self, directions: Sequence[Direction]) -> Direction | None:
        """
        Return the one of `directions` that the request asks for, or None if there are none.

        Raises:
            Refusal: 422; a language is missing, or the service does not translate between the languages.
        """
        source, target = self.entries.get("source"), self.entries.get("target")
        if not isinstance(source, str) or not isinstance(target, str):
            raise Refusal(422, "`source` and `target` must be given: the codes of two languages.")
        if not directions:
            return None
        fitting = [each for each in directions if each.target == target and source in (each.source, _DETECTED)]
        if not fitting:
            known = ", ".join(map(str, directions[:12]))
            raise Refusal(422, f"`source` and `target` must be a direction of this service: {known}.")
        if source == _DETECTED and len(fitting) > 1:
            raise Refusal(422, "`source` must be given: the detection of languages is not installed.")
        return fitting[0]

    def answer(self, translations: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Return the answer to the request, given the translations of each text, best first."""
        best, others = [row[0] for row in translations], [list(row[1:]) for row in translations]
        is_list = isinstance(self.entries["q"], list)
        content: dict[str, Any] = {"translatedText": best if is_list else best[0]}
        if self.detected is not None:
            content["detectedLanguage"] = [self.detected._asdict()] * len(best) if is_list else self.detected._asdict()
        if int(self.entries.get("alternatives") or 0):
            content["alternatives"] = others if is_list else others[0]
        return content


def parse_form(body: bytes, content_type: str) -> dict[str, Any] | None:
    """Return the entries of a form with `q`, or None if the body has another form."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        return None
    pairs = parse_qsl(body.decode(errors="replace"), keep_blank_values=True)
    texts = [value for name, value in pairs if name == "q"]
    return dict(pairs) | {"q": texts[0] if len(texts) == 1 else texts} if texts else None


def find_question(content: Any) -> Question | None:
    """Return a request in the form of LibreTranslate, or None if its content has another form."""
    return Question(content) if isinstance(content, dict) and "q" in content else None


def refuse(refusal: Refusal) -> tuple[dict[str, str], int]:
    """Return the content and the status of an answer that refuses a request."""
    return {"error": str(refusal)}, _STATUSES.get(refusal.status, refusal.status)


def list_languages(directions: Sequence[Direction]) -> list[dict[str, Any]]:
    """Return the source languages with their names in English and their target languages."""
    targets: dict[str, list[str]] = {}
    for direction in directions:
        targets.setdefault(str(direction.source), []).append(str(direction.target))
    return [{"code": code, "name": language_name(code), "targets": known} for code, known in targets.items()]


__all__ = ["DETECTION_SCHEMA", "FORM", "SCHEMA", "Question", "find_question", "list_languages", "parse_form", "refuse"]
