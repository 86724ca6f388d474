"""
Augment a training pair: change it as its author might have, write wanted translations into its source, put
placeholders on both sides, or replace it by noise.

Each perturbation is a pure function of a text and of the numbers that it draws. Stress tests and augmentation of
training text share them.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise
from os.path import commonprefix
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import regex

from vanilla_transformer.text.inline_terms import TERM_TOKENS, Match, annotate
from vanilla_transformer.text.protection import find_protected, locate, mask, merge
from vanilla_transformer.text.units import FURTHER, UNSPACED, is_word_of_letters, split_graphemes, split_units

from .readers import SentencePair

if TYPE_CHECKING:  # `train --help` imports this module, and must not wait for transformers or numpy
    from transformers import PreTrainedTokenizerBase

    from .word_alignments import Lexicon, WordPair

# Letters in a row, with their marks, in scripts with spaces between words; and words, which may have an apostrophe or,
# in Hebrew, quotation marks inside.
_SPELLED = rf"(?:[[\p{{L}}\p{{Nl}}\p{{No}}]--{UNSPACED}][{FURTHER}]*+)++"
_LETTERS = regex.compile(_SPELLED, regex.V1)
_WORD = regex.compile(
    rf"""{_SPELLED}(?:(?:['’׳״]|(?<=\p{{Hebrew}}[{FURTHER}]*)"(?=\p{{Hebrew}})){_SPELLED})*""", regex.V1
)
_LONG_WORD = 4  # letters
_NUMBER = re.compile(r"\d+(?:[.,٫٬]\d+)*")
_WORDS_PER_CHANGE = 10  # one typo or doubled word in each started ten
# Latin, Chinese, Indic, Urdu, Armenian, Ethiopic, Burmese, Khmer, Tibetan, Mongolian, Santali, Meitei, Cree
_PERIODS = ".。｡．।॥۔։።။។៕།༎᠃᠉᱾᱿꯫᙮"
_EMOJI = "😀😂😍🙏👍🎉🔥🚀🌍🐶"


def title_case(text: str, draw: random.Random) -> str:
    """Begin each word with a capital."""
    return re.sub(r"\S+", lambda match: match[0][0].title() + match[0][1:], text)


def upper_case(text: str, draw: random.Random) -> str:
    """Write the text in capitals."""
    return text.upper()


def lower_case(text: str, draw: random.Random) -> str:
    """Write the text without capitals."""
    return text.lower()


def typos(text: str, draw: random.Random) -> str:
    """Swap, drop or double a letter in one of each started ten words of four letters or more."""
    words = (match for match in _LETTERS.finditer(text) if len(split_graphemes(match[0])) >= _LONG_WORD)
    return _change_words(words, _misspell, text, draw)


def no_final_period(text: str, draw: random.Random) -> str:
    """Remove the period at the end."""
    return text.rstrip(_PERIODS)


def doubled_words(text: str, draw: random.Random) -> str:
    """Write one of each started ten words twice."""
    return _change_words(_WORD.finditer(text), lambda word, draw: f"{word} {word}", text, draw)


def emoji(text: str, draw: random.Random) -> str:
    """Add an emoji at the end."""
    return f"{text} {draw.choice(_EMOJI)}"


def html_tags(text: str, draw: random.Random) -> str:
    """Put a pair of HTML tags around the text."""
    tag = draw.choice(["b", "i", "p", "span"])
    return f"<{tag}>{text}</{tag}>"


def other_numbers(text: str, draw: random.Random) -> str:
    """Replace the digits of each number of two digits or more. The same number becomes the same other one.

    Digits stay digits of their script.
    """
    seed = draw.random()

    def replace(match: re.Match[str]) -> str:
        digits = [int(each) for each in match[0] if each.isdecimal()]
        if len(digits) < 2:
            return match[0]
        others = random.Random(f"{seed} {digits}")
        found = [others.choice([new for new in range(1, 10) if new != old]) for old in digits]
        return "".join(chr(ord(each) - int(each) + found.pop(0)) if each.isdecimal() else each for each in match[0])

    return _NUMBER.sub(replace, text)


# Properties of scripts, and the letters of the scripts that have them. Georgian text has no capitals.
_SCRIPTS_WITH = {
    "capitals": regex.compile(r"[\p{L}&&[\p{Lu}\p{Lt}\p{CWT}]]", regex.V1),
    "spaces between words": regex.compile(rf"[\p{{L}}--{UNSPACED}]", regex.V1),
    "a period": regex.compile(r"[\p{L}--[\p{Thai}\p{Lao}]]", regex.V1),
}
_LETTER = regex.compile(r"\p{L}")


class Perturbation(NamedTuple):
    """
    A change of a source.

    Attributes:
        apply: Returns the changed text.
        on_target: Whether a good translation changes in the same way.
        needs: What the script of the source must have, such as capitals. Without it, neither side changes.
    """

    apply: Callable[[str, random.Random], str]
    on_target: bool
    needs: str | None = None

    def suits(self, source: str) -> bool:
        """Return whether the change is meant for the script of a source, by most of its letters."""
        letters = len(_LETTER.findall(source)) if self.needs else 0
        return self.needs is None or 2 * len(_SCRIPTS_WITH[self.needs].findall(source)) >= letters


PERTURBATIONS = {
    "title_case": Perturbation(title_case, on_target=True, needs="capitals"),
    "upper_case": Perturbation(upper_case, on_target=True, needs="capitals"),
    "lower_case": Perturbation(lower_case, on_target=False, needs="capitals"),
    "typos": Perturbation(typos, on_target=False, needs="spaces between words"),
    "no_final_period": Perturbation(no_final_period, on_target=True, needs="a period"),
    "doubled_words": Perturbation(doubled_words, on_target=False, needs="spaces between words"),
    "emoji": Perturbation(emoji, on_target=True),
    "html_tags": Perturbation(html_tags, on_target=True),
    "other_numbers": Perturbation(other_numbers, on_target=True),
}


def perturb(name: str, pair: SentencePair, seed: int | str) -> SentencePair:
    """Apply one of the `PERTURBATIONS` to a source that it suits, and to its translation where that changes too.

    Both sides draw the same numbers, which depend on the seed only.
    """
    change = PERTURBATIONS[name]
    if not change.suits(pair.source):
        return pair
    source = change.apply(pair.source, random.Random(str(seed)))
    return SentencePair(
        source, change.apply(pair.target, random.Random(str(seed))) if change.on_target else pair.target
    )


def _change_words(
    words: Iterable[regex.Match[str]], change: Callable[[str, random.Random], str], text: str, draw: random.Random
) -> str:
    """Change one of each started ten words of a text."""
    found = [match.span() for match in words]
    chosen = draw.sample(found, -(-len(found) // _WORDS_PER_CHANGE))
    for start, end in sorted(chosen, reverse=True):
        text = text[:start] + change(text[start:end], draw) + text[end:]
    return text


def _misspell(word: str, draw: random.Random) -> str:
    """Change a letter of a word that is not the first one."""
    letters = split_graphemes(word)
    place, kind = draw.randrange(1, len(letters) - 1), draw.choice(["swap", "drop", "double"])
    letter, after = letters[place : place + 2]
    changed = {"swap": [after, letter], "drop": [after], "double": [letter, letter, after]}[kind]
    return "".join([*letters[:place], *changed, *letters[place + 2 :]])


# Tokens of placeholders. They are not special, so they appear in the text of a translation.
MASKS = tuple(f"<ph{number}>" for number in range(8))
_NAME = regex.compile(r"(?<!\w)\p{Lu}\p{M}*+\p{L}[\p{L}\p{M}]*+(?!\w)")
# Probabilities: that a term is annotated, and that it is joined with the next one.
_ANNOTATED, _JOINED = 0.5, 0.3
_SHORTEST_STEM = 2  # letters that the forms of an invented word share


class _AlignedTerm(NamedTuple):
    """Words of a source and their translation: where they are, and the form of the translation that is annotated."""

    start: int
    end: int
    target_start: int
    target_end: int
    form: str


def add_augmentation_tokens(tokenizer: "PreTrainedTokenizerBase", augmentations: Collection[str]) -> None:
    """Add the tokens of text with these augmentations that the vocabulary lacks."""
    known = tokenizer.get_added_vocab().keys()
    if "inline_terms" in augmentations and not known >= set(TERM_TOKENS):
        tokenizer.add_special_tokens({"extra_special_tokens": list(TERM_TOKENS)}, replace_extra_special_tokens=False)
    if "placeholders" in augmentations:
        tokenizer.add_tokens([token for token in MASKS if token not in known])


def perturb_pair(pair: SentencePair, random: Random, name: str) -> SentencePair:
    """Apply one of the `PERTURBATIONS`, unless it leaves no text."""
    changed = perturb(name, pair, random.getrandbits(32))
    return changed if changed.source.strip() and changed.target.strip() else pair


def replace_by_noise(pair: SentencePair, random: Random) -> SentencePair:
    """
    Replace a pair by noise that is the same on both sides: its source with all letters shuffled, with their marks.

    So a model learns to copy text that it cannot translate, instead of inventing a translation. These are letters
    that the vocabulary knows, and words of usual lengths.
    """
    graphemes = split_graphemes(pair.source)
    letters = [each for each in graphemes if each[0].isalpha()]
    random.shuffle(letters)
    noise = "".join(letters.pop() if each[0].isalpha() else each for each in graphemes)
    return SentencePair(noise, noise)


def follow_words(words: "set[WordPair]", before: SentencePair, after: SentencePair) -> "set[WordPair]":
    """
    Return the aligned words of a pair after one of its augmentations, given the ones before.

    A change of letters, such as another case, a typo, or a placeholder for one word, leaves words where they are. If
    either side has more or fewer words than before, the words have moved, and none is aligned. The words of noise,
    which is the same on both sides but for a tag, are aligned with themselves.
    """
    counts, (sources, targets) = ([len(side.split()) for side in pair] for pair in (before, after))
    if before != after and after.source.endswith(after.target):
        return {(place + sources - targets, place) for place in range(targets)}
    return words if counts == [sources, targets] else set()


def insert_inline_terms(pair: SentencePair, random: Random, lexicon: "Lexicon", words: Sequence[str]) -> SentencePair:
    """
    Annotate some terms of a pair whose translation is in its target.

    A third of the terms get the most likely form of the translation, which may be another one than in the target: so a
    model learns to inflect it. A third are hidden as well. A third get an invented translation, which also replaces
    the one in the target, with its ending: so a model learns to copy words that it does not know, and to follow the
    annotation where it knows another translation. Neighbors whose translations are neighbors may be annotated as one
    term.

    Args:
        words: Words of the target language, whose parts invented words consist of.
    """
    terms = list(_join(pair, _find_terms(pair, lexicon), random))
    if not terms:
        return pair
    chosen = [term for term in terms if random.random() < _ANNOTATED] or [random.choice(terms)]
    hidden, target = set[int](), pair.target
    matches, changes = list[Match](), dict[int, tuple[int, str]]()
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
    """Return two forms of an invented word that differ as the given ones do; or these, if they begin differently."""
    forms = split_graphemes(form), split_graphemes(used)
    stem = len(commonprefix([[letter.lower() for letter in each] for each in forms]))
    if stem < _SHORTEST_STEM:
        return form, used
    head, tail = split_graphemes(random.choice(words)), split_graphemes(random.choice(words))
    new = "".join(head[: (len(head) + 1) // 2] + tail[len(tail) // 2 :]).lower()
    one, other = ((new.capitalize() if each[0].isupper() else new) for each in (form, used))
    return "".join([one, *forms[0][stem:]]), "".join([other, *forms[1][stem:]])


def insert_placeholders(pair: SentencePair, random: Random) -> SentencePair:
    """Replace numbers, URLs, names and so on that both sides have by placeholders, the same ones on both sides."""
    source, target = pair
    ranges = merge([*find_protected(source), *(match.span() for match in _NAME.finditer(source))])
    counts = Counter(source[start:end] for start, end in ranges)
    shared = {text for text, count in counts.items() if locate([text] * count, target) is not None}
    kept = [(start, end) for start, end in ranges if source[start:end] in shared][: len(MASKS)]
    found = locate([source[start:end] for start, end in kept], target)
    if not found:
        return pair
    masks = random.sample(MASKS, len(kept))
    order = sorted(range(len(found)), key=found.__getitem__)
    masked, _ = mask(target, [found[index] for index in order], [masks[index] for index in order])
    return SentencePair(mask(source, kept, masks)[0], masked)


def _find_terms(pair: SentencePair, lexicon: "Lexicon") -> list[_AlignedTerm]:
    """Return the words that the lexicon translates by a word of the target. Both are on their side once."""
    targets = _words_by_form(pair.target, casefold=False)
    found = []
    for word, places in _words_by_form(pair.source, casefold=True).items():
        forms = lexicon.get(word, {})
        there = [form for form in forms if len(targets.get(form, ())) == 1]
        if len(places) == 1 and len(there) == 1:
            found.append(_AlignedTerm(*places[0], *targets[there[0]][0], forms[there[0]]))
    return sorted(found)


def _words_by_form(text: str, casefold: bool) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for start, end in split_units(text):
        word = text[start:end]
        found.setdefault(word.casefold() if casefold else word, []).append((start, end))
    return found


def _join(pair: SentencePair, terms: Sequence[_AlignedTerm], random: Random) -> list[_AlignedTerm]:
    """Join some terms that are neighbors in both texts. The translation of several words is annotated as it is."""
    joined = list(terms[:1])
    for before, term in pairwise(terms):
        gaps = pair.source[before.end : term.start], pair.target[before.target_end : term.target_start]
        if all(map(re.compile(r"\s+").fullmatch, gaps)) and random.random() < _JOINED:
            first = joined.pop()
            form = pair.target[first.target_start : term.target_end]
            term = _AlignedTerm(first.start, term.end, first.target_start, term.target_end, form)
        joined.append(term)
    return joined
