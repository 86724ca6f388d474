"""Perturbations of text: what each one changes, that seeds decide, and that both sides change alike."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.aligned_corpus import aligned_pairs
from tests.tiny import tiny_tokenizer
from vanilla_transformer.data.augmentation import (
    MASKS,
    PERTURBATIONS,
    add_augmentation_tokens,
    follow_words,
    insert_inline_terms,
    insert_placeholders,
    perturb,
    perturb_pair,
    replace_by_noise,
)
from vanilla_transformer.data.data_arguments import AUGMENTATIONS, TOKEN_AUGMENTATIONS
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import fit_lexicon
from vanilla_transformer.text.inline_terms import TERM_TOKENS, knows_inline_terms
from vanilla_transformer.text.protection import find_masks

SENTENCES = SentencePair("The dog didn't see 1,250 cats.", "Der Hund sah 1.250 Katzen nicht.")


@pytest.mark.parametrize(
    "name, source, target",
    [
        ("title_case", "The Dog Didn't See 1,250 Cats.", "Der Hund Sah 1.250 Katzen Nicht."),
        ("upper_case", "THE DOG DIDN'T SEE 1,250 CATS.", "DER HUND SAH 1.250 KATZEN NICHT."),
        ("lower_case", "the dog didn't see 1,250 cats.", SENTENCES.target),
        ("no_final_period", "The dog didn't see 1,250 cats", "Der Hund sah 1.250 Katzen nicht"),
    ],
)
def test_perturb_changes_case_and_periods(name, source, target):
    assert perturb(name, SENTENCES, 0) == (source, target)


def test_typos_change_one_long_word_in_ten():
    pair = SentencePair("Ab cde fghij klm.", "Nopqr stuvw.")
    found = {perturb("typos", pair, seed) for seed in range(200)}
    changed = {"fhgij", "fgihj", "fghji", "fhij", "fgij", "fghj", "fgghij", "fghhij", "fghiij"}
    assert found == {(f"Ab cde {word} klm.", pair.target) for word in changed}
    words = " ".join(f"word{chr(97 + number)}" for number in range(26)) * 2
    source = perturb("typos", SentencePair(words, "x"), 0).source
    assert 1 <= sum(here != there for here, there in zip(words.split(), source.split(), strict=True)) <= 6


def test_doubled_words_doubles_one_word_in_ten():
    found = {perturb("doubled_words", SENTENCES, seed) for seed in range(100)}
    words = ["The", "dog", "didn't", "see", "cats"]
    assert found == {(SENTENCES.source.replace(word, f"{word} {word}"), SENTENCES.target) for word in words}


@pytest.mark.parametrize("name", ["emoji", "html_tags", "other_numbers"])
def test_perturb_changes_both_sides_alike(name):
    for seed in range(20):
        source, target = perturb(name, SENTENCES, seed)
        assert source.replace("The dog didn't see", "Der Hund sah").replace(",", ".") == target.replace(
            " nicht", ""
        ).replace("Katzen", "cats")
        assert source != SENTENCES.source


def test_other_numbers_replaces_equal_numbers_by_equal_ones():
    first, second, other = perturb("other_numbers", SentencePair("12 and 12 and 5 of 2,021", "x"), 3).source.split(
        " and "
    )
    assert first == second != "12" and other.startswith("5 of ") and other[6] == ","
    assert all(here != there for here, there in zip("2021", other[5:].replace(",", ""), strict=True))


def test_recipes_name_each_perturbation():
    assert ("noise_pairs", *PERTURBATIONS, *TOKEN_AUGMENTATIONS) == AUGMENTATIONS


@pytest.mark.parametrize("name", PERTURBATIONS)
@given(text=st.text(max_size=60), seed=st.integers())
def test_perturb_is_a_function_of_text_and_seed(name, text, seed):
    pair = SentencePair(text, text)
    changed = perturb(name, pair, seed)
    assert changed == perturb(name, pair, seed)
    assert changed.target == (changed.source if PERTURBATIONS[name].on_target else text)


PAIR = SentencePair("The small dog sleeps.", "Der kleine Hund schläft.")
LEXICON = {
    "small": {"klein": "kleine", "kleine": "kleine", "kleinen": "kleine"},
    "dog": {"Hund": "Hund", "Hundes": "Hund"},
    "cat": {"Katze": "Katze"},
}


WORDS = ["Tochter", "Brot"]


def augmented(pair, times=300):
    """Return all results with real words, by the source."""
    found = [insert_inline_terms(pair, Random(seed), LEXICON, WORDS) for seed in range(times)]
    return {each.source for each in found if each.target == pair.target}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (("THE SMALL DGO SLEEPS.", "DER KLEINE HUND SCHLÄFT."), {(1, 1), (3, 3)}),
        (("The small <ph1> sleeps.", "Der kleine <ph1> schläft."), {(1, 1), (3, 3)}),
        (("The small small dog sleeps.", PAIR.target), set()),
        ((f"{PAIR.source} 😀", f"{PAIR.target} 😀"), set()),
        (("Hte lamls ogd", "Hte lamls ogd"), {(0, 0), (1, 1), (2, 2)}),
        (("<BT> Hte lamls ogd", "Hte lamls ogd"), {(1, 0), (2, 1), (3, 2)}),
        (PAIR, {(1, 1), (3, 3)}),
    ],
)
def test_follow_words_keeps_links_of_words_in_place(after, words):
    assert follow_words({(1, 1), (3, 3)}, PAIR, SentencePair(*after)) == words


def test_insert_inline_terms_annotates_hides_and_joins_terms():
    found = augmented(PAIR)
    assert "The small <term> dog <trans> Hund </term> sleeps." in found
    assert "The small <term> <trans> Hund </term> sleeps." in found
    assert "The <term> small dog <trans> kleine Hund </term> sleeps." in found
    assert "The <term> small <trans> kleine </term> <term> dog <trans> Hund </term> sleeps." in found
    assert PAIR.source not in found


def test_insert_inline_terms_gives_the_most_likely_form():
    pair = SentencePair("The tail of the dog.", "Der Schwanz des Hundes.")
    assert augmented(pair) == {
        "The tail of the <term> dog <trans> Hund </term>.",
        "The tail of the <term> <trans> Hund </term>.",
    }


def test_insert_inline_terms_invents_words_with_the_same_endings():
    pair = SentencePair("The tail of the dog.", "Der Schwanz des Hundes.")
    found = {insert_inline_terms(pair, Random(seed), LEXICON, WORDS) for seed in range(200)}
    invented = {(each.source, each.target) for each in found if each.target != pair.target}
    assert invented == {
        (f"The tail of the <term> dog <trans> {word} </term>.", f"Der Schwanz des {word}es.")
        for word in ("Tochhter", "Tochot", "Brhter", "Brot")
    }


def test_insert_inline_terms_invents_no_words_for_forms_that_begin_differently():
    pair, lexicon = SentencePair("A man.", "Ein Mann."), {"man": {"Mann": "Herr"}}
    found = {insert_inline_terms(pair, Random(seed), lexicon, WORDS) for seed in range(20)}
    assert {each.target for each in found} == {pair.target}


def test_insert_inline_terms_leaves_pairs_without_clear_terms():
    for target in ("Der Kater schläft.", "Hund, Hund!", "Hund Hundes."):
        assert augmented(SentencePair("The dog.", target), times=3) == {"The dog."}
    assert augmented(SentencePair("Dog, dog!", "Der Hund."), times=3) == {"Dog, dog!"}


def test_insert_placeholders_masks_what_both_sides_have():
    pair = SentencePair("Anna paid 1,250 at https://a.b/c to Max.", "An Max zahlte Anna 1,250 bei https://a.b/c.")
    source, target = insert_placeholders(pair, Random(0))
    first, amount, url, last = [word.rstrip(".") for word in source.split() if word.startswith("<")]
    assert source == f"{first} paid {amount} at {url} to {last}." and len({first, amount, url, last}) == 4
    assert target == f"An {last} zahlte {first} {amount} bei {url}."
    assert insert_placeholders(PAIR, Random(0)) == PAIR
    other = SentencePair("It costs 1,250.", "Es kostet 1.250.")
    assert insert_placeholders(other, Random(0)) == other


def test_perturb_pair_keeps_pairs_of_which_nothing_would_be_left():
    assert perturb_pair(PAIR, Random(0), "no_final_period") == ("The small dog sleeps", "Der kleine Hund schläft")
    for pair in (SentencePair("...", "Hund."), SentencePair("Dog.", " .")):
        assert perturb_pair(pair, Random(0), "no_final_period") == pair


def test_perturb_pair_draws_from_its_generator():
    found = {perturb_pair(PAIR, Random(seed), "typos") for seed in range(20)}
    assert len(found) > 5 and found == {perturb_pair(PAIR, Random(seed), "typos") for seed in range(20)}


def test_replace_by_noise_shuffles_the_letters_of_the_source_on_both_sides():
    source, target = replace_by_noise(
        SentencePair("The dog sees 1,250 cats.", "Der Hund sieht 1.250 Katzen."), Random(0)
    )
    assert source == target != "The dog sees 1,250 cats." and sorted(source) == sorted("The dog sees 1,250 cats.")
    assert [len(word) for word in source.split()] == [3, 3, 4, 5, 5] and " 1,250 " in source and source[-1] == "."


def test_add_augmentation_tokens_adds_each_token_once():
    tokenizer = tiny_tokenizer()
    size = len(tokenizer)
    add_augmentation_tokens(tokenizer, [])
    assert len(tokenizer) == size and not knows_inline_terms(tokenizer)
    for _ in range(2):
        add_augmentation_tokens(tokenizer, ["inline_terms", "placeholders"])
    assert len(tokenizer) == size + len(TERM_TOKENS) + len(MASKS)
    assert knows_inline_terms(tokenizer) and find_masks(tokenizer) == list(MASKS)
    text = "A <term> man <trans> Mann </term> and <ph0>, <ph7>."
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
    assert set(TERM_TOKENS) <= set(tokens)
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == "A man Mann and <ph0>, <ph7>."
    assert tokenizer.tokenize("man") == tokenizer.tokenize("<term> man </term>")[1:-1]


def test_fit_lexicon_finds_content_words_and_their_forms():
    lexicon = fit_lexicon([pair for pair, _ in aligned_pairs(4000)])
    assert {word: lexicon[word] for word in ("dog", "cat")} == {"dog": {"Hund": "Hund"}, "cat": {"Katze": "Katze"}}
    assert set(lexicon["red"]) == {"rote", "roten"} and len(set(lexicon["red"].values())) == 1
    assert "the" not in lexicon


@pytest.mark.parametrize("pairs", [[], [PAIR], [SentencePair("dog", ""), *[SentencePair("", "Hund")] * 20]])
def test_fit_lexicon_finds_nothing_in_little_text(pairs):
    assert fit_lexicon(pairs) == {}
