"""Augmentation by letters with their marks and by script: properties over many scripts, and examples."""

import logging
from random import Random

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text_of_scripts import SCRIPTS, UNSPACED, WITH_CASE, WITHOUT_PERIODS, in_form, letters, sentences
from vanilla_transformer.data.augmentation import PERTURBATIONS, insert_inline_terms, perturb, replace_by_noise
from vanilla_transformer.data.augmented_corpus import find_augmentations
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import fit_lexicon

CASE = ("title_case", "upper_case", "lower_case")
each_script = pytest.mark.parametrize("script", SCRIPTS)


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_letters_keep_their_marks(script, data, seed):
    text = data.draw(sentences(script))
    pair = SentencePair(text, text)
    for name in ("typos", "doubled_words", "no_final_period", "html_tags", "emoji"):
        changed = perturb(name, pair, seed).source
        new = set(letters(changed)) - set(letters(text))
        assert all(each.isascii() or name == "emoji" for each in new)
    assert sorted(letters(replace_by_noise(pair, Random(seed)).source)) == sorted(letters(text))


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_doubled_words_doubles_words_only(script, data, seed):
    text = data.draw(sentences(script))
    changed = perturb("doubled_words", SentencePair(text, "x"), seed).source
    if script in UNSPACED:
        assert changed == text
        return
    before, after, repeats = text.rstrip(".।").split(), changed.rstrip(".।").split(), 0
    while before != after[: len(before)] or len(after) > len(before):
        place = next(i for i in range(len(after)) if i >= len(before) or before[i] != after[i])
        assert after[place] == after[place - 1]
        del after[place]
        repeats += 1
    assert repeats == -(-len(before) // 10)


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_case_and_periods_change_only_in_scripts_that_have_them(script, data, seed):
    pair = SentencePair(data.draw(sentences(script)), "He is here.")
    for name in CASE if script not in WITH_CASE else ():
        assert perturb(name, pair, seed) == pair
    assert (perturb("no_final_period", pair, seed) == pair) == (script in WITHOUT_PERIODS)


@each_script
@settings(max_examples=20)
@given(data=st.data(), seed=st.integers())
def test_perturbations_do_not_depend_on_the_normal_form(script, data, seed):
    text = data.draw(sentences(script))
    one, other = (SentencePair(in_form(form, text), "x") for form in ("NFC", "NFD"))
    for name in PERTURBATIONS:
        assert in_form("NFC", perturb(name, one, seed).source) == in_form("NFC", perturb(name, other, seed).source)


@pytest.mark.parametrize(
    ("name", "text", "found"),
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
def test_examples(name, text, found):
    results = {perturb(name, SentencePair(text, "x"), seed).source for seed in range(60)}
    assert results == found


@pytest.mark.parametrize("period", [*".。｡．।॥۔։።။។៕།"])
def test_no_final_period_knows_periods_of_many_scripts(period):
    pair = SentencePair(f"а{period}", f"б{period}")
    assert perturb("no_final_period", pair, 0) == ("а", "б")


def test_other_numbers_keep_the_digits_of_their_script():
    source, target = perturb("other_numbers", SentencePair("سنة ١٩٩٩ و ١٢٫٥", "In 1999, 12.5"), 1)
    arabic = str.maketrans("٠١٢٣٤٥٦٧٨٩", "0123456789")
    assert source != "سنة ١٩٩٩ و ١٢٫٥" and not any(each in "0123456789" for each in source)
    assert [each for each in source.translate(arabic) if each.isdigit()] == [each for each in target if each.isdigit()]


HINDI = [SentencePair(f"यह कमरा {number} बड़ा है।", f"This room {number} is big.") for number in range(30)]


def test_perturbations_leave_both_sides_if_the_source_has_no_capitals():
    for name in CASE:
        assert perturb(name, HINDI[0], 0) == HINDI[0]
    back = SentencePair(*reversed(HINDI[0]))
    assert perturb("upper_case", back, 0) == (back.source.upper(), back.target)


@pytest.mark.parametrize("tags", [[], ["<BT>"]])
def test_find_augmentations_warns_of_skipped_sources(tags, tmp_path, caplog):
    pairs = [*HINDI, SentencePair("OK", "OK")]
    sources = [" ".join([*tags, pair.source]) for pair in pairs]
    texts = datasets.Dataset.from_dict({"source": sources, "target": [pair.target for pair in pairs]})
    shares = {"upper_case": 0.1, "typos": 0.2, "noise_pairs": 0.3}
    with caplog.at_level(logging.WARNING):
        upper_case, *_ = found = find_augmentations(shares, texts, "key", tmp_path, tags)
    reason = "it needs capitals, and they are in DEVANAGARI"
    assert caplog.messages == [f"`upper_case` of `augment` skips 97 % of the sources: {reason}."]
    assert [*found.values()] == [0.1, 0.2, 0.3]
    assert upper_case(pairs[0]._replace(source=sources[0]), Random(0)) == (sources[0], pairs[0].target)
    caplog.clear()
    english = datasets.Dataset.from_dict({"source": [pair.target for pair in pairs], "target": sources})
    find_augmentations(shares, english, "key", tmp_path)
    assert not caplog.messages


def test_fit_lexicon_finds_words_with_marks():
    things = [("कमरा", "room"), ("किताब", "book"), ("हिन्दी", "Hindi"), ("e\u0301cole", "school")]
    pairs = [
        SentencePair(f"क {word} {number}", f"a {other} {number}") for number in range(9) for word, other in things
    ]
    pairs += [SentencePair(f"ख {number}", f"b {number}") for number in range(90)]
    lexicon = fit_lexicon(pairs)
    assert {word: lexicon[word] for word, _ in things} == {word: {other: other} for word, other in things}
    thai = [SentencePair(f"ที่นี่ {number}", f"here {number}") for number in range(9)]
    assert fit_lexicon(thai + [SentencePair(f"b {number}", f"b {number}") for number in range(90)]) == {}


def test_insert_inline_terms_invents_words_of_whole_letters():
    pair, lexicon = SentencePair("The room.", "यह कमरे है।"), {"room": {"कमरे": "कमरा"}}
    found = {insert_inline_terms(pair, Random(seed), lexicon, ["किताब", "हिन्दी"]).target for seed in range(90)}
    words = [head + tail for head in ("किता", "हि") for tail in ("ताब", "न्दी")]
    assert found == {pair.target, *(f"यह {word}रे है।" for word in words)}
