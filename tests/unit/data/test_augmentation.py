"""Training pairs are augmented with inline terms and placeholders, as translation uses them."""

from random import Random

import pytest

from tests.tiny import tiny_tokenizer
from vanilla_transformer.data.augmentation import (
    MASKS,
    add_augmentation_tokens,
    follow_words,
    insert_inline_terms,
    insert_placeholders,
    perturb_pair,
    replace_by_noise,
)
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.lexicon import fit_lexicon
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.text.inline_terms import TERM_TOKENS, knows_inline_terms
from vanilla_transformer.text.protection import find_masks

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
    lexicon = fit_lexicon(read_demo_corpus("train", 1500))
    assert {word: lexicon[word] for word in ("dog", "dogs")} == {"dog": {"Hund": "Hund"}, "dogs": {"Hunde": "Hunde"}}
    assert set(lexicon["red"]) == {"rote", "roten"} and len(set(lexicon["red"].values())) == 1
    assert "the" not in lexicon


@pytest.mark.parametrize("pairs", [[], [PAIR], [SentencePair("dog", ""), *[SentencePair("", "Hund")] * 20]])
def test_fit_lexicon_finds_nothing_in_little_text(pairs):
    assert fit_lexicon(pairs) == {}
