"""The tokens of words and phrases that translations must contain, and the tokens that may not
follow them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import regex

from vanilla_transformer.pipeline_vanilla_transformer import reads_sequences
from vanilla_transformer.text.protection import WORD_CHARACTER

from .engine.phrase_constraints import (
    NO_CONTINUATIONS,
    ConstraintError,
    Phrases,
    WholeWords,
    WordContinuations,
)
from .sentences import Sentence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LEAST_ROOM, _MOST_ROOM = 8, 256  # tokens of a text's phrases
_STEM = "*"  # at the end of a word that may be continued
_IN_WORD = regex.compile(WORD_CHARACTER, regex.V1)
_WORD = "a"
_known = WeakKeyDictionary[Any, tuple[int, WordContinuations]]()


def tokenize_constraint(tokenizer: "PreTrainedTokenizerBase", phrase: Any) -> Sequence[int]:
    """Return the tokens of a constraint: [`WholeWords`], unless further letters may follow."""
    text = phrase.strip() if isinstance(phrase, str) else phrase
    if isinstance(text, str) and text.endswith(_STEM) and ends_in_word(text.removesuffix(_STEM)):
        return tokenize_phrase(tokenizer, text.removesuffix(_STEM))
    return close_word(text, tokenize_phrase(tokenizer, phrase))


def close_word(text: str, tokens: Sequence[int]) -> Sequence[int]:
    """Return the tokens of a text, as [`WholeWords`] if further letters would continue its last
    word.
    """
    return WholeWords(tokens) if ends_in_word(text) else tokens


def tokenize_kept(tokenizer: "PreTrainedTokenizerBase", sentence: Sentence) -> list[Sequence[int]]:
    """Return the tokens of each text of a sentence that must survive: [`WholeWords`], unless a
    letter follows it in the sentence.
    """
    phrases = list[Sequence[int]]()
    for start, end in sentence.kept or ():
        tokens: Sequence[int] = tokenize_phrase(tokenizer, sentence.text[start:end])
        if not _IN_WORD.match(sentence.text, end):
            tokens = WholeWords(tokens)
        phrases.append(tokens)
    return phrases


def tokenize_phrase(tokenizer: "PreTrainedTokenizerBase", phrase: object) -> list[int]:
    """Return the tokens of a phrase, as in running text."""
    if not isinstance(phrase, str):
        raise ConstraintError(f"A constraint must be a string, got {phrase!r}.")
    text = " ".join(phrase.split())
    if not text:
        raise ConstraintError(f"A constraint must have a word, got {phrase!r}.")
    if text != phrase.strip():
        requirement = "A constraint must have single spaces between words"
        raise ConstraintError(f"{requirement}, got {phrase!r}. Write {text!r}.")
    return encode_words(tokenizer, text, "A constraint")


def encode_words(tokenizer: "PreTrainedTokenizerBase", text: str, kind: str) -> list[int]:
    """Return the tokens of a part of a translation, which must be in the vocabulary."""
    tokens = tokenizer(text_target=[text], add_special_tokens=False)["input_ids"][0]
    wrong = [token for token in tokens if token in tokenizer.all_special_ids]
    if wrong or not tokens:
        token = tokenizer.convert_ids_to_tokens(wrong[0]) if wrong else "no token"
        requirement = f"{kind} must be in the model's vocabulary"
        raise ConstraintError(f"{requirement}, but {text!r} gives {token}.")
    return list(tokens)


def room_for_phrases(phrases: Sequence[Phrases]) -> int:
    """Return room for the tokens of each sentence's phrases, a power of two, so that few engines
    are built.
    """
    most = max(sum(map(len, sentence_phrases)) for sentence_phrases in phrases)
    if most > _MOST_ROOM:
        raise ConstraintError(
            f"The constraints of a text may have at most {_MOST_ROOM} tokens, got {most}."
        )
    return max(_LEAST_ROOM, 1 << (most - 1).bit_length())


def check_token_ids(phrases: Any) -> Phrases:
    if phrases is None:
        return []
    lists = phrases if isinstance(phrases, list | tuple) else [phrases]
    for phrase in lists:
        is_sequence = isinstance(phrase, list | tuple) and len(phrase) > 0
        if not is_sequence or any(type(token) is not int for token in phrase):
            hint = " Alternatives are not supported." if is_sequence else ""
            raise ConstraintError(
                "`force_words_ids` must be a list with a list of token ids each, got "
                f"{phrase!r}.{hint}"
            )
    return [list(phrase) for phrase in lists]


def word_continuations(tokenizer: "PreTrainedTokenizerBase") -> WordContinuations:
    """Return the tokens that begin with a letter or digit and continue a word, as far as the
    decoder tells.

    Scripts that write no spaces between words have none, nor do tokens that are parts of a
    character, and sequences that are no language.
    """
    if reads_sequences(tokenizer):
        return NO_CONTINUATIONS
    size = len(tokenizer)
    if tokenizer not in _known or _known[tokenizer][0] != size:
        encoding = tokenizer(text_target=[_WORD], add_special_tokens=False)
        before = encoding["input_ids"][0]
        tokens = sorted({*range(size)} - {*tokenizer.all_special_ids})
        texts = tokenizer.batch_decode([[*before, token] for token in tokens])
        start = len(tokenizer.decode(before))
        continuations = []
        for token, text in zip(tokens, texts, strict=True):
            if _IN_WORD.match(text, start):
                continuations.append(token)
        _known[tokenizer] = size, WordContinuations(continuations)
    return _known[tokenizer][1]


def ends_in_word(text: str) -> bool:
    """Return whether further letters after a text would continue its last word."""
    return _IN_WORD.match(text[-1:]) is not None
