"""
Augment a training pair: change it as its author might have, write wanted translations into its
source, put placeholders on both sides, or replace it by noise.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import regex

from vanilla_transformer.data.readers import SentencePair, WordPair
from vanilla_transformer.text.inline_terms import Match, annotate
from vanilla_transformer.text.protection import MASKS, find_protected, locate, mask, merge
from vanilla_transformer.text.units import is_word_of_letters, split_graphemes, split_units

from .lexicon import Lexicon
from .perturbations import perturb

_NAME = regex.compile(r"(?<!\w)\p{Lu}\p{M}*+\p{L}[\p{L}\p{M}]*+(?!\w)")
# Probabilities: that a term is annotated, and that it is joined with the next one.
_ANNOTATED, _JOINED = 0.5, 0.3
_SHORTEST_STEM = 2  # letters that the forms of an invented word share


class _AlignedTerm(NamedTuple):
    """Words of a source and their translation: where they are, and the form of the translation that
    is annotated.
    """

    start: int
    end: int
    target_start: int
    target_end: int
    form: str


def tag_of(source: str, tags: Sequence[str]) -> str:
    return next((f"{tag} " for tag in tags if source.startswith(f"{tag} ")), "")


def perturb_pair(pair: SentencePair, random: Random, name: str) -> SentencePair:
    """Apply one of the `PERTURBATIONS`, unless it leaves no text."""
    changed = perturb(name, pair, random.getrandbits(32))
    return changed if changed.source.strip() and changed.target.strip() else pair


def replace_by_noise(pair: SentencePair, random: Random) -> SentencePair:
    """
    Replace a pair by noise that is the same on both sides: its source with all letters shuffled,
    with their marks.

    So a model learns to copy text that it cannot translate, instead of inventing a translation.
    These are letters that the vocabulary knows, and words of usual lengths.
    """
    graphemes = split_graphemes(pair.source)
    letters = [grapheme for grapheme in graphemes if grapheme[0].isalpha()]
    random.shuffle(letters)
    noise = ""
    for grapheme in graphemes:
        noise += letters.pop() if grapheme[0].isalpha() else grapheme
    return SentencePair(noise, noise)


def follow_words(words: set[WordPair], before: SentencePair, after: SentencePair) -> set[WordPair]:
    """
    Return the aligned words of a pair after one of its augmentations, given the ones before.

    A change of letters, such as another case, a typo, or a placeholder for one word, leaves words
    where they are. If either side has more or fewer words than before, the words have moved, and
    none is aligned. The words of noise, which is the same on both sides but for a tag, are aligned
    with themselves.
    """
    source_length = len(after.source.split())
    target_length = len(after.target.split())
    if before != after and after.source.endswith(after.target):
        tags = source_length - target_length
        return {(word + tags, word) for word in range(target_length)}
    lengths_before = (len(before.source.split()), len(before.target.split()))
    return words if lengths_before == (source_length, target_length) else set()


def insert_inline_terms(
    pair: SentencePair, random: Random, lexicon: Lexicon, words: Sequence[str]
) -> SentencePair:
    """
    Annotate some terms of a pair whose translation is in its target.

    A third of the terms get the most likely form of the translation, which may be another one than
    in the target: so a model learns to inflect it. A third are hidden as well. A third get an
    invented translation, which also replaces the one in the target, with its ending: so a model
    learns to copy words that it does not know, and to follow the annotation where it knows another
    translation. Neighbors whose translations are neighbors may be annotated as one term.

    Args:
        words: Words of the target language, whose parts invented words consist of.
    """
    terms = list(_join(pair, _find_terms(pair, lexicon), random))
    if not terms:
        return pair
    chosen = [term for term in terms if random.random() < _ANNOTATED]
    chosen = chosen or [random.choice(terms)]
    target = pair.target
    hidden: set[int] = set()
    matches: list[Match] = []
    changes: dict[int, tuple[int, str]] = {}
    for number, term in enumerate(chosen):
        kind = random.choice(("plain", "hidden", "invented"))
        form, used = term.form, target[term.target_start : term.target_end]
        if kind == "hidden":
            hidden.add(number)
        elif kind == "invented" and is_word_of_letters(used):
            form, used = _invent(form, used, random, words)
            changes[term.target_start] = term.target_end, used
        matches.append(Match(term.start, term.end, form))
    for start, (end, used) in sorted(changes.items(), reverse=True):
        target = target[:start] + used + target[end:]
    return SentencePair(annotate(pair.source, matches, hidden).text, target)


def _invent(form: str, used: str, random: Random, words: Sequence[str]) -> tuple[str, str]:
    """Return two forms of an invented word that differ as the given ones do; or these, if they
    begin differently.
    """
    form_letters, used_letters = split_graphemes(form), split_graphemes(used)
    stem = 0
    for ours, theirs in zip(form_letters, used_letters, strict=False):
        if ours.lower() != theirs.lower():
            break
        stem += 1
    if stem < _SHORTEST_STEM:
        return form, used
    head = split_graphemes(random.choice(words))
    tail = split_graphemes(random.choice(words))
    parts = head[: (len(head) + 1) // 2] + tail[len(tail) // 2 :]
    new = "".join(parts).lower()
    new_form = new.capitalize() if form[0].isupper() else new
    new_used = new.capitalize() if used[0].isupper() else new
    return new_form + "".join(form_letters[stem:]), new_used + "".join(used_letters[stem:])


def insert_placeholders(pair: SentencePair, random: Random) -> SentencePair:
    """Replace numbers, URLs, names and so on that both sides have by placeholders, the same ones on
    both sides.
    """
    source, target = pair
    names = [match.span() for match in _NAME.finditer(source)]
    ranges = merge([*find_protected(source), *names])
    counts = Counter(source[start:end] for start, end in ranges)
    shared = set()
    for text, count in counts.items():
        if locate([text] * count, target) is not None:
            shared.add(text)
    kept = [span for span in ranges if source[slice(*span)] in shared]
    kept = kept[: len(MASKS)]
    target_ranges = locate([source[start:end] for start, end in kept], target)
    if not target_ranges:
        return pair
    masks = random.sample(MASKS, len(kept))
    order = sorted(range(len(kept)), key=target_ranges.__getitem__)
    ordered_ranges = [target_ranges[index] for index in order]
    ordered_masks = [masks[index] for index in order]
    masked_target, _ = mask(target, ordered_ranges, ordered_masks)
    masked_source, _ = mask(source, kept, masks)
    return SentencePair(masked_source, masked_target)


def _find_terms(pair: SentencePair, lexicon: Lexicon) -> list[_AlignedTerm]:
    """Return the words that the lexicon translates by a word of the target.

    Both are on their side once.
    """
    targets = _words_by_form(pair.target, casefold=False)
    terms = []
    for word, ranges in _words_by_form(pair.source, casefold=True).items():
        forms = lexicon.get(word, {})
        used = [form for form in forms if len(targets.get(form, ())) == 1]
        if len(ranges) == 1 and len(used) == 1:
            (target_range,) = targets[used[0]]
            terms.append(_AlignedTerm(*ranges[0], *target_range, forms[used[0]]))
    return sorted(terms)


def _words_by_form(text: str, casefold: bool) -> dict[str, list[tuple[int, int]]]:
    ranges: dict[str, list[tuple[int, int]]] = {}
    for start, end in split_units(text):
        word = text[start:end]
        key = word.casefold() if casefold else word
        ranges.setdefault(key, []).append((start, end))
    return ranges


def _join(pair: SentencePair, terms: Sequence[_AlignedTerm], random: Random) -> list[_AlignedTerm]:
    """Join some terms that are neighbors in both texts.

    The translation of several words is annotated as it is.
    """
    joined = list(terms[:1])
    for before, term in pairwise(terms):
        source_gap = pair.source[before.end : term.start]
        target_gap = pair.target[before.target_end : term.target_start]
        are_spaces = re.fullmatch(r"\s+", source_gap) and re.fullmatch(r"\s+", target_gap)
        if are_spaces and random.random() < _JOINED:
            first = joined.pop()
            form = pair.target[first.target_start : term.target_end]
            term = _AlignedTerm(first.start, term.end, first.target_start, term.target_end, form)
        joined.append(term)
    return joined
