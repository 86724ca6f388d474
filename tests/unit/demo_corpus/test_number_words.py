"""Number words and times of day."""

from collections.abc import Callable

import pytest

from tools.demo_corpus.number_words import english_clock, english_number, german_clock, german_number

NUMBERS = {
    1: ("one", "eins"),
    6: ("six", "sechs"),
    7: ("seven", "sieben"),
    10: ("ten", "zehn"),
    11: ("eleven", "elf"),
    12: ("twelve", "zwölf"),
    13: ("thirteen", "dreizehn"),
    16: ("sixteen", "sechzehn"),
    17: ("seventeen", "siebzehn"),
    20: ("twenty", "zwanzig"),
    21: ("twenty-one", "einundzwanzig"),
    30: ("thirty", "dreißig"),
    36: ("thirty-six", "sechsunddreißig"),
    47: ("forty-seven", "siebenundvierzig"),
    61: ("sixty-one", "einundsechzig"),
    77: ("seventy-seven", "siebenundsiebzig"),
    99: ("ninety-nine", "neunundneunzig"),
    100: ("one hundred", "einhundert"),
    101: ("one hundred and one", "einhunderteins"),
    112: ("one hundred and twelve", "einhundertzwölf"),
    205: ("two hundred and five", "zweihundertfünf"),
    666: ("six hundred and sixty-six", "sechshundertsechsundsechzig"),
    1000: ("one thousand", "eintausend"),
    1001: ("one thousand and one", "eintausendeins"),
    1100: ("one thousand one hundred", "eintausendeinhundert"),
    2016: ("two thousand and sixteen", "zweitausendsechzehn"),
    3421: ("three thousand four hundred and twenty-one", "dreitausendvierhunderteinundzwanzig"),
    7070: ("seven thousand and seventy", "siebentausendsiebzig"),
    9999: ("nine thousand nine hundred and ninety-nine", "neuntausendneunhundertneunundneunzig"),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_number_words_match_the_words_written_by_hand(number: int) -> None:
    assert (english_number(number), german_number(number)) == NUMBERS[number]


@pytest.mark.parametrize("spell", [english_number, german_number])
def test_number_words_are_distinct(spell: Callable[[int], str]) -> None:
    assert len({spell(number) for number in range(1, 10000)}) == 9999


def test_german_number_reads_back_as_itself() -> None:
    for number in range(1, 10000):
        assert read_german_number(german_number(number)) == number


def read_german_number(word: str) -> int:
    """Read a number word from left to right, with no use of the speller."""
    total = 0
    for mark, value in (("tausend", 1000), ("hundert", 100)):
        head, found, tail = word.partition(mark)
        if found:
            total, word = total + value * read_below_hundred(head), tail
    return total + read_below_hundred(word)


def read_below_hundred(word: str) -> int:
    ones = ["", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
    teens = ["dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]
    tens = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
    if word == "eins":
        return 1
    if word in ones + teens:
        return (ones + teens).index(word)
    head, _, tail = word.rpartition("und")
    return 10 * (tens.index(tail) + 2) + ones.index(head)


@pytest.mark.parametrize("number", [0, -3, 10000])
def test_number_words_refuse_a_number_out_of_range(number: int) -> None:
    for spell in (english_number, german_number):
        with pytest.raises(ValueError, match=f"got {number}"):
            spell(number)


@pytest.mark.parametrize(
    ("hour", "quarter", "english", "german"),
    [
        (7, 0, "at seven o'clock", "um sieben Uhr"),
        (1, 0, "at one o'clock", "um ein Uhr"),
        (7, 1, "at a~quarter past seven", "um Viertel nach sieben"),
        (1, 1, "at a~quarter past one", "um Viertel nach eins"),
        (7, 2, "at half~past seven", "um halb acht"),
        (12, 2, "at half~past twelve", "um halb eins"),
        (7, 3, "at a~quarter to eight", "um Viertel vor acht"),
        (12, 3, "at a~quarter to one", "um Viertel vor eins"),
    ],
)
def test_clock_words_match_the_words_written_by_hand(hour: int, quarter: int, english: str, german: str) -> None:
    assert (english_clock(hour, quarter), german_clock(hour, quarter)) == (english, german)
