"""Cleaning in several processes."""

import datasets

from vanilla_transformer.data.cleaning import CleaningReport, find_broken
from vanilla_transformer.data.cleaning_rules import CleaningRules, PairRules
from vanilla_transformer.data.readers import CorpusSpec


def test_find_broken_gives_the_same_report_for_any_number_of_processes():
    names = ["other_numbers", "near_duplicates", "repeated_targets", "other_languages"]
    rules = CleaningRules(
        drop=names, max_characters=60, max_character_ratio=9, min_letter_ratio=0.1
    )
    sources = [f"The house number {20 + n % 7} or {20 + n % 11} is old." for n in range(119)]
    targets = [
        f"Das Haus Nummer {20 + n % 7} oder {20 + n % 5} ist alt{'!' * (n % 5)}" for n in range(119)
    ]
    sources, targets = (
        [*sources, "The house is old."],
        [*targets, "The house is old, and we live in it."],
    )
    texts = datasets.Dataset.from_dict({"source": sources, "target": targets, "corpus": [0] * 120})
    spec = CorpusSpec(file="a.tsv", source_language="en", target_language="de")
    results = []
    for processes in (1, 2, 3):
        report = CleaningReport(read=120)
        broken = find_broken(texts, [PairRules.for_corpus(spec, rules, [])], report, processes)
        results.append((broken.tolist(), report))
    assert results[0] == results[1] == results[2]
    assert set(results[0][1].dropped) >= {"other_numbers", "near_duplicates", "other_languages"}
