"""Cleaning in several processes."""

import datasets
import pyarrow as pa

from vanilla_transformer.data import cleaning
from vanilla_transformer.data.cleaning import CleaningReport, find_broken, find_duplicates
from vanilla_transformer.data.cleaning_rules import CleaningRules, PairRules
from vanilla_transformer.data.readers import CorpusSpec


def test_find_broken_reports_alike_for_any_number_of_processes():
    names = ["other_numbers", "near_duplicates", "repeated_targets", "other_languages"]
    limits = {"max_characters": 60, "max_character_ratio": 9, "min_letter_ratio": 0.1}
    rules = CleaningRules(drop=names, **limits)
    sources, targets = [], []
    for n in range(119):
        one, two, three = 20 + n % 7, 20 + n % 11, 20 + n % 5
        sources.append(f"The house number {one} or {two} is old.")
        targets.append(f"Das Haus Nummer {one} oder {three} ist alt{'!' * (n % 5)}")
    sources.append("The house is old.")
    targets.append("The house is old, and we live in it.")
    columns = {"source": sources, "target": targets, "corpus": [0] * 120}
    texts = datasets.Dataset.from_dict(columns)
    spec = CorpusSpec(file="a.tsv", source_language="en", target_language="de")
    results = []
    for processes in (1, 2, 3):
        report = CleaningReport(read=120)
        rules_of_corpus = [PairRules.for_corpus(spec, rules, [])]
        broken = find_broken(texts, rules_of_corpus, report, processes)
        results.append((broken.tolist(), report))
    assert results[0] == results[1] == results[2]
    expected = {"other_numbers", "near_duplicates", "other_languages"}
    assert set(results[0][1].dropped) >= expected


def test_hashes_of_pairs_have_no_offsets_that_could_overflow(monkeypatch):
    names = ["duplicates", "repeated_sources"]
    columns = {"source": ["a", "a"], "target": ["b", "c"], "corpus": [0, 0]}
    types = []

    def note_types(first, second, *arguments):
        types.extend([first.type, second.type])
        return find_duplicates(first, second, *arguments)

    monkeypatch.setattr(cleaning, "find_duplicates", note_types)
    report = CleaningReport(read=2)
    texts = datasets.Dataset.from_dict(columns)
    broken = find_broken(texts, [PairRules(CleaningRules(drop=names))], report)
    assert types == [pa.uint64()] * 4
    assert broken.tolist() == [False, True]
