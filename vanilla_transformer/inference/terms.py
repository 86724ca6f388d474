"""Translate the terms of a glossary as it says: softly, by inline terms, or by hard constraints."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.text.glossary import Glossary, Match, as_glossary
from vanilla_transformer.text.inline_terms import TERM_TOKENS, AnnotatedText, annotate, knows_inline_terms
from vanilla_transformer.text.term_forms import count_forms

from .constraints import tokenize_phrase
from .progress import Report
from .search.lexical_constraints import Phrases
from .search.option_error import OptionError
from .sentence_columns import split_columns
from .translations import Translation

SOFT, HARD, EXACT = "soft", "hard", "exact"
TERM_MODES = (SOFT, HARD, EXACT)


@dataclass(frozen=True)
class TermOptions:
    """
    Options of a request about terms.

    Args:
        glossary: A [`Glossary`], the path of a file, a mapping of terms to translations, or pairs.
        term_mode (`str`):
            `"soft"`: translations are written beside their terms, for models that were trained with
            `augment: {inline_terms: …}`. Such a model may inflect a translation, or ignore it.
            `"exact"`: each translation is a constraint of beam search, as it is in the glossary, for every model.
            `"hard"`: each translation appears, and a model that was trained with inline terms may inflect it: what
            lacks one when it is decoded softly is decoded again exactly. For other models it is `"exact"`.
            By default soft if the model was trained for it, and otherwise exact.

    Raises:
        ValueError: The mode is unknown, there is a mode without a glossary, or see [`as_glossary`].
        OSError: There is no such file.
    """

    glossary: Any = None
    term_mode: str | None = None

    def __post_init__(self) -> None:
        if self.term_mode not in (None, *TERM_MODES):
            raise ValueError(f"`term_mode` must be one of {', '.join(map(repr, TERM_MODES))}, got {self.term_mode!r}.")
        if self.glossary is None and self.term_mode is not None:
            raise ValueError(f"`term_mode` must be given with a `glossary`, got {self.term_mode!r} without one.")
        if self.glossary is not None and not isinstance(self.glossary, Glossary):
            object.__setattr__(self, "glossary", as_glossary(self.glossary))

    def mode_for(self, tokenizer: Any) -> str | None:
        """Return the mode for the model of a tokenizer, or None without a glossary.

        Raises:
            ValueError: The mode is soft, and the model was not trained for it.
        """
        if self.glossary is None:
            return None
        is_trained = knows_inline_terms(tokenizer)
        if self.term_mode == SOFT and not is_trained:
            lacking = f"the vocabulary of this one has no {TERM_TOKENS[0]}"
            hint = "Give 'hard', or train with `augment: {inline_terms: 0.1}`."
            raise ValueError(f"`term_mode` 'soft' is for models trained with inline terms, but {lacking}. {hint}")
        return self.term_mode or SOFT if is_trained else EXACT

    def annotate(self, texts: Sequence[str], tokenizer: Any) -> list[AnnotatedText]:
        """Return the texts, for models trained with inline terms with the wanted translations of their terms.

        Raises:
            ValueError: The mode is soft, and the model was not trained for it, or its vocabulary cannot spell a
                translation.
        """
        if self.mode_for(tokenizer) is None or not knows_inline_terms(tokenizer):
            return [AnnotatedText(text, text, []) for text in texts]
        matches = [self.glossary.find(text) for text in texts]
        _check_spelling({match for found in matches for match in found}, tokenizer)
        return [annotate(text, found) for text, found in zip(texts, matches, strict=True)]

    def constrain(
        self, texts: Sequence[str], phrases: Sequence[Phrases] | None, tokenizer: Any
    ) -> Sequence[Phrases] | None:
        """Add the wanted translations of the terms of each text to its constraints, in exact mode.

        Raises:
            ValueError: The vocabulary cannot spell a translation.
        """
        if self.mode_for(tokenizer) != EXACT:
            return phrases
        given = phrases or [()] * len(texts)
        rows: list[Phrases] = [
            [*own, *(tokenize_phrase(tokenizer, match.target) for match in self.glossary.find(text))]
            for text, own in zip(texts, given, strict=True)
        ]
        return rows if any(rows) else None

    def lacking(self, texts: Sequence[str], translations: Sequence[Sequence[str]]) -> list[int]:
        """Return the numbers of the texts with a translation that lacks a wanted one, whatever its ending."""
        rows = zip(texts, translations, strict=True)
        return [number for number, row in enumerate(rows) if any(self._lacks(row[0], each) for each in row[1])]

    def _lacks(self, text: str, translation: str) -> bool:
        wanted = Counter(match.target for match in self.glossary.find(text))
        return any(count_forms(target, translation) < count for target, count in wanted.items())


def decode_hard_terms(
    terms: TermOptions, sentences: Sequence[str], options: Mapping[str, Any], report: Report, search: Callable
) -> list[list[Any]]:
    """Decode with soft terms, and again with exact ones where a translation lacks one.

    Args:
        search: Returns the translations of sentences, given the options of a request for them and its report.
    """
    columns, others = split_columns(options, sentences)

    def search_some(mode: str, numbers: Sequence[int], report: Report) -> list[list[Any]]:
        own = others | vars(columns.select(numbers)) | {"term_mode": mode}
        return search([sentences[number] for number in numbers], own, report)

    found = search_some(SOFT, range(len(sentences)), report)
    texts = [[each.text if isinstance(each, Translation) else each for each in row] for row in found]
    lacking = terms.lacking(sentences, texts)
    if lacking:
        for number, row in zip(lacking, search_some(EXACT, lacking, lambda _: None), strict=True):
            found[number] = row
    return found


def _check_spelling(matches: set[Match], tokenizer: Any) -> None:
    targets = sorted({match.target for match in matches})
    unknown = getattr(tokenizer, "unk_token_id", None)
    for target, ids in zip(targets, tokenizer(targets)["input_ids"] if targets else [], strict=True):
        marks = [token for token in TERM_TOKENS if token in target]
        if marks or unknown in ids:
            problem = f"has the mark {marks[0]}" if marks else "has characters that the model's vocabulary lacks"
            raise OptionError(f"A translation of the glossary must be plain text, but {target!r} {problem}.")


__all__ = ["EXACT", "HARD", "SOFT", "TERM_MODES", "TermOptions", "decode_hard_terms"]
