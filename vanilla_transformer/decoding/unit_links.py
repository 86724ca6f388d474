"""
The alignment of words that follows from the attention between tokens.

A unit is a run of letters and digits, one Chinese or Japanese character, or one punctuation mark.
The attention of a unit is the mean over its tokens, summed over the tokens of each unit of the
source. A unit of the translation is linked to the unit of the source to which it attends most, and
to others to which it attends at least half as much.

Letters in shapes: T target tokens, S source tokens.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.units import Span, split_units

from .engine.search_state import Hypothesis
from .token_texts import Token
from .translations import Link

# Of a link; the attention of words without a counterpart is spread, or goes to EOS.
_LEAST_WEIGHT = 0.2
_SHARE_OF_BEST = 0.5


def align(
    source: str,
    source_spans: Sequence[Span],
    text: str,
    tokens: Sequence[Token],
    hypothesis: Hypothesis,
) -> list[Link]:
    """Return the links between a source and its translation, in the order of the translation.

    Args:
        source_spans: The characters of each token of the source, as [`token_spans`] returns them.
        text: The translation, without white space at its ends.
        tokens: Its tokens.
        hypothesis: The same ones, with attention.
    """
    assert hypothesis.attention is not None
    ends = [token.end for token in tokens]
    target_spans = [*pairwise([0, *ends])]
    attention = torch.tensor(hypothesis.attention)
    return link_units(source, source_spans, text, target_spans, attention)


def link_units(
    source: str,
    source_spans: Sequence[Span],
    target: str,
    target_spans: Sequence[Span],
    attention: Tensor,
) -> list[Link]:
    """Return the links between the units of two texts, given the attention of their tokens,
    `(T, S)`.
    """
    source_units, target_units = split_units(source), split_units(target)
    if not source_units or not target_units:
        return []
    read_spans = source_spans[: attention.shape[1]]
    of_source = _shares(read_spans, source_units)  # (S, source units)
    of_target = _shares(target_spans, target_units)  # (T, target units)
    means = of_target / of_target.sum(dim=0).clamp(min=1.0e-9)
    weights = means.T @ attention @ of_source  # (target units, source units)
    best = weights.amax(dim=1, keepdim=True)
    linked = (weights >= _LEAST_WEIGHT) & (weights >= _SHARE_OF_BEST * best)
    links = list[Link]()
    for row, column in linked.nonzero().tolist():
        weight = weights[row, column].item()
        source_start, source_end = source_units[column]
        target_start, target_end = target_units[row]
        links.append(Link(source_start, source_end, target_start, target_end, weight))
    return links


def linked_words(
    source: str, target: str, links: Sequence[Sequence[float]]
) -> set[tuple[int, int]]:
    """Return the linked words of a source and its translation, counted from 0 between white space.

    Punctuation at a word that has letters or digits does not count.
    """
    source_words = _words_of_units(source)
    target_words = _words_of_units(target)
    pairs = set()
    for source_start, _, target_start, *_ in links:
        source_word = source_words.get(int(source_start))
        target_word = target_words.get(int(target_start))
        if source_word is not None and target_word is not None:
            pairs.add((source_word, target_word))
    return pairs


def moses_pairs(source: str, target: str, links: Sequence[Sequence[float]]) -> str:
    """Return the linked words of a source and its translation in the format of Moses: `0-0 1-2`."""
    return format_pairs(linked_words(source, target, links))


def format_pairs(words: Iterable[tuple[int, int]]) -> str:
    """Return pairs of words in the format of Moses, in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(words))


def token_spans(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    encoded: Sequence[Sequence[int]] | None = None,
) -> list[list[Span]]:
    """Return the characters of each token of the texts, for the tokens of [`encode_sentences`].

    Args:
        encoded: The tokens of the texts, which may begin with further ones, for languages. These
            have no characters.
    """
    if not getattr(tokenizer, "is_fast", False):
        kind = type(tokenizer).__name__
        raise UserError(f"Alignments need a fast tokenizer, got {kind}.")
    if not texts:
        return []
    encoding = tokenizer(
        list(texts),
        add_special_tokens=True,
        return_offsets_mapping=True,
        return_attention_mask=False,
    )
    rows = []
    for index, text in enumerate(texts):
        spans = []
        ids, offsets = encoding["input_ids"][index], encoding["offset_mapping"][index]
        for token, span in zip(ids, offsets, strict=True):
            if token != tokenizer.eos_token_id:
                spans.append(span)
        spans.append((len(text), len(text)))
        if encoded is not None:
            further = len(encoded[index]) - len(spans)
            spans = [(0, 0)] * further + spans
        rows.append(spans)
    return rows


def words_of_tokens(text: str, spans: Sequence[Span]) -> list[set[int]]:
    """Return the words of each token, counted from 0 between white space.

    Punctuation at a word is of none.
    """
    words = _words_of_units(text)
    word_at: list[int | None] = [None] * len(text)
    for start, end in split_units(text):
        if start in words:
            word_at[start:end] = [words[start]] * (end - start)
    rows = []
    for start, end in spans:
        words_of_token = {word for word in word_at[start:end] if word is not None}
        rows.append(words_of_token)
    return rows


def _shares(spans: Sequence[Span], units: Sequence[Span]) -> Tensor:
    """Return which share of its characters each token has in each unit, `(tokens, units)`, white
    space left out.
    """
    owners: dict[int, int] = {}
    for unit, (start, end) in enumerate(units):
        owners |= dict.fromkeys(range(start, end), unit)
    shares = torch.zeros(len(spans), len(units))
    for row, (start, end) in enumerate(spans):
        owned = [index for index in range(start, end) if index in owners]
        counts = Counter(owners[index] for index in owned)
        for unit, count in counts.items():
            shares[row, unit] = count / counts.total()
    return shares


def _words_of_units(text: str) -> dict[int, int]:
    """Return the word of each unit that stands for its word, by the place at which the unit
    starts.
    """
    word_at: dict[int, int] = {}
    for number, word in enumerate(re.finditer(r"\S+", text)):
        starts, spoken = [], []
        for start, end in split_units(word[0]):
            starts.append(word.start() + start)
            if re.search(r"\w", word[0][start:end]):
                spoken.append(word.start() + start)
        word_at |= dict.fromkeys(spoken or starts, number)
    return word_at
