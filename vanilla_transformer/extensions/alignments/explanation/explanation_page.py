"""The page of an explanation: one HTML file with its data, style and script, which loads nothing."""

import base64
from typing import Any

from torch import Tensor

from vanilla_transformer.utils.resources import fill_page

from .explanation import Attention, Explanation, Node

_DIGITS = 4


def render_page(explanation: Explanation, title: str) -> str:
    """Return the HTML of a page that shows an explanation.

    Args:
        title: The name of the model.
    """
    return fill_page(str(__package__), title, page_data(explanation))


def page_data(explanation: Explanation) -> dict[str, Any]:
    """Return all that the script of the page shows, as JSON."""
    return {
        "source": explanation.source,
        "translation": explanation.translation,
        "is_forced": explanation.is_forced,
        "num_beams": explanation.num_beams,
        "alignment_heads": explanation.alignment_heads,
        "special_tokens": explanation.special_tokens,
        "source_tokens": explanation.source_tokens,
        "target_tokens": [
            {
                "text": each.text,
                "probability": round(each.probability, _DIGITS),
                "rank": each.rank,
                "alternatives": [[text, round(value, _DIGITS)] for text, value in each.alternatives],
            }
            for each in explanation.target_tokens
        ],
        "attentions": [_attention_data(each) for each in explanation.attentions],
        "steps": [[_node_data(node) for node in step] for step in explanation.steps],
        "hypotheses": [
            {"text": text, "score": round(score, _DIGITS), "place": place}
            for (text, score), place in zip(explanation.hypotheses, explanation.places, strict=True)
        ],
    }


def _attention_data(attention: Attention) -> dict[str, Any]:
    if attention.weights is None:
        return {"kind": attention.kind, "weights": None}
    layers, heads, rows, columns = attention.weights.shape
    sizes = {"layers": layers, "heads": heads, "rows": rows, "columns": columns}
    return {"kind": attention.kind, **sizes, "weights": encode_weights(attention.weights)}


def encode_weights(weights: Tensor) -> str:
    """Return weights from 0 to 1 as bytes from 0 to 255, in base64."""
    return base64.b64encode((weights * 255).round().byte().numpy().tobytes()).decode()


def _node_data(node: Node) -> dict[str, Any]:
    return {
        "parent": node.parent,
        "text": node.text,
        "log_probability": round(node.candidate.log_probability, _DIGITS),
        "score": round(node.candidate.score, _DIGITS),
        "state": node.candidate.state,
    }
