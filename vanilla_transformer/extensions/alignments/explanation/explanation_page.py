"""The page of an explanation: one HTML file with its data, style and script, which loads
nothing.
"""

import base64
from typing import Any

from vanilla_transformer.files.resources import fill_page

from .explanation import Explanation

_DIGITS = 4


def render_page(explanation: Explanation, title: str) -> str:
    """Return the HTML of a page that shows an explanation.

    Args:
        title: The name of the model.
    """
    return fill_page(str(__package__), title, page_data(explanation))


def page_data(explanation: Explanation) -> dict[str, Any]:
    """Return all that the script of the page shows, as JSON."""
    attentions = list[dict[str, Any]]()
    for kind, weights in explanation.attentions:
        attentions.append({"kind": kind, "weights": None})
        if weights is not None:
            dimensions = ("layers", "heads", "rows", "columns")
            sizes = zip(dimensions, weights.shape, strict=True)
            as_bytes = (weights * 255).round().byte().numpy().tobytes()
            encoded = base64.b64encode(as_bytes).decode()
            attentions[-1] |= {**dict(sizes), "weights": encoded}
    names = (
        "source",
        "translation",
        "is_forced",
        "num_beams",
        "alignment_heads",
        "special_tokens",
        "source_tokens",
    )
    data: dict[str, Any] = {name: getattr(explanation, name) for name in names}
    data["target_tokens"] = []
    for token in explanation.target_tokens:
        entry: dict[str, Any] = {"text": token.text, "rank": token.rank}
        entry["probability"] = round(token.probability, _DIGITS)
        alternatives = []
        for text, value in token.alternatives:
            alternatives.append([text, round(value, _DIGITS)])
        entry["alternatives"] = alternatives
        data["target_tokens"].append(entry)
    data["attentions"] = attentions
    data["steps"] = []
    for step in explanation.steps:
        candidates = []
        for parent, text, candidate in step:
            entry = {"parent": parent, "text": text, "state": candidate.state}
            entry["log_probability"] = round(candidate.log_probability, _DIGITS)
            entry["score"] = round(candidate.score, _DIGITS)
            candidates.append(entry)
        data["steps"].append(candidates)
    data["hypotheses"] = []
    rows = zip(explanation.hypotheses, explanation.places, strict=True)
    for (text, score), place in rows:
        hypothesis = {"text": text, "score": round(score, _DIGITS), "place": place}
        data["hypotheses"].append(hypothesis)
    return data
