"""
Change sentences as their authors do: another case, typos, doubled words, no period, emoji, markup, other numbers.

Each perturbation is a pure function of a text and of the numbers that it draws. Stress tests and augmentation of
training text share them.
"""

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from .readers import SentencePair

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORDS_PER_CHANGE = 10  # one typo or doubled word in each started ten
_PERIODS = ".。।"
_EMOJI = "😀😂😍🙏👍🎉🔥🚀🌍🐶"


def title_case(text: str, draw: random.Random) -> str:
    """Begin each word with a capital."""
    return re.sub(r"\S+", lambda match: match[0][0].upper() + match[0][1:], text)


def upper_case(text: str, draw: random.Random) -> str:
    """Write the text in capitals."""
    return text.upper()


def lower_case(text: str, draw: random.Random) -> str:
    """Write the text without capitals."""
    return text.lower()


def typos(text: str, draw: random.Random) -> str:
    """Swap, drop or double a letter in one of each started ten words of four letters or more."""
    return _change_words(_LONG_WORD, _misspell, text, draw)


def no_final_period(text: str, draw: random.Random) -> str:
    """Remove the period at the end."""
    return text.rstrip(_PERIODS)


def doubled_words(text: str, draw: random.Random) -> str:
    """Write one of each started ten words twice."""
    return _change_words(_WORD, lambda word, draw: f"{word} {word}", text, draw)


def emoji(text: str, draw: random.Random) -> str:
    """Add an emoji at the end."""
    return f"{text} {draw.choice(_EMOJI)}"


def html_tags(text: str, draw: random.Random) -> str:
    """Put a pair of HTML tags around the text."""
    tag = draw.choice(["b", "i", "p", "span"])
    return f"<{tag}>{text}</{tag}>"


def other_numbers(text: str, draw: random.Random) -> str:
    """Replace the digits of each number of two digits or more. The same number becomes the same other one."""
    seed = draw.random()

    def replace(match: re.Match[str]) -> str:
        digits = [int(each) for each in match[0] if each.isdecimal()]
        if len(digits) < 2:
            return match[0]
        others = random.Random(f"{seed} {digits}")
        found = [str(others.choice([new for new in range(1, 10) if new != old])) for old in digits]
        return "".join(found.pop(0) if each.isdecimal() else each for each in match[0])

    return _NUMBER.sub(replace, text)


class Perturbation(NamedTuple):
    """
    A change of a source.

    Attributes:
        apply: Returns the changed text.
        on_target: Whether a good translation changes in the same way.
    """

    apply: Callable[[str, random.Random], str]
    on_target: bool


PERTURBATIONS = {
    "title_case": Perturbation(title_case, on_target=True),
    "upper_case": Perturbation(upper_case, on_target=True),
    "lower_case": Perturbation(lower_case, on_target=False),
    "typos": Perturbation(typos, on_target=False),
    "no_final_period": Perturbation(no_final_period, on_target=True),
    "doubled_words": Perturbation(doubled_words, on_target=False),
    "emoji": Perturbation(emoji, on_target=True),
    "html_tags": Perturbation(html_tags, on_target=True),
    "other_numbers": Perturbation(other_numbers, on_target=True),
}


def perturb(name: str, pair: SentencePair, seed: int | str) -> SentencePair:
    """Apply one of the `PERTURBATIONS` to a source, and to its translation where that changes too.

    Both sides draw the same numbers, which depend on the seed only.
    """
    apply, on_target = PERTURBATIONS[name]
    source = apply(pair.source, random.Random(str(seed)))
    return SentencePair(source, apply(pair.target, random.Random(str(seed))) if on_target else pair.target)


def _change_words(
    words: re.Pattern[str], change: Callable[[str, random.Random], str], text: str, draw: random.Random
) -> str:
    """Change one of each started ten matches in a text."""
    found = [match.span() for match in words.finditer(text)]
    chosen = draw.sample(found, -(-len(found) // _WORDS_PER_CHANGE))
    for start, end in sorted(chosen, reverse=True):
        text = text[:start] + change(text[start:end], draw) + text[end:]
    return text


def _misspell(word: str, draw: random.Random) -> str:
    """Change a letter of a word that is not the first one."""
    place, kind = draw.randrange(1, len(word) - 1), draw.choice(["swap", "drop", "double"])
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == "swap":
        return before + after[0] + letter + after[1:]
    return before + after if kind == "drop" else before + 2 * letter + after


__all__ = ["PERTURBATIONS", "Perturbation", "perturb"]
