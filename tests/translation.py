"""Translate with one process, to compare others with, and join the `tokens` of an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from vanilla_transformer import TranslationPipeline

SENTENCES = [
    "A man is sleeping.",
    "Two dogs.",
    "Two dogs run across the green grass.",
    "",
    "A man.",
]


def translate_alone(model, tokenizer, sentences, **kwargs):
    translate = TranslationPipeline(model, tokenizer, task="translation", device=model.device)
    return [answer["translation_text"] for answer in translate(sentences, **kwargs)]


EOS = "</s>"


def joined(tokens: Sequence[Mapping[str, Any]]) -> str:
    """Return the texts of tokens as one, without the ends of sentences."""
    return "".join(token["text"] for token in tokens if token["text"] != EOS)
