"""Perturbations of text: what each one changes, that seeds decide, and that both sides change alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.data.perturbations import PERTURBATIONS, perturb
from vanilla_transformer.data.readers import SentencePair

PAIR = SentencePair("The dog didn't see 1,250 cats.", "Der Hund sah 1.250 Katzen nicht.")


@pytest.mark.parametrize(
    "name, source, target",
    [
        ("title_case", "The Dog Didn't See 1,250 Cats.", "Der Hund Sah 1.250 Katzen Nicht."),
        ("upper_case", "THE DOG DIDN'T SEE 1,250 CATS.", "DER HUND SAH 1.250 KATZEN NICHT."),
        ("lower_case", "the dog didn't see 1,250 cats.", PAIR.target),
        ("no_final_period", "The dog didn't see 1,250 cats", "Der Hund sah 1.250 Katzen nicht"),
    ],
)
def test_perturb_changes_case_and_periods(name, source, target):
    assert perturb(name, PAIR, 0) == (source, target)


def test_typos_change_one_long_word_in_ten():
    pair = SentencePair("Ab cde fghij klm.", "Nopqr stuvw.")
    found = {perturb("typos", pair, seed) for seed in range(200)}
    changed = {"fhgij", "fgihj", "fghji", "fhij", "fgij", "fghj", "fgghij", "fghhij", "fghiij"}
    assert found == {(f"Ab cde {word} klm.", pair.target) for word in changed}
    words = " ".join(f"word{chr(97 + number)}" for number in range(26)) * 2
    source = perturb("typos", SentencePair(words, "x"), 0).source
    assert 1 <= sum(here != there for here, there in zip(words.split(), source.split(), strict=True)) <= 6


def test_doubled_words_doubles_one_word_in_ten():
    found = {perturb("doubled_words", PAIR, seed) for seed in range(100)}
    words = ["The", "dog", "didn't", "see", "cats"]
    assert found == {(PAIR.source.replace(word, f"{word} {word}"), PAIR.target) for word in words}


@pytest.mark.parametrize("name", ["emoji", "html_tags", "other_numbers"])
def test_perturb_changes_both_sides_alike(name):
    for seed in range(20):
        source, target = perturb(name, PAIR, seed)
        assert source.replace("The dog didn't see", "Der Hund sah").replace(",", ".") == target.replace(
            " nicht", ""
        ).replace("Katzen", "cats")
        assert source != PAIR.source


def test_other_numbers_replaces_equal_numbers_by_equal_ones():
    first, second, other = perturb("other_numbers", SentencePair("12 and 12 and 5 of 2,021", "x"), 3).source.split(
        " and "
    )
    assert first == second != "12" and other.startswith("5 of ") and other[6] == ","
    assert all(here != there for here, there in zip("2021", other[5:].replace(",", ""), strict=True))


@pytest.mark.parametrize("name", PERTURBATIONS)
@given(text=st.text(max_size=60), seed=st.integers())
def test_perturb_is_a_function_of_text_and_seed(name, text, seed):
    pair = SentencePair(text, text)
    changed = perturb(name, pair, seed)
    assert changed == perturb(name, pair, seed)
    assert changed.target == (changed.source if PERTURBATIONS[name].on_target else text)
