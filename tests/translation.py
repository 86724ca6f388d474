"""Translate with one process, to compare others with."""

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
