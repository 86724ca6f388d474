"""The page of an explanation: one HTML file with its data, style and script, which loads
nothing.
"""

import base64
from typing import Any

from vanilla_transformer.utils.resources import fill_page

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
            sizes = zip(("layers", "heads", "rows", "columns"), weights.shape, strict=True)
            as_bytes = (weights * 255).round().byte().numpy().tobytes()
            attentions[-1] |= {**dict(sizes), "weights": base64.b64encode(as_bytes).decode()}
    names = (
        "source",
        "translation",
        "is_forced",
        "num_beams",
        "alignment_heads",
        "special_tokens",
        "source_tokens",
    )
    return {
        **{name: getattr(explanation, name) for name in names},
        "target_tokens": [
            {
                "text": each.text,
                "probability": round(each.probability, _DIGITS),
                "rank": each.rank,
                "alternatives": [
                    [text, round(value, _DIGITS)] for text, value in each.alternatives
                ],
            }
            for each in explanation.target_tokens
        ],
        "attentions": attentions,
        "steps": [
            [
                {
                    "parent": parent,
                    "text": text,
                    "log_probability": round(candidate.log_probability, _DIGITS),
                    "score": round(candidate.score, _DIGITS),
                    "state": candidate.state,
                }
                for parent, text, candidate in step
            ]
            for step in explanation.steps
        ],
        "hypotheses": [
            {"text": text, "score": round(score, _DIGITS), "place": place}
            for (text, score), place in zip(explanation.hypotheses, explanation.places, strict=True)
        ],
    }
