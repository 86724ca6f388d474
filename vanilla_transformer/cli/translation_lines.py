"""The lines that `translate` writes: JSON objects, or translations with scores and alignments."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .request_arguments import split_constraints


def answer_lines(
    translate: Any,
    lines: Sequence[str],
    options: Any,
    settings: Mapping[str, Any],
    warned: dict[int, list[str]] | None = None,
) -> list[str]:
    """Return the text to write for each of some lines.

    Args:
        warned: If it is given, it gets the warnings about the best translation of each line that has some.
    """
    sources, constraints = split_constraints(options, lines)
    answers = translate(sources, options.batch_size, False, **{**settings, **constraints})
    rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
    if warned is not None:
        warned |= _find_warnings(sources, [row[0]["translation_text"] for row in rows], translate.model)
    show: Callable[[str, Any], str] = _as_json if options.json else _as_text
    return [show(source, row) for source, row in zip(sources, rows, strict=True)]


def _find_warnings(sources: Sequence[str], translations: Sequence[str], model: Any) -> dict[int, list[str]]:
    """Return the warnings about translations by the indices of their sources, where there are some."""
    from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

    limits = WarningLimits.from_config(getattr(model, "config", None))
    pairs = enumerate(zip(sources, translations, strict=True))
    return {index: names for index, pair in pairs if (names := find_warnings(*pair, limits))}


def _as_json(source: str, answers: Sequence[Mapping[str, Any]]) -> str:
    from vanilla_transformer.decoding.answers import rename_text

    translations = [rename_text(answer) for answer in answers]
    return json.dumps({"source": source, "translations": translations}, ensure_ascii=False)


def _as_text(source: str, answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the translations, one a line, after their scores and before their alignments if these were requested."""
    from vanilla_transformer.decoding.alignments import moses_pairs

    lines = []
    for answer in answers:
        text = answer["translation_text"]
        score = f"{answer['score']:.4f}\t" if "score" in answer else ""
        pairs = f" ||| {moses_pairs(source, text, answer['alignment'])}" if "alignment" in answer else ""
        lines.append(f"{score}{text}{pairs}")
    return "\n".join(lines)


__all__ = ["answer_lines"]
