"""
Find signs of a bad translation in its text: copies, repetitions, other numbers, other scripts,
another length.

The rules are pure functions of a source and its translation. They need neither a model nor a
reference, and apply to the pairs of a corpus as well.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import regex

from vanilla_transformer.errors import UserError

from .languages import is_in_another_language
from .protection import remove_protected
from .scripts import count_scripts, find_scripts, normalize
from .units import split_graphemes, split_words

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# The warnings, and what each says about a translation.
WARNINGS = {
    "copy": "words are copied from the source",
    "repetition": "words are repeated",
    "numbers": "a number differs from the source",
    "script": "letters are of another script",
    "length": "it is unusually short or long",
    "characters": "characters are broken",
}
OF_TEXT = (*WARNINGS,)  # those that need neither a glossary nor a model
WARNINGS |= {
    "terms": "a term is not translated as the glossary says",
    "language": "the source is in another language than the model translates",
    "capitals": "the model knows no word in capitals of the source",
    "ending": "its last word has no counterpart in the source",
}
_COPIED_WORDS = 4  # at least, in a row; names of people, places and titles are shorter
_MOST_WORDS = 200  # in which a copy is looked for
_COPIED_SHARE = 0.5  # of the words of the translation
_REPEATED_WORD = 3  # times in a row; "die die" and "had had" are grammatical
_REPEATED_PHRASE = 2  # times in a row, with at least so many words:
_PHRASE_WORDS = 2
# "Hand in Hand in" and parts of words, in scripts without spaces, come twice by chance.
_PHRASE_CHARACTERS = 8
_LONGEST_PHRASE = 8
_SPELLED_OUT = 12  # numbers up to this one are often written as words
_LONGEST_WORD = 3  # digits of a number that may be written as a word
_REPEATED_SIGNS = 4  # times in a row, of signs or parts of words
_FOREIGN_SHARE = 0.05  # of the letters of a text
_NAMES = 3  # at most, which tell no script; more words in capitals or in title case are a sentence
USED_SHARE = 0.001  # of the letters of a text, from which on it uses a script
_LABEL_WORDS = 8  # at most, of a title or a label, which ends without a period
_BROKEN = "\N{REPLACEMENT CHARACTER}"
_SMOOTHING = 10  # characters added to both sides, since ratios of short texts vary more
_LENGTH_QUANTILES = (0.001, 0.999)
_DIGIT = re.compile(r"\d")
# Digits in groups of three after spaces or Arabic commas, and digits with any other separators
_NUMBER = regex.compile(
    r"(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f،٬]\d{3}(?!\d))++(?:[.,٫]\d++)?"
    r"|\d++(?:[.,:٫፡：'\u2019]\d++)*+"
)
# Ordinals and decades of English, for which all languages have words
_ORDINAL = regex.compile(r"\d++(?:,\d++)*+(?=(?:st|nd|rd|th|s)\b)")
# Chinese, Japanese and Korean powers of ten, which stand for zeros, as in 10万4500 or 3억 4천만
_POWER_OF_TEN = regex.compile(r"(?<=\d)\s?[百千万萬亿億兆백천만억조]++(?:\s(?=\d))?")
_HOUR_AND_MINUTES = r"(?<=\d)\s?(?:[hH時时点點시]|Uhr|နာရီ)\s?(?=\d\d(?!\d))"
# Signs or letters that follow each other, maybe each after a space: aaaa, //////, hahahaha, _ _ _ _
_LOOP = re.compile(rf"([^\s\d]{{1,20}}?)(\s?)(?:\1\2){{{_REPEATED_SIGNS - 2},}}\1")
_ELLIPSIS = re.compile(r"(?<!\.)\.{3,6}(?!\.)")
# Text whose letters are all Latin. The micro sign is a Greek letter.
_LATIN = regex.compile("[\0-\u024f\u2010-\u2027\u20ac--\u00b5]*+", regex.V1)
# Acronyms and names, in scripts with capitals
_NAME = regex.compile(r"\b\p{Lu}[\w&.-]*")


@dataclass(frozen=True)
class WarningLimits:
    """
    Usual lengths and scripts in the languages of a model, see [`measure_limits`].

    Attributes:
        shortest, longest: Range of the length of a translation divided by that of its source. Both
            lengths count characters, each with its marks, and 10 more.
        scripts: Names of Unicode, such as LATIN, of the scripts in which translations are written.
            Without any, no script is a reason for a warning.
        source_scripts: Scripts of the sources, likewise; training stores them.
    """

    shortest: float = 0.2
    longest: float = 5.0
    scripts: Sequence[str] = ()
    source_scripts: Sequence[str] = ()

    @classmethod
    def from_config(cls, config: "PreTrainedConfig | None") -> "WarningLimits":
        """Return the limits that the configuration of a model has as `warning_limits`, or limits
        for any languages.
        """
        stored = getattr(config, "warning_limits", None) or {}
        try:
            limits = cls(**stored)
            scripts = [*limits.scripts, *limits.source_scripts]
            are_names = all(isinstance(script, str) for script in scripts)
            if not 0 <= limits.shortest <= limits.longest or not are_names:
                raise UserError
        except (TypeError, UserError) as error:
            hint = (
                "`vanilla-transformer calibrate MODEL --source FILE --target FILE` writes it again."
            )
            raise UserError(f"`warning_limits` in the configuration is damaged. {hint}") from error
        return limits


def find_warnings(
    source: str,
    translation: str,
    limits: WarningLimits,
    glossary: Any = None,
    language: str | None = None,
    is_spelled: bool = False,
    aligned_end: int = 0,
) -> list[str]:
    """Return the [`WARNINGS`] that apply to a translation.

    - "copy": half of the words of the translation, and at least 4, are copied from the source in
      one piece.
    - "repetition": a word comes 3 times in a row, a phrase of 2 to 8 words twice, or a sign 4
      times, unless the source repeats one.
    - "numbers": one side has a number in digits that the other side lacks. Numbers up to 12,
      ordinals and decades may be written as words.
    - "script": the usual scripts are absent, see [`has_other_scripts`], in the translation or in
      the source.
    - "length": the length divided by that of the source is out of the range of `limits`.
    - "characters": bytes of the translation are no characters, so that it has � instead.
    - "terms": a wanted translation of a term of the glossary of the request is absent, whatever its
      ending.
    - "language": the source is clearly in another language than `language`, and has 30 characters
      or more. It needs the extra `cleaning`.
    - "capitals": the source is in capitals, of which the model knows the letters alone, and is not
      copied.
    - "ending": a source of at most 8 words without a period at its end is a title or a label, and
      its translation has more words, of which the last one has no counterpart.

    Args:
        language: Code of the language that the model translates, if it is known.
        is_spelled: Whether each token of the source has one letter at most.
        aligned_end: The end of the last word of the translation that has a counterpart in the
            source; 0 without an alignment, or where a word of the source has no counterpart.
    """
    warnings = []
    if is_copy(source, translation):
        warnings.append("copy")
    if has_repetition(source, translation):
        warnings.append("repetition")
    if has_other_numbers(source, translation):
        warnings.append("numbers")
    has_other_script = has_other_scripts(translation, limits.scripts)
    if has_other_script or has_other_scripts(source, limits.source_scripts):
        warnings.append("script")
    if not limits.shortest <= length_ratio(source, translation) <= limits.longest:
        warnings.append("length")
    if translation.count(_BROKEN) > source.count(_BROKEN):
        warnings.append("characters")
    if glossary is not None and glossary.is_ignored(remove_protected(source), translation):
        warnings.append("terms")
    if is_in_another_language(source, language):
        warnings.append("language")
    if is_spelled and source.isupper() and source not in translation:
        warnings.append("capitals")
    last = "".join(translation[aligned_end:].partition(" ")[2].split()[-1:])
    is_longer = is_label(source) and len(split_words(translation)) > len(split_words(source))
    if is_longer and aligned_end and last.isalpha():
        warnings.append("ending")
    return warnings


def is_label(source: str) -> bool:
    """Return whether a source is a title or a label: short, without a final sign."""
    return source.rstrip()[-1:].isalnum() and len(split_words(source)) <= _LABEL_WORDS


def describe_warnings(names: Iterable[str]) -> str:
    """Return what warnings say, with their names."""
    return "; ".join(f"{WARNINGS[name]} ({name})" for name in dict.fromkeys(names))


def describe_doubts(names: Iterable[str]) -> str:
    """Return the comment that a document has about a translation with warnings; nothing without."""
    reasons = describe_warnings(names)
    return reasons and f"Doubtful machine translation: {reasons}"


def is_copy(source: str, translation: str) -> bool:
    """Return whether a long run of the words of the source is at least half of the translation, and
    also without text to keep in both.
    """
    return _has_run(source, translation) and _has_run(
        remove_protected(source), remove_protected(translation)
    )


def _has_run(source: str, translation: str) -> bool:
    # All pairs of equal words are compared, so only the first words of long texts count.
    words, others = _words(source)[:_MOST_WORDS], _words(translation)[:_MOST_WORDS]
    run = SequenceMatcher(None, words, others, autojunk=False).find_longest_match()
    copied = [word for word in words[run.a : run.a + run.size] if not word.isdigit()]
    return len(copied) >= _COPIED_WORDS and run.size >= _COPIED_SHARE * len(others)


def has_repetition(source: str, translation: str) -> bool:
    """Return whether the translation repeats words or signs at once, more often than the source
    repeats some.
    """
    source_words = [word for word in _words(source) if not word.isdigit()]
    words = [word for word in _words(translation) if not word.isdigit()]
    limits = [(1, _REPEATED_WORD, 0)]
    for size in range(_PHRASE_WORDS, _LONGEST_PHRASE + 1):
        limits += [(size, _REPEATED_PHRASE, _PHRASE_CHARACTERS), (size, _REPEATED_WORD, 0)]
    for size, least, characters in limits:
        repeats = most_repeats(words, size, characters)
        if repeats >= least and repeats > most_repeats(source_words, size, characters):
            return True
    # Lines of signs, as in a table of contents, may be longer in the translation.
    signs = _most_signs(translation)
    return signs >= _REPEATED_SIGNS and signs > 2 * _most_signs(source)


def _most_signs(text: str) -> int:
    """Return how many times in a row some signs come, for the longest row."""
    most = 1
    for row in _LOOP.finditer(_ELLIPSIS.sub("…", text)):
        sign_length = len(row[1] + row[2])
        most = max(most, (len(row[0]) + len(row[2])) // sign_length)
    return most


def most_repeats(words: Sequence[str], size: int, characters: int = 0) -> int:
    """Return how many times in a row a phrase of `size` words comes, for the phrase with the
    longest row.

    Args:
        characters: The least number of characters of the phrase.
    """
    most = equal = 0
    for index, (word, next_word) in enumerate(zip(words, words[size:], strict=False), 1):
        equal = equal + 1 if word == next_word else 0
        if equal > most and sum(map(len, words[index : index + size])) >= characters:
            most = equal
    return 1 + most // size


def has_other_numbers(source: str, translation: str, spelled_out: int = _SPELLED_OUT) -> bool:
    """Return whether one side has a number that the other side neither has nor may have written as
    a word.

    Args:
        spelled_out: The largest number that may be a word, besides English ordinals and decades.
    """
    if not _DIGIT.search(source) and not _DIGIT.search(translation):
        return False
    texts = [_in_one_notation(source), _in_one_notation(translation)]
    strip_zeros = any(map(_POWER_OF_TEN.search, texts))
    source_numbers, numbers = (_count_numbers(_NUMBER, text, strip_zeros) for text in texts)
    missing, added = source_numbers - numbers, numbers - source_numbers
    if missing and added:
        return True
    ordinals = _count_numbers(_ORDINAL, "\n".join(texts), strip_zeros)
    lone = missing + added - ordinals
    return any(len(number) > _LONGEST_WORD or int(number or 0) > spelled_out for number in lone)


def _lengthen_year(match: regex.Match[str]) -> str:
    century, year, _, last_year = match.groups()
    return match[0] + century if last_year > year else match[0]


_YEARS_OF_BUDDHA = 543  # before the first year of the common era
# Other ways to write dates, times, years and centuries, and how they are read
_NOTATIONS: list[tuple[regex.Pattern[str], str | Callable[[regex.Match[str]], str]]] = [
    (regex.compile(r"[\p{Nd}--[0-9]]", regex.V1), lambda match: str(int(match[0]))),
    # 24.9.1759 as 24 September 1759
    (regex.compile(r"(?<!\d)(\d{1,2})\.(\d{1,2})\.(?=\d{4}(?!\d))"), r"\1 \2 "),
    # 11 h 20, 11時20分 and 11시 20분 as 11:20, 0230 UTC as 2:30, 23:35 as 11:35, and 11:00 as 11
    (regex.compile(_HOUR_AND_MINUTES), ":"),
    (regex.compile(r"(?<!\d)(\d\d)(?=\d\d\s?(?:UTC|GMT)\b)"), r"\1:"),
    (
        regex.compile(r"(?<![\d.,:])(?:1[3-9]|2[0-3])(?=[.,:፡：][0-5]\d(?![.,:]?\d))"),
        lambda match: str(int(match[0]) - 12),
    ),
    (regex.compile(r"(?<=\d)[.,:፡：]00(?![.,:፡：]?\d)"), ""),
    # 1995-96 as 1995-1996, and the Buddhist year 2553 as 2010
    (regex.compile(r"(?<!\d)(\d\d)(\d\d)(\s?[-–/]\s?)(?=(\d\d)(?![\d/-]))"), _lengthen_year),
    (regex.compile(r"(?<=พ\.ศ\.\s?)\d{4}"), lambda match: str(int(match[0]) - _YEARS_OF_BUDDHA)),
    # 1400-luku, 1400-tallet and the 1400s as the 15th century, and 20世纪70年代 as the 1970s
    (
        regex.compile(r"(?<!\d)(1?\d)00(?=-(?:lu[kv]u|tal|\s(?:ja|och|og)\s)|s\b)"),
        lambda match: str(int(match[1]) + 1),
    ),
    (
        regex.compile(r"(?<!\d)(\d\d?)\s?世[纪紀]\s?(\d0)(?=\s?年代)"),
        lambda match: f"{int(match[1]) - 1}{match[2]}",
    ),
]


def _in_one_notation(text: str) -> str:
    for pattern, notation in _NOTATIONS:
        text = pattern.sub(notation, text)
    return text


def _count_numbers(pattern: regex.Pattern[str], text: str, strip_zeros: bool) -> Counter[str]:
    """Count numbers by their digits, without separators, which differ among languages, and leading
    zeros, and also without zeros at the end if powers of ten may stand for them.
    """
    counts: Counter[str] = Counter()
    for number in pattern.findall(_POWER_OF_TEN.sub("", text)):
        digits = "".join(filter(str.isdecimal, number)).lstrip("0")
        if strip_zeros:
            digits = digits.rstrip("0")
        counts[digits] += 1
    return counts


def has_other_scripts(text: str, scripts: Sequence[str]) -> bool:
    """
    Return whether the usual scripts are absent from a text, or 5 % of its letters are neither of
    these nor Latin.

    Protected text does not count, nor do three acronyms or names: all languages write some in other
    scripts.

    Args:
        scripts: The usual ones. Without any, all are.
    """
    # Most texts have usual letters alone. Finding protected text takes ten times as long.
    if not scripts or ("LATIN" in scripts and _LATIN.fullmatch(text)):
        return False
    if {*count_scripts(text)} <= {*scripts}:
        return False
    text = remove_protected(text)
    letters, others = count_scripts(text), count_scripts(_NAME.sub("", text, count=_NAMES))
    has_usual = any(letters[script] for script in scripts)
    foreign = 0
    for script, count in others.items():
        if script not in scripts and not (has_usual and script == "LATIN"):
            foreign += count
    return foreign > _FOREIGN_SHARE * letters.total()


def letter_ratio(text: str) -> float:
    """Return the share of letters, with their marks, of the characters of a text that are no
    spaces.
    """
    letters = characters = 0
    for character, count in Counter(text).items():
        if not character.isspace():
            characters += count
        if unicodedata.category(character)[0] in "LM":
            letters += count
    return letters / characters if letters else 0.0


def length_ratio(source: str, translation: str) -> float:
    """Return the length of a translation divided by that of its source, in characters with marks,
    and 10 more.
    """
    source_length = len(split_graphemes(source)) + _SMOOTHING
    length = len(split_graphemes(translation)) + _SMOOTHING
    return length / source_length


def measure_limits(sources: Sequence[str], translations: Sequence[str]) -> WarningLimits:
    """Return limits from good translations: 99.8 % of the lengths, and scripts with 0.1 % of the
    letters.
    """
    import numpy as np  # recipes, whose help is shown at once, import this module

    ratios = [length_ratio(*pair) for pair in zip(sources, translations, strict=True)]
    shortest, longest = np.quantile(ratios, _LENGTH_QUANTILES)
    scripts = find_scripts(translations, USED_SHARE)
    source_scripts = find_scripts(sources, USED_SHARE)
    return WarningLimits(float(shortest), float(longest), scripts, source_scripts)


def _words(text: str) -> list[str]:
    return split_words(normalize("NFC", text.casefold()))
