"""Number words and times of day in both languages, for whole numbers from 1 to 9999."""

from __future__ import annotations

_ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_ENGLISH_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_GERMAN = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_GERMAN_TENS = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
LARGEST_NUMBER = 9999


def english_number(number: int) -> str:
    """Spell a number in British English ("three thousand and five", "one hundred and twenty-one").

    Raises:
        ValueError: if `number` is outside 1 … 9999.
    """
    _check(number)
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    words = [_ENGLISH[thousands], "thousand"] if thousands else []
    words += [_ENGLISH[hundreds], "hundred"] if hundreds else []
    if rest:
        words += ["and"] if words else []
        words.append(_english_below_hundred(rest))
    return " ".join(words)


def german_number(number: int) -> str:
    """Spell a number in German as one word ("dreitausendfünf", "einhunderteinundzwanzig").

    One hundred and one thousand are written out as einhundert and eintausend, as English says them.

    Raises:
        ValueError: if `number` is outside 1 … 9999.
    """
    _check(number)
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    word = f"{_german_stem(thousands)}tausend" if thousands else ""
    word += f"{_german_stem(hundreds)}hundert" if hundreds else ""
    return word + (_german_below_hundred(rest) if rest else "")


def english_clock(hour: int, quarter: int) -> str:
    """Say a time of day: `hour` from 1 to 12 and the quarters of an hour passed, from 0 to 3.

    A tie `~` binds the words that one German word translates.
    """
    if quarter == 0:
        return f"at {_ENGLISH[hour]} o'clock"
    if quarter == 3:
        return f"at a~quarter to {_ENGLISH[hour % 12 + 1]}"
    return f"at {('a~quarter past', 'half~past')[quarter - 1]} {_ENGLISH[hour]}"


def german_clock(hour: int, quarter: int) -> str:
    """Say a time of day in German, which counts half hours toward the coming hour (half past six: halb sieben)."""
    coming = _GERMAN[hour % 12 + 1]
    if quarter == 0:
        return f"um {_german_stem(hour)} Uhr"
    return (f"um Viertel nach {_GERMAN[hour]}", f"um halb {coming}", f"um Viertel vor {coming}")[quarter - 1]


def _check(number: int) -> None:
    if not 1 <= number <= LARGEST_NUMBER:
        raise ValueError(f"Number words reach from 1 to {LARGEST_NUMBER}; got {number}. Give a number in that range.")


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return _ENGLISH[number]
    tens = _ENGLISH_TENS[number // 10]
    return f"{tens}-{_ENGLISH[number % 10]}" if number % 10 else tens


def _german_below_hundred(number: int) -> str:
    if number < 20:
        return _GERMAN[number]
    tens = _GERMAN_TENS[number // 10]
    return f"{_german_stem(number % 10)}und{tens}" if number % 10 else tens


def _german_stem(digit: int) -> str:
    """Return the form in front of another word: ein-, not eins."""
    return "ein" if digit == 1 else _GERMAN[digit]
