"""Augmentation of pairs: terms, placeholders and noise, the words that stay aligned, and the tokens
that it adds.
"""

import logging
from random import Random

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import tiny_tokenizer
from tests.unicode_texts import SCRIPTS, letters, sentences
from vanilla_transformer.data.data_arguments import AUGMENTATIONS, TOKEN_AUGMENTATIONS
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenizer_training import add_augmentation_tokens
from vanilla_transformer.extensions.augmentation.augmentation import (
    MASKS,
    follow_words,
    insert_inline_terms,
    insert_placeholders,
    perturb_pair,
    replace_by_noise,
)
from vanilla_transformer.extensions.augmentation.augmented_corpus import find_augmentations
from vanilla_transformer.extensions.augmentation.perturbations import PERTURBATIONS
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
    assert (
        "The <term> small <trans> kleine </term> <term> dog <trans> Hund </term> sleeps." in found
    )
    assert PAIR.source not in found


def test_insert_inline_terms_gives_the_most_likely_form_or_invents_words_with_the_same_endings():
    pair = SentencePair("The tail of the dog.", "Der Schwanz des Hundes.")
    assert augmented(pair) == {
        "The tail of the <term> dog <trans> Hund </term>.",
        "The tail of the <term> <trans> Hund </term>.",
    }
    found = {insert_inline_terms(pair, Random(seed), LEXICON, WORDS) for seed in range(200)}
    invented = {(each.source, each.target) for each in found if each.target != pair.target}
    assert invented == {
        (f"The tail of the <term> dog <trans> {word} </term>.", f"Der Schwanz des {word}es.")
        for word in ("Tochhter", "Tochot", "Brhter", "Brot")
    }


@pytest.mark.parametrize(
    ("target", "lexicon", "words", "invented"),
    [
        ("Ein Mann.", {"room": {"Mann": "Herr"}}, WORDS, set()),  # forms that begin differently
        (
            "यह कमरे है।",  # whose words consist of whole letters
            {"room": {"कमरे": "कमरा"}},
            ["किताब", "हिन्दी"],
            {f"यह {head}{tail}रे है।" for head in ("किता", "हि") for tail in ("ताब", "न्दी")},
        ),
    ],
)
def test_insert_inline_terms_invents_forms_of_a_word(target, lexicon, words, invented):
    pair = SentencePair("The room.", target)
    found = {insert_inline_terms(pair, Random(seed), lexicon, words).target for seed in range(90)}
    assert found == {target, *invented}


def test_insert_inline_terms_leaves_pairs_without_clear_terms():
    for target in ("Der Kater schläft.", "Hund, Hund!", "Hund Hundes."):
        assert augmented(SentencePair("The dog.", target), times=3) == {"The dog."}
    assert augmented(SentencePair("Dog, dog!", "Der Hund."), times=3) == {"Dog, dog!"}


def test_insert_placeholders_masks_what_both_sides_have():
    pair = SentencePair(
        "Anna paid 1,250 at https://a.b/c to Max.", "An Max zahlte Anna 1,250 bei https://a.b/c."
    )
    source, target = insert_placeholders(pair, Random(0))
    first, amount, url, last = [word.rstrip(".") for word in source.split() if word.startswith("<")]
    assert (
        source == f"{first} paid {amount} at {url} to {last}."
        and len({first, amount, url, last}) == 4
    )
    assert target == f"An {last} zahlte {first} {amount} bei {url}."
    assert insert_placeholders(PAIR, Random(0)) == PAIR
    other = SentencePair("It costs 1,250.", "Es kostet 1.250.")
    assert insert_placeholders(other, Random(0)) == other


def test_perturb_pair_draws_from_its_generator_and_keeps_pairs_of_which_nothing_would_be_left():
    found = {perturb_pair(PAIR, Random(seed), "typos") for seed in range(20)}
    assert len(found) > 5 and found == {
        perturb_pair(PAIR, Random(seed), "typos") for seed in range(20)
    }
    assert perturb_pair(PAIR, Random(0), "no_final_period") == (
        "The small dog sleeps",
        "Der kleine Hund schläft",
    )
    for pair in (SentencePair("...", "Hund."), SentencePair("Dog.", " .")):
        assert perturb_pair(pair, Random(0), "no_final_period") == pair


def test_replace_by_noise_shuffles_the_letters_of_the_source_on_both_sides():
    source, target = replace_by_noise(
        SentencePair("The dog sees 1,250 cats.", "Der Hund sieht 1.250 Katzen."), Random(0)
    )
    assert source == target != "The dog sees 1,250 cats." and sorted(source) == sorted(
        "The dog sees 1,250 cats."
    )
    assert (
        [len(word) for word in source.split()] == [3, 3, 4, 5, 5]
        and " 1,250 " in source
        and source[-1] == "."
    )


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
    assert (
        tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
        == "A man Mann and <ph0>, <ph7>."
    )
    assert tokenizer.tokenize("man") == tokenizer.tokenize("<term> man </term>")[1:-1]


@pytest.mark.parametrize("script", SCRIPTS)
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_replace_by_noise_keeps_letters_with_their_marks(script, data, seed):
    text = data.draw(sentences(script))
    assert sorted(
        letters(replace_by_noise(SentencePair(text, text), Random(seed)).source)
    ) == sorted(letters(text))


def test_recipes_name_each_perturbation():
    assert ("noise_pairs", *PERTURBATIONS, *TOKEN_AUGMENTATIONS) == AUGMENTATIONS


HINDI = [
    SentencePair(f"यह कमरा {number} बड़ा है।", f"This room {number} is big.") for number in range(30)
]


@pytest.mark.parametrize("tags", [[], ["<BT>"]])
def test_find_augmentations_warns_of_skipped_sources(tags, tmp_path, caplog):
    pairs = [*HINDI, SentencePair("OK", "OK")]
    sources = [" ".join([*tags, pair.source]) for pair in pairs]
    texts = datasets.Dataset.from_dict(
        {"source": sources, "target": [pair.target for pair in pairs]}
    )
    shares = {"upper_case": 0.1, "typos": 0.2, "noise_pairs": 0.3}
    with caplog.at_level(logging.WARNING):
        upper_case, *_ = found = find_augmentations(shares, texts, "key", tmp_path, tags)
    reason = "it needs capitals, and they are in DEVANAGARI"
    assert caplog.messages == [f"`upper_case` of `augment` skips 97 % of the sources: {reason}."]
    assert [*found.values()] == [0.1, 0.2, 0.3]
    assert upper_case(pairs[0]._replace(source=sources[0]), Random(0)) == (
        sources[0],
        pairs[0].target,
    )
    caplog.clear()
    english = datasets.Dataset.from_dict(
        {"source": [pair.target for pair in pairs], "target": sources}
    )
    find_augmentations(shares, english, "key", tmp_path)
    assert not caplog.messages
