"""Cleaning rules on numbers, scripts, letters, languages and repetitions, for each corpus."""

import re
import unicodedata

import datasets
import numpy as np
import pytest

from vanilla_transformer.data.cleaning import LENGTH_EDGES, RATIO_EDGES, CleaningReport, find_broken
from vanilla_transformer.data.cleaning_rules import CleaningRules, PairRules, language_code
from vanilla_transformer.data.data_arguments import DataArguments
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.data.readers import CorpusSpec, SentencePair

SPEC = CorpusSpec(file="a.tsv", source_language="en", target_language="de")
GOOD = [
    SentencePair("The house is old.", "Das Haus ist alt."),
    SentencePair("She sold 25 cars.", "Sie verkaufte 25 Autos."),
    SentencePair("We met two friends.", "Wir trafen 2 Freunde."),
    SentencePair("That is a big dog.", "Das ist ein großer Hund."),
]
LONG = [SentencePair(*(f"{text} {text}" for text in pair)) for pair in GOOD]


def broken_by(rules, pairs, corpora=None, spec=SPEC):
    """Return the rule that each of some pairs of two corpora breaks, given the rules of each
    corpus.
    """
    rules = rules if isinstance(rules, list) else [rules]
    corpora = np.zeros(len(pairs), int) if corpora is None else np.array(corpora)
    sources, targets = zip(*pairs, strict=True)
    texts = datasets.Dataset.from_dict({"source": sources, "target": targets, "corpus": corpora})
    report = CleaningReport(read=len(pairs))
    broken = find_broken(texts, [PairRules.for_corpus(spec, each, pairs) for each in rules], report)
    assert sum(report.dropped.values()) == broken.sum()
    return broken.tolist(), report


@pytest.mark.parametrize(
    ("rules", "name", "bad"),
    [
        (
            {"drop": ["other_numbers"]},
            "other_numbers",
            ("She sold 25 cars.", "Sie verkaufte 52 Autos."),
        ),
        ({"min_letter_ratio": 0.5}, "min_letter_ratio", ("Chapter 4", "4 -- 17:30 -- 18:45")),
        (
            {"drop": ["other_languages"]},
            "other_languages",
            ("The house is old.", "The garden is as old as the house."),
        ),
        (
            {"drop": ["other_languages"]},
            "other_languages",
            ("La maison est vieille et grande.", "Das Haus ist alt."),
        ),
        (
            {"drop": ["bad_encoding"]},
            "bad_encoding",
            ("That is a big dog.", "Das ist ein groÃŸer Hund."),
        ),
        (
            {"drop": ["bad_encoding"]},
            "bad_encoding",
            ("That is\0 a big dog.", "Das ist ein großer Hund."),
        ),
        (
            {"drop": ["markup"]},
            "markup",
            ("That is a <b>big</b> dog.", "Das ist ein <b>großer</b> Hund."),
        ),
        ({"drop": ["markup"]}, "markup", ("A big dog.", "Ein großer&nbsp;Hund.")),
        (
            {"max_characters": 25},
            "max_characters",
            ("That is a big dog.", "Das ist ein großer Hund. Ja."),
        ),
        (
            {"max_character_ratio": 3},
            "max_character_ratio",
            ("A big dog.", "Ein großer Hund. " * 5 + "Ja."),
        ),
        (
            {"max_character_ratio": 3},
            "max_character_ratio",
            ("That is a big dog. " * 4 + "Yes.", "Hund."),
        ),
        ({"drop": ["duplicates"]}, "duplicates", GOOD[0]),
        ({"drop": ["duplicates"]}, "duplicates", ("THE HOUSE IS OLD.", "DAS HAUS IST\u200b ALT.")),
        (
            {"drop": ["duplicates"]},
            "duplicates",
            ("that is a big dog.", "Das ist ein gro\u00adßer Hund."),
        ),
        (
            {"drop": ["near_duplicates"]},
            "near_duplicates",
            ("the House is old!", "Das Haus: ist alt"),
        ),
        (
            {"drop": ["near_duplicates"]},
            "near_duplicates",
            ("She sold 7 cars.", "Sie verkaufte 7 Autos."),
        ),
        (
            {"drop": ["repeated_sources"]},
            "repeated_sources",
            ("The house is old.", "Ein altes Haus."),
        ),
        (
            {"drop": ["repeated_targets"]},
            "repeated_targets",
            ("Old is the house.", "Das Haus ist alt."),
        ),
    ],
)
def test_find_broken_applies_each_rule(rules, name, bad):
    broken, report = broken_by(CleaningRules(**rules), [*GOOD, SentencePair(*bad)])
    assert broken == [False] * len(GOOD) + [True]
    assert report.dropped == {name: 1} and report.examples == {name: [list(bad)]}
    assert broken_by(CleaningRules(), [*GOOD, SentencePair(*bad)])[0] == [False] * (len(GOOD) + 1)


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
    assert (
        broken_by(CleaningRules(drop=["other_languages"]), [*GOOD, SentencePair(*pair)])[1].dropped
        == {}
    )


@pytest.mark.parametrize("rule", ["duplicates", "near_duplicates"])
@pytest.mark.parametrize("change", [str.upper, str.lower, str.title])
def test_find_broken_keeps_the_copy_in_ordinary_case(rule, change):
    copies = [SentencePair(*map(change, pair)) for pair in GOOD]
    for pairs in ([*copies, *GOOD], [*GOOD, *copies]):
        assert broken_by(CleaningRules(drop=[rule]), pairs)[0] == [pair in copies for pair in pairs]
    assert not any(broken_by(CleaningRules(drop=[rule]), copies)[0])


BASE = "Zwei Größen."
VOWELS = [
    "पानी",
    "पीना",
    "पानी!",
    "पा\u200cनी",
    "e\u0301te\u0301",
    "ete",
    "Été 1\ufe0f\u20e3",
    "a ❤\ufe0f",
    "a",
]


@pytest.mark.parametrize(
    ("rule", "texts", "broken"),
    [
        (
            "duplicates",
            [BASE, unicodedata.normalize("NFD", BASE), "Zwei  Größen.", "Zwei\u00a0Größen.\u3000"],
            [1, 2, 3],
        ),
        ("duplicates", ["Echt?", "Echt.", "Echt"], []),
        ("near_duplicates", ["1", "2 !", "1"], [2]),
        ("near_duplicates", VOWELS, [2, 3, 4, 8]),
    ],
)
def test_find_broken_compares_texts_by_their_letters(rule, texts, broken):
    pairs = [SentencePair(text, text) for text in texts]
    assert np.flatnonzero(broken_by(CleaningRules(drop=[rule]), pairs)[0]).tolist() == broken


def test_find_broken_compares_lengths_with_the_usual_ratio_of_a_corpus():
    source, target = "An old house stands at the river. " * 2, "河边有一座老房子。"
    pairs = [SentencePair(source, target)] * 9
    bad = [SentencePair(source, target * 7), SentencePair("A.", "河" * 40)]
    assert (
        broken_by(CleaningRules(max_character_ratio=3), pairs + bad)[0] == [False] * 9 + [True] * 2
    )


def test_find_broken_compares_with_kept_pairs_only():
    rules = CleaningRules(drop=["other_numbers", "duplicates", "repeated_sources"])
    wrong, right = (
        SentencePair("It has 25.", "Es hat 26."),
        SentencePair("It has 25.", "Es hat 25."),
    )
    assert broken_by(rules, [wrong, right, SentencePair("a", "b"), right])[0] == [
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("code", ["de", "DE", "de-AT", "deu_Latn", "deu"])
def test_language_code_takes_codes_of_any_form(code):
    assert language_code(code) == "de" and language_code("xx") is None


def test_find_broken_drops_scripts_that_a_corpus_rarely_uses():
    rules, bad = (
        CleaningRules(drop=["other_scripts"]),
        SentencePair("The house is old.", "Дом старый."),
    )
    broken, report = broken_by(rules, [*GOOD * 9, bad])
    assert broken == [False] * 36 + [True] and report.dropped == {"other_scripts": 1}
    assert not any(
        broken_by(
            rules, [SentencePair("The sky.", "空です。"), SentencePair("A cat.", "ネコ")] * 9
        )[0]
    )


def test_find_broken_applies_the_rules_of_each_corpus():
    rules = [CleaningRules(drop=["other_numbers"]), CleaningRules(drop=["duplicates"])]
    numbers, pair = SentencePair("It has 25.", "Es hat 26."), GOOD[0]
    broken, _ = broken_by(rules, [numbers, pair, pair, numbers, pair], corpora=[0, 0, 0, 1, 1])
    assert broken == [True, False, False, False, True]


def test_find_broken_keeps_the_translations_of_a_source_into_several_languages():
    rules, pairs = CleaningRules(drop=["repeated_sources"]), [GOOD[0], GOOD[0]]
    texts = datasets.Dataset.from_dict(
        {"source": ["A.", "A."], "target": ["Ein A.", "Un A."], "corpus": [0, 1]}
    )
    specs = [
        CorpusSpec(file="a.tsv", source_language="en", target_language=target)
        for target in ("de", "fr")
    ]
    pair_rules = [PairRules.for_corpus(spec, rules, pairs) for spec in specs]
    assert not find_broken(texts, pair_rules, CleaningReport(read=2)).any()
    assert find_broken(texts, pair_rules[:1] * 2, CleaningReport(read=2)).tolist() == [False, True]


def test_pair_rules_know_the_languages_of_a_reversed_corpus():
    spec = CorpusSpec(file="a.tsv", source_language="en", target_language="de", reverse=True)
    checks = PairRules.for_corpus(spec, CleaningRules(drop=["other_languages"]), []).checks
    assert [checks["other_languages"](pair) for pair in (LONG[0], LONG[0][::-1])] == [True, False]


def test_pair_rules_need_known_languages():
    rules = CleaningRules(drop=["other_languages"])
    with pytest.raises(ValueError, match="`target_language` must be given for a.tsv"):
        PairRules.for_corpus(CorpusSpec(file="a.tsv", source_language="en"), rules, [])
    with pytest.raises(
        ValueError, match="a.tsv must have codes that .* knows .*af, .* de, .*, got english"
    ):
        PairRules.for_corpus(
            CorpusSpec(file="a.tsv", source_language="english", target_language="de"), rules, []
        )


def test_find_broken_counts_lengths_of_kept_and_dropped_pairs():
    pairs = [
        SentencePair("a" * 15, "b" * 30),
        SentencePair("a" * 900, "b" * 900),
        SentencePair("25", "26"),
    ]
    histograms = broken_by(CleaningRules(drop=["other_numbers"]), pairs)[1].histograms
    source = {
        label: np.flatnonzero(counts).tolist() for label, counts in histograms["source"].items()
    }
    assert source == {"kept": [1, len(LENGTH_EDGES) - 2], "dropped": [0]}
    kept = np.flatnonzero(histograms["ratio"]["kept"])
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
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    languages = {
        "source_language": "en",
        "target_language": "de-AT",
        "cache_dir": str(tmp_path / "cache"),
    }
    data = DataArguments(corpora=[{"file": str(tmp_path / "a.tsv")}], **languages)
    for _ in range(2):
        texts = load_texts(data)
        warnings = texts.training.report.warnings
        assert len(warnings) == (message is not None)
        if message:
            assert warnings[0] in str(texts.training.report) and warnings[0] in caplog.text
            assert re.search(message, warnings[0], re.DOTALL)
