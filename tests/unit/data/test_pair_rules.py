"""Cleaning rules on numbers, scripts, letters, languages and repetitions, for each corpus."""

import re
import unicodedata

import datasets
import numpy as np
import pytest

from vanilla_transformer.data.cleaning import LENGTH_EDGES, RATIO_EDGES, CleaningReport, find_broken
from vanilla_transformer.data.cleaning_rules import CleaningRules, PairRules
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.data.readers import CorpusSpec, SentencePair
from vanilla_transformer.text.languages import language_code

SPEC = CorpusSpec(file="a.tsv", source_language="en", target_language="de")
GOOD = [
    SentencePair("The house is old.", "Das Haus ist alt."),
    SentencePair("She sold 25 cars.", "Sie verkaufte 25 Autos."),
    SentencePair("We met two friends.", "Wir trafen 2 Freunde."),
    SentencePair("That is a big dog.", "Das ist ein großer Hund."),
]
LONG = [
    SentencePair(f"{pair.source} {pair.source}", f"{pair.target} {pair.target}") for pair in GOOD
]


def broken_by(rules, pairs, corpora=None, spec=SPEC):
    """Return the rule that each of some pairs of two corpora breaks, given the rules of each
    corpus.
    """
    rules = rules if isinstance(rules, list) else [rules]
    corpora = np.zeros(len(pairs), int) if corpora is None else np.array(corpora)
    sources, targets = zip(*pairs, strict=True)
    columns = {"source": sources, "target": targets, "corpus": corpora}
    texts = datasets.Dataset.from_dict(columns)
    report = CleaningReport(read=len(pairs))
    pair_rules = [PairRules.for_corpus(spec, corpus_rules, pairs) for corpus_rules in rules]
    broken = find_broken(texts, pair_rules, report)
    assert sum(report.dropped.values()) == broken.sum()
    return broken.tolist(), report


# Rules with a value. The others are names in `drop`.
LIMITS = {"min_letter_ratio": 0.5, "max_characters": 25, "max_character_ratio": 3}
BAD_PAIRS = [
    ("other_numbers", ("She sold 25 cars.", "Sie verkaufte 52 Autos.")),
    ("min_letter_ratio", ("Chapter 4", "4 -- 17:30 -- 18:45")),
    ("other_languages", ("The house is old.", "The garden is as old as the house.")),
    ("other_languages", ("La maison est vieille et grande.", "Das Haus ist alt.")),
    ("bad_encoding", ("That is a big dog.", "Das ist ein groÃŸer Hund.")),
    ("bad_encoding", ("That is\0 a big dog.", "Das ist ein großer Hund.")),
    ("markup", ("That is a <b>big</b> dog.", "Das ist ein <b>großer</b> Hund.")),
    ("markup", ("A big dog.", "Ein großer&nbsp;Hund.")),
    ("max_characters", ("That is a big dog.", "Das ist ein großer Hund. Ja.")),
    ("max_character_ratio", ("A big dog.", "Ein großer Hund. " * 5 + "Ja.")),
    ("max_character_ratio", ("That is a big dog. " * 4 + "Yes.", "Hund.")),
    ("duplicates", GOOD[0]),
    ("duplicates", ("THE HOUSE IS OLD.", "DAS HAUS IST\u200b ALT.")),
    ("duplicates", ("that is a big dog.", "Das ist ein gro\u00adßer Hund.")),
    ("near_duplicates", ("the House is old!", "Das Haus: ist alt")),
    ("near_duplicates", ("She sold 7 cars.", "Sie verkaufte 7 Autos.")),
    ("repeated_sources", ("The house is old.", "Ein altes Haus.")),
    ("repeated_targets", ("Old is the house.", "Das Haus ist alt.")),
]


@pytest.mark.parametrize(("name", "bad"), BAD_PAIRS)
def test_find_broken_applies_each_rule(name, bad):
    rules = {name: LIMITS[name]} if name in LIMITS else {"drop": [name]}
    pairs = [*GOOD, SentencePair(*bad)]
    broken, report = broken_by(CleaningRules(**rules), pairs)
    assert broken == [False] * len(GOOD) + [True]
    assert report.dropped == {name: 1} and report.examples == {name: [list(bad)]}
    assert broken_by(CleaningRules(), pairs)[0] == [False] * len(pairs)


@pytest.mark.parametrize(
    "pair",
    [
        ("OAuth2 token", "OAuth2-Token"),
        ("Sign in", "Login"),
        (
            "See https://a.example/the/page/in/english {and} %s",
            "https://a.example/the/page/in/english {and} %s",
        ),
    ],
)
def test_find_broken_does_not_guess_the_language_of_short_text(pair):
    rules = CleaningRules(drop=["other_languages"])
    _, report = broken_by(rules, [*GOOD, SentencePair(*pair)])
    assert report.dropped == {}


@pytest.mark.parametrize("name", ["duplicates", "near_duplicates"])
@pytest.mark.parametrize("change", [str.upper, str.lower, str.title])
def test_find_broken_keeps_the_copy_in_ordinary_case(name, change):
    copies = [SentencePair(*map(change, pair)) for pair in GOOD]
    rules = CleaningRules(drop=[name])
    for pairs in ([*copies, *GOOD], [*GOOD, *copies]):
        broken, _ = broken_by(rules, pairs)
        assert broken == [pair in copies for pair in pairs]
    assert not any(broken_by(rules, copies)[0])


BASE = "Zwei Größen."
VOWELS = ["पानी", "पीना", "पानी!", "पा\u200cनी", "e\u0301te\u0301", "ete"]
VOWELS += ["Été 1\ufe0f\u20e3", "a ❤\ufe0f", "a"]
SPACED = [BASE, unicodedata.normalize("NFD", BASE)]
SPACED += ["Zwei  Größen.", "Zwei\u00a0Größen.\u3000"]


@pytest.mark.parametrize(
    ("name", "texts", "broken"),
    [
        ("duplicates", SPACED, [1, 2, 3]),
        ("duplicates", ["Echt?", "Echt.", "Echt"], []),
        ("near_duplicates", ["1", "2 !", "1"], [2]),
        ("near_duplicates", VOWELS, [2, 3, 4, 8]),
    ],
)
def test_find_broken_compares_texts_by_their_letters(name, texts, broken):
    pairs = [SentencePair(text, text) for text in texts]
    is_broken, _ = broken_by(CleaningRules(drop=[name]), pairs)
    assert np.flatnonzero(is_broken).tolist() == broken


def test_find_broken_compares_lengths_with_the_usual_ratio_of_a_corpus():
    source, target = "An old house stands at the river. " * 2, "河边有一座老房子。"
    pairs = [SentencePair(source, target)] * 9
    bad = [SentencePair(source, target * 7), SentencePair("A.", "河" * 40)]
    broken, _ = broken_by(CleaningRules(max_character_ratio=3), pairs + bad)
    assert broken == [False] * 9 + [True] * 2


def test_find_broken_compares_with_kept_pairs_only():
    rules = CleaningRules(drop=["other_numbers", "duplicates", "repeated_sources"])
    wrong = SentencePair("It has 25.", "Es hat 26.")
    right = SentencePair("It has 25.", "Es hat 25.")
    broken, _ = broken_by(rules, [wrong, right, SentencePair("a", "b"), right])
    assert broken == [True, False, False, True]


@pytest.mark.parametrize("code", ["de", "DE", "de-AT", "deu_Latn", "deu"])
def test_language_code_takes_codes_of_any_form(code):
    assert language_code(code) == "de" and language_code("xx") is None


def test_find_broken_drops_scripts_that_a_corpus_rarely_uses():
    rules = CleaningRules(drop=["other_scripts"])
    bad = SentencePair("The house is old.", "Дом старый.")
    broken, report = broken_by(rules, [*GOOD * 9, bad])
    assert broken == [False] * 36 + [True] and report.dropped == {"other_scripts": 1}
    japanese = [SentencePair("The sky.", "空です。"), SentencePair("A cat.", "ネコ")]
    assert not any(broken_by(rules, japanese * 9)[0])


def test_find_broken_applies_the_rules_of_each_corpus():
    rules = [CleaningRules(drop=["other_numbers"]), CleaningRules(drop=["duplicates"])]
    numbers, pair = SentencePair("It has 25.", "Es hat 26."), GOOD[0]
    pairs = [numbers, pair, pair, numbers, pair]
    broken, _ = broken_by(rules, pairs, corpora=[0, 0, 0, 1, 1])
    assert broken == [True, False, False, False, True]


def test_find_broken_keeps_the_translations_of_a_source_into_several_languages():
    rules, pairs = CleaningRules(drop=["repeated_sources"]), [GOOD[0], GOOD[0]]
    columns = {"source": ["A.", "A."], "target": ["Ein A.", "Un A."], "corpus": [0, 1]}
    texts = datasets.Dataset.from_dict(columns)
    french = CorpusSpec(file="a.tsv", source_language="en", target_language="fr")
    pair_rules = [PairRules.for_corpus(spec, rules, pairs) for spec in (SPEC, french)]
    assert not find_broken(texts, pair_rules, CleaningReport(read=2)).any()
    broken = find_broken(texts, pair_rules[:1] * 2, CleaningReport(read=2))
    assert broken.tolist() == [False, True]


def test_pair_rules_know_the_languages_of_a_reversed_corpus():
    spec = CorpusSpec(file="a.tsv", source_language="en", target_language="de", reverse=True)
    rules = CleaningRules(drop=["other_languages"])
    check = PairRules.for_corpus(spec, rules, []).checks["other_languages"]
    assert [check(LONG[0]), check(LONG[0][::-1])] == [True, False]


def test_pair_rules_need_known_languages():
    rules = CleaningRules(drop=["other_languages"])
    with pytest.raises(ValueError, match="`target_language` must be given for a.tsv"):
        PairRules.for_corpus(CorpusSpec(file="a.tsv", source_language="en"), rules, [])
    wrong = CorpusSpec(file="a.tsv", source_language="english", target_language="de")
    message = "a.tsv must have codes that .* knows .*af, .* de, .*, got english"
    with pytest.raises(ValueError, match=message):
        PairRules.for_corpus(wrong, rules, [])


def test_find_broken_counts_lengths_of_kept_and_dropped_pairs():
    pairs = [SentencePair("a" * 15, "b" * 30), SentencePair("a" * 900, "b" * 900)]
    pairs.append(SentencePair("25", "26"))
    _, report = broken_by(CleaningRules(drop=["other_numbers"]), pairs)
    source = report.histograms["source"]
    assert source.keys() == {"kept", "dropped"}
    assert np.flatnonzero(source["kept"]).tolist() == [1, len(LENGTH_EDGES) - 2]
    assert np.flatnonzero(source["dropped"]).tolist() == [0]
    kept = np.flatnonzero(report.histograms["ratio"]["kept"])
    assert RATIO_EDGES[kept].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (LONG, None),
        ([pair[::-1] for pair in GOOD], None),  # of short text nothing is said
        (
            [pair[::-1] for pair in LONG],
            "has its sides swapped in [34] of 4 pairs. .*\n    Das Haus ist alt. .* | The house "
            "is old.",
        ),
        (
            [(pair.source, pair.source) for pair in LONG],
            "a target in another language than de in . of 4",
        ),
        (
            [("C'est un grand chien et un chat.", pair.target) for pair in LONG],
            "a source in another language than en",
        ),
    ],
)
def test_load_texts_warns_of_wrong_languages(tmp_path, caplog, pairs, message):
    file = tmp_path / "a.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    cache = str(tmp_path / "cache")
    languages = {"source_language": "en", "target_language": "de-AT"}
    data = DataArguments(corpora=[{"file": str(file)}], cache_dir=cache, **languages)
    for _ in range(2):
        report = load_texts(data).training.report
        assert len(report.warnings) == (message is not None)
        if message:
            (warning,) = report.warnings
            assert warning in str(report) and warning in caplog.text
            assert re.search(message, warning, re.DOTALL)
