"""The lines that `translate` writes: JSON objects, or translations with scores and alignments."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .request_arguments import split_constraints


def answer_lines(translate: Any, lines: Sequence[str], options: Any, settings: Mapping[str, Any]) -> list[str]:
    """Return the text to write for each of some lines."""
    sources, constraints = split_constraints(options, lines)
    answers = translate(sources, options.batch_size, False, **{**settings, **constraints})
    show: Callable[[str, Any], str] = _as_json if options.json else _as_text
    pairs = zip(sources, answers, strict=True)
    return [show(source, answer if isinstance(answer, list) else [answer]) for source, answer in pairs]


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
