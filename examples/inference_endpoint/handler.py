"""
Answer requests on Hugging Face Inference Endpoints: put this file and `requirements.txt` beside the
model on the Hub.

A request is `{"inputs": "A sentence."}` or a list of sentences, optionally with
`"parameters": {"num_beams": 1}`. The answer is that of the pipeline: `[{"translation_text": "…"}]`.
"""

from typing import Any

from transformers import pipeline

import vanilla_transformer  # noqa: F401  # restores pipeline("translation")


class EndpointHandler:
    """The class that Inference Endpoints looks for."""

    def __init__(self, path: str = ""):
        self.translate = pipeline("translation", model=path)

    def __call__(self, data: dict[str, Any]) -> list[Any]:
        """Translate the inputs of a request."""
        answer: list[Any] = self.translate(data["inputs"], **data.get("parameters", {}))
        return answer
