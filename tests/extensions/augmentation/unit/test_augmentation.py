"""Augmentation of pairs: terms, placeholders and noise, the words that stay aligned, and the tokens
that it adds.
"""

import logging
from random import Random

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sweeps import sample
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


def annotate(pair, seed, lexicon=LEXICON, words=WORDS):
    """Return a pair with terms that the seed chooses."""
    return insert_inline_terms(pair, Random(seed), lexicon, words)


def augmented(pair, times=300):
    """Return all results with real words, by the source."""
    pairs = [annotate(pair, seed) for seed in range(times)]
    return {other.source for other in pairs if other.target == pair.target}


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
    links = follow_words({(1, 1), (3, 3)}, PAIR, SentencePair(*after))
    assert links == words


def test_insert_inline_terms_annotates_hides_and_joins_terms():
    sources = augmented(PAIR)
    assert "The small <term> dog <trans> Hund </term> sleeps." in sources
    assert "The small <term> <trans> Hund </term> sleeps." in sources
    assert "The <term> small dog <trans> kleine Hund </term> sleeps." in sources
    dog = "<term> dog <trans> Hund </term>"
    assert f"The <term> small <trans> kleine </term> {dog} sleeps." in sources
    assert PAIR.source not in sources


def test_insert_inline_terms_gives_likely_forms_or_invents_words():
    """The invented words have the same endings."""
    pair = SentencePair("The tail of the dog.", "Der Schwanz des Hundes.")
    assert augmented(pair) == {
        "The tail of the <term> dog <trans> Hund </term>.",
        "The tail of the <term> <trans> Hund </term>.",
    }
    pairs = {annotate(pair, seed) for seed in range(200)}
    invented = {tuple(other) for other in pairs if other.target != pair.target}
    expected = set()
    for word in ("Tochhter", "Tochot", "Brhter", "Brot"):
        term = f"<term> dog <trans> {word} </term>"
        expected.add((f"The tail of the {term}.", f"Der Schwanz des {word}es."))
    assert invented == expected


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
    targets = {annotate(pair, seed, lexicon, words).target for seed in range(90)}
    assert targets == {target, *invented}


def test_insert_inline_terms_leaves_pairs_without_clear_terms():
    for target in ("Der Kater schläft.", "Hund, Hund!", "Hund Hundes."):
        assert augmented(SentencePair("The dog.", target), times=3) == {"The dog."}
    assert augmented(SentencePair("Dog, dog!", "Der Hund."), times=3) == {"Dog, dog!"}


def test_insert_placeholders_masks_what_both_sides_have():
    pair = SentencePair(
        "Anna paid 1,250 at https://a.b/c to Max.",
        "An Max zahlte Anna 1,250 bei https://a.b/c.",
    )
    source, target = insert_placeholders(pair, Random(0))
    words = [word.rstrip(".") for word in source.split()]
    masks = [word for word in words if word.startswith("<")]
    first, amount, url, last = masks
    assert source == f"{first} paid {amount} at {url} to {last}."
    assert len({*masks}) == 4
    assert target == f"An {last} zahlte {first} {amount} bei {url}."
    assert insert_placeholders(PAIR, Random(0)) == PAIR
    other = SentencePair("It costs 1,250.", "Es kostet 1.250.")
    assert insert_placeholders(other, Random(0)) == other


def test_perturb_pair_draws_from_its_generator_and_empties_no_side():
    def perturbed():
        return {perturb_pair(PAIR, Random(seed), "typos") for seed in range(20)}

    pairs = perturbed()
    assert len(pairs) > 5
    assert perturbed() == pairs
    pair = perturb_pair(PAIR, Random(0), "no_final_period")
    assert pair == ("The small dog sleeps", "Der kleine Hund schläft")
    for pair in (SentencePair("...", "Hund."), SentencePair("Dog.", " .")):
        assert perturb_pair(pair, Random(0), "no_final_period") == pair


def test_replace_by_noise_shuffles_letters_of_the_source():
    text = "The dog sees 1,250 cats."
    pair = SentencePair(text, "Der Hund sieht 1.250 Katzen.")
    source, target = replace_by_noise(pair, Random(0))
    assert source == target != text
    assert sorted(source) == sorted(text)
    assert [*map(len, source.split())] == [3, 3, 4, 5, 5]
    assert " 1,250 " in source
    assert source[-1] == "."


def test_add_augmentation_tokens_adds_each_token_once():
    tokenizer = tiny_tokenizer()
    size = len(tokenizer)
    add_augmentation_tokens(tokenizer, [])
    assert len(tokenizer) == size
    assert not knows_inline_terms(tokenizer)
    for _ in range(2):
        add_augmentation_tokens(tokenizer, ["inline_terms", "placeholders"])
    assert len(tokenizer) == size + len(TERM_TOKENS) + len(MASKS)
    assert knows_inline_terms(tokenizer)
    assert find_masks(tokenizer) == list(MASKS)
    text = "A <term> man <trans> Mann </term> and <ph0>, <ph7>."
    ids = tokenizer(text)["input_ids"]
    assert {*TERM_TOKENS} <= {*tokenizer.convert_ids_to_tokens(ids)}
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert decoded == "A man Mann and <ph0>, <ph7>."
    assert tokenizer.tokenize("man") == tokenizer.tokenize("<term> man </term>")[1:-1]


@pytest.mark.parametrize("script", sample(SCRIPTS, "Latin in NFD", "Devanagari", "Thai"))
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_replace_by_noise_keeps_letters_with_their_marks(script, data, seed):
    text = data.draw(sentences(script))
    noise = replace_by_noise(SentencePair(text, text), Random(seed)).source
    assert sorted(letters(noise)) == sorted(letters(text))


def test_recipes_name_each_perturbation():
    assert ("phrases", "noise_pairs", *PERTURBATIONS, *TOKEN_AUGMENTATIONS) == AUGMENTATIONS


HINDI = []
for number in range(30):
    source, target = f"यह कमरा {number} बड़ा है।", f"This room {number} is big."
    HINDI.append(SentencePair(source, target))


@pytest.mark.parametrize("tags", [[], ["<BT>"]])
def test_find_augmentations_warns_of_skipped_sources(tags, tmp_path, caplog):
    pairs = [*HINDI, SentencePair("OK", "OK")]
    sources = [" ".join([*tags, pair.source]) for pair in pairs]
    targets = [pair.target for pair in pairs]
    texts = datasets.Dataset.from_dict({"source": sources, "target": targets})
    shares = {"upper_case": 0.1, "typos": 0.2, "noise_pairs": 0.3}
    with caplog.at_level(logging.WARNING):
        augmentations = find_augmentations(shares, texts, "key", tmp_path, tags)
    reason = "it needs capitals, and they are in DEVANAGARI"
    message = f"`upper_case` of `augment` skips 97 % of the sources: {reason}."
    assert caplog.messages == [message]
    assert [*augmentations.values()] == [0.1, 0.2, 0.3]
    upper_case, *_ = augmentations
    pair = SentencePair(sources[0], targets[0])
    assert upper_case(pair, Random(0)) == pair
    caplog.clear()
    english = datasets.Dataset.from_dict({"source": targets, "target": sources})
    find_augmentations(shares, english, "key", tmp_path)
    assert not caplog.messages
