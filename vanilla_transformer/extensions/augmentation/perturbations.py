"""
Change a pair as its author might have: its case, with typos, without its final period and so on.

Each perturbation is a pure function of a text and of the numbers that it draws. Stress tests and
augmentation of training text share them.
"""

import random
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import regex

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.text.units import FURTHER, UNSPACED, split_graphemes

# Letters in a row, with their marks, in scripts with spaces between words; and words, which may
# have an apostrophe or, in Hebrew, quotation marks inside.
_SPELLED = rf"(?:[[\p{{L}}\p{{Nl}}\p{{No}}]--{UNSPACED}][{FURTHER}]*+)++"
_LETTERS = regex.compile(_SPELLED, regex.V1)
_WORD = regex.compile(
    rf"""{_SPELLED}(?:(?:['’׳״]|(?<=\p{{Hebrew}}[{FURTHER}]*)"(?=\p{{Hebrew}})){_SPELLED})*""",
    regex.V1,
)
_LONG_WORD = 4  # letters
_NUMBER = re.compile(r"\d+(?:[.,٫٬]\d+)*")
_WORDS_PER_CHANGE = 10  # one typo or doubled word in each started ten
# Latin, Chinese, Indic, Urdu, Armenian, Ethiopic, Burmese, Khmer, Tibetan, Mongolian, Santali,
# Meitei, Cree
PERIODS = ".。｡．।॥۔։።။។៕།༎᠃᠉᱾᱿꯫᙮"
_EMOJI = "😀😂😍🙏👍🎉🔥🚀🌍🐶"


def typos(text: str, draw: random.Random) -> str:
    """Swap, drop or double a letter, not the first one, in one of each started ten words of four
    letters or more.
    """

    def misspell(word: str) -> str:
        letters = split_graphemes(word)
        position = draw.randrange(1, len(letters) - 1)
        kind = draw.choice(["swap", "drop", "double"])
        letter, after = letters[position : position + 2]
        changes = {"swap": [after, letter], "drop": [after], "double": [letter, letter, after]}
        return "".join([*letters[:position], *changes[kind], *letters[position + 2 :]])

    matches = _LETTERS.finditer(text)
    words = [match for match in matches if len(split_graphemes(match[0])) >= _LONG_WORD]
    return _change_words(words, misspell, text, draw)


def doubled_words(text: str, draw: random.Random) -> str:
    """Write one of each started ten words twice."""
    return _change_words(_WORD.finditer(text), lambda word: f"{word} {word}", text, draw)


def _change_words(
    words: Iterable[regex.Match[str]], change: Callable[[str], str], text: str, draw: random.Random
) -> str:
    """Change one of each started ten words of a text."""
    spans = [match.span() for match in words]
    chosen = draw.sample(spans, -(-len(spans) // _WORDS_PER_CHANGE))
    for start, end in sorted(chosen, reverse=True):
        text = text[:start] + change(text[start:end]) + text[end:]
    return text


def html_tags(text: str, draw: random.Random) -> str:
    """Put a pair of HTML tags around the text."""
    tag = draw.choice(["b", "i", "p", "span"])
    return f"<{tag}>{text}</{tag}>"


def other_numbers(text: str, draw: random.Random) -> str:
    """Replace the digits of each number of two digits or more. The same number becomes the same
    other one.

    Digits stay digits of their script.
    """
    seed = draw.random()

    def replace(match: re.Match[str]) -> str:
        digits = [int(character) for character in match[0] if character.isdecimal()]
        if len(digits) < 2:
            return match[0]
        others = random.Random(f"{seed} {digits}")
        changed = []
        for character in match[0]:
            if character.isdecimal():
                digit = int(character)
                new = others.choice([other for other in range(1, 10) if other != digit])
                character = chr(ord(character) - digit + new)
            changed.append(character)
        return "".join(changed)

    return _NUMBER.sub(replace, text)


# Properties of scripts, and the letters of the scripts that have them. Georgian text has no
# capitals.
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
        needs: What the script of the source must have, such as capitals. Without it, neither side
            changes.
    """

    apply: Callable[[str, random.Random], str]
    on_target: bool
    needs: str | None = None

    def suits(self, source: str) -> bool:
        """Return whether the change is meant for the script of a source, by most of its letters."""
        if self.needs is None:
            return True
        suitable = len(_SCRIPTS_WITH[self.needs].findall(source))
        return 2 * suitable >= len(_LETTER.findall(source))


PERTURBATIONS = {
    "title_case": Perturbation(
        lambda text, draw: re.sub(r"\S+", lambda match: match[0][0].title() + match[0][1:], text),
        on_target=True,
        needs="capitals",
    ),
    "upper_case": Perturbation(lambda text, draw: text.upper(), on_target=True, needs="capitals"),
    "lower_case": Perturbation(lambda text, draw: text.lower(), on_target=False, needs="capitals"),
    "typos": Perturbation(typos, on_target=False, needs="spaces between words"),
    "no_final_period": Perturbation(
        lambda text, draw: text.rstrip(PERIODS), on_target=True, needs="a period"
    ),
    "doubled_words": Perturbation(doubled_words, on_target=False, needs="spaces between words"),
    "emoji": Perturbation(lambda text, draw: f"{text} {draw.choice(_EMOJI)}", on_target=True),
    "html_tags": Perturbation(html_tags, on_target=True),
    "other_numbers": Perturbation(other_numbers, on_target=True),
}


def perturb(name: str, pair: SentencePair, seed: int | str) -> SentencePair:
    """Apply one of the `PERTURBATIONS` to a source that it suits, and to its translation where that
    changes too.

    Both sides draw the same numbers, which depend on the seed only.
    """
    change = PERTURBATIONS[name]
    if not change.suits(pair.source):
        return pair
    source = change.apply(pair.source, random.Random(str(seed)))
    target = pair.target
    if change.on_target:
        target = change.apply(target, random.Random(str(seed)))
    return SentencePair(source, target)
