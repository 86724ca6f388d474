"""Warnings about the translations of a model, with what its tokenizer and its alignments tell."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vanilla_transformer.text.languages import find_direction, find_languages
from vanilla_transformer.text.translation_warnings import Evidence, WarningLimits, find_warnings

from .token_texts import token_texts
from .translations import Link

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


class WarningFinder:
    """
    Find the warnings about a translation, see [`find_warnings`].

    Args:
        tokenizer, config: The ones of the model.
        options: Options of the request, of which the glossary and the languages count.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        config: "PreTrainedConfig | None",
        options: Mapping[str, Any],
    ):
        self._tokenizer, self._limits = tokenizer, WarningLimits.from_config(config)
        self._glossary, language = options.get("glossary"), options.get("src_lang")
        languages = find_languages(tokenizer)
        if languages is None:
            self._language = language or find_direction(tokenizer).source
        else:
            self._language = languages.complete(language).source

    def __call__(self, source: str, text: str, links: Sequence[Link] = ()) -> list[str]:
        """Return the names of the warnings, given the alignment if there is one."""
        aligned_end = max((link.target_end for link in links), default=0)
        is_spelled = source.isupper() and self._is_spelled(source)
        evidence = Evidence(self._language, is_spelled, aligned_end)
        return find_warnings(source, text, self._limits, self._glossary, evidence)

    def _is_spelled(self, source: str) -> bool:
        ids = self._tokenizer(source, add_special_tokens=False)["input_ids"]
        texts = token_texts(self._tokenizer, ids, as_source=True)
        has_word = sum(map(str.isalpha, source)) > 1
        return has_word and all(len(text.strip()) <= 1 for text in texts)
