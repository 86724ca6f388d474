"""Perturbations of text: what each one changes, by letters with their marks and by script, and that
seeds decide.
"""

import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeps import sample
from tests.unicode_texts import (
    SCRIPTS,
    UNSPACED,
    WITH_CASE,
    WITHOUT_PERIODS,
    in_form,
    letters,
    sentences,
)
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.extensions.augmentation.perturbations import PERTURBATIONS, perturb

SENTENCES = SentencePair(
    "The dog didn't see 1,250 cats.",
    "Der Hund sah 1.250 Katzen nicht.",
)


HINDI = SentencePair("यह कमरा 1 बड़ा है।", "This room 1 is big.")
CASE = ("title_case", "upper_case", "lower_case")


@pytest.mark.parametrize(
    ("name", "pair", "source", "target"),
    [
        (
            "title_case",
            SENTENCES,
            "The Dog Didn't See 1,250 Cats.",
            "Der Hund Sah 1.250 Katzen Nicht.",
        ),
        (
            "upper_case",
            SENTENCES,
            "THE DOG DIDN'T SEE 1,250 CATS.",
            "DER HUND SAH 1.250 KATZEN NICHT.",
        ),
        ("lower_case", SENTENCES, "the dog didn't see 1,250 cats.", SENTENCES.target),
        (
            "no_final_period",
            SENTENCES,
            "The dog didn't see 1,250 cats",
            "Der Hund sah 1.250 Katzen nicht",
        ),
        *(
            ("no_final_period", SentencePair(f"а{mark}", f"б{mark}"), "а", "б")
            for mark in ".。｡．।॥۔։။።៕།"
        ),
        # Both sides stay as they are if the source has no capitals.
        *((name, HINDI, *HINDI) for name in CASE),
        ("upper_case", SentencePair(*reversed(HINDI)), HINDI.target.upper(), HINDI.source),
    ],
)
def test_perturb_changes_case_and_periods(name, pair, source, target):
    assert perturb(name, pair, 0) == (source, target)


def test_typos_change_one_long_word_in_ten():
    pair = SentencePair("Ab cde fghij klm.", "Nopqr stuvw.")
    pairs = {perturb("typos", pair, seed) for seed in range(200)}
    changed = ["fhgij", "fgihj", "fghji"]
    changed += ["fhij", "fgij", "fghj"]
    changed += ["fgghij", "fghhij", "fghiij"]
    assert pairs == {(f"Ab cde {word} klm.", pair.target) for word in changed}
    words = [f"word{letter}" for letter in string.ascii_lowercase]
    text = " ".join(words) * 2
    source = perturb("typos", SentencePair(text, "x"), 0).source
    words = zip(text.split(), source.split(), strict=True)
    changed = [word for word, other in words if word != other]
    assert 1 <= len(changed) <= 6


def test_doubled_words_doubles_one_word_in_ten():
    pairs = {perturb("doubled_words", SENTENCES, seed) for seed in range(100)}
    words = ["The", "dog", "didn't", "see", "cats"]
    for word in words:
        source = SENTENCES.source.replace(word, f"{word} {word}")
        assert (source, SENTENCES.target) in pairs
    assert len(pairs) == len(words)


@pytest.mark.parametrize("name", ["emoji", "html_tags", "other_numbers"])
def test_perturb_changes_both_sides_alike(name):
    for seed in range(20):
        source, target = perturb(name, SENTENCES, seed)
        source_in_german = source.replace("The dog didn't see", "Der Hund sah")
        target_in_english = target.replace(" nicht", "").replace("Katzen", "cats")
        assert source_in_german.replace(",", ".") == target_in_english
        assert source != SENTENCES.source


def test_other_numbers_replaces_equal_numbers_by_equal_ones():
    pair = SentencePair("12 and 12 and 5 of 2,021", "x")
    source = perturb("other_numbers", pair, 3).source
    first, second, other = source.split(" and ")
    assert first == second != "12"
    assert other.startswith("5 of ")
    assert other[6] == ","
    for digit, other_digit in zip("2021", other[5:].replace(",", ""), strict=True):
        assert digit != other_digit


@pytest.mark.parametrize("name", PERTURBATIONS)
@given(text=st.text(max_size=60), seed=st.integers())
def test_perturb_is_a_function_of_text_and_seed(name, text, seed):
    pair = SentencePair(text, text)
    changed = perturb(name, pair, seed)
    assert changed == perturb(name, pair, seed)
    assert changed.target == (changed.source if PERTURBATIONS[name].on_target else text)


each_script = pytest.mark.parametrize(
    "script", sample(SCRIPTS, "Latin in NFD", "Devanagari", "Thai")
)


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_letters_keep_their_marks(script, data, seed):
    text = data.draw(sentences(script))
    pair = SentencePair(text, text)
    for name in ("typos", "doubled_words", "no_final_period", "html_tags", "emoji"):
        changed = perturb(name, pair, seed).source
        new = set(letters(changed)) - set(letters(text))
        assert name == "emoji" or "".join(new).isascii()


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_doubled_words_doubles_words_only(script, data, seed):
    text = data.draw(sentences(script))
    changed = perturb("doubled_words", SentencePair(text, "x"), seed).source
    if script in UNSPACED:
        assert changed == text
        return
    before, after = text.rstrip(".।").split(), changed.rstrip(".।").split()
    repeats = 0
    while before != after:
        position = 0
        while before[: position + 1] == after[: position + 1]:
            position += 1
        assert after[position] == after[position - 1]
        del after[position]
        repeats += 1
    assert repeats == -(-len(before) // 10)


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_case_and_periods_change_only_where_scripts_have_them(script, data, seed):
    pair = SentencePair(data.draw(sentences(script)), "He is here.")
    for name in CASE if script not in WITH_CASE else ():
        assert perturb(name, pair, seed) == pair
    is_same = perturb("no_final_period", pair, seed) == pair
    assert is_same == (script in WITHOUT_PERIODS)


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_perturbations_do_not_depend_on_the_normal_form(script, data, seed):
    text = data.draw(sentences(script))
    for name in PERTURBATIONS:
        sources = []
        for form in ("NFC", "NFD"):
            pair = SentencePair(in_form(form, text), "x")
            sources.append(in_form("NFC", perturb(name, pair, seed).source))
        assert sources[0] == sources[1]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("doubled_words", "我今天去学校。", {"我今天去学校。"}),
        ("doubled_words", "我用 iPhone", {"我用 iPhone iPhone"}),
        ("doubled_words", 'צה"ל', {'צה"ל צה"ל'}),
        ("doubled_words", "צה״ל", {"צה״ל צה״ל"}),
        ("doubled_words", "می\u200cخواهم", {"می\u200cخواهم می\u200cخواهم"}),
        ("typos", "हिन्दी", {"हिन्दी"}),
        ("typos", "कमरे में", {"कमरे में"}),
        # two letters of न-म-स्का-र change: they are swapped, or one is dropped or doubled
        ("typos", "नमस्कार", {"नस्कामर", "नमरस्का", "नस्कार", "नमर", "नममस्कार", "नमस्कास्कार"}),
        ("title_case", "საქართველო", {"საქართველო"}),
        ("title_case", "ǆep", {"ǅep"}),
        ("upper_case", "यह कमरा और मेरे iPhone में", {"यह कमरा और मेरे iPhone में"}),
    ],
)
def test_examples(name, text, expected):
    pair = SentencePair(text, "x")
    sources = {perturb(name, pair, seed).source for seed in range(60)}
    assert sources == expected


def test_other_numbers_keep_the_digits_of_their_script():
    text = "سنة ١٩٩٩ و ١٢٫٥"
    pair = SentencePair(text, "In 1999, 12.5")
    source, target = perturb("other_numbers", pair, 1)
    assert source != text
    assert not re.search("[0-9]", source)
    arabic = str.maketrans("٠١٢٣٤٥٦٧٨٩", "0123456789")
    digits = [*filter(str.isdigit, source.translate(arabic))]
    assert digits == [*filter(str.isdigit, target)]
