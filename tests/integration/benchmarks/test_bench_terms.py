"""Term sets are sentences with new nouns, and the table compares the modes."""

import pytest

from benchmarks import bench_terms
from benchmarks.term_sets import build_term_sets, find_term_sets
from tests.inline_terms import model_with_inline_terms
from vanilla_transformer.data.readers import SentencePair, read_lines
from vanilla_transformer.evaluation.term_use import measure_term_use
from vanilla_transformer.file_utils import save_model_folder
from vanilla_transformer.text.glossary import read_glossary


def test_build_term_sets_has_new_nouns_in_every_sentence():
    known, unknown = build_term_sets(20)
    for each in (known, unknown):
        assert len(set(each.pairs)) == 20 and len(each.glossary) == 40
        use = measure_term_use(each.glossary, *zip(*each.pairs, strict=True))
        assert use.sentences == 20 and 0.9 * use.terms < use.exact <= use.inflected == use.terms
    assert all(one.source != other.source for one, other in zip(known.pairs, unknown.pairs, strict=True))


NOUNS = "dog Hund cat Katze horse Pferd cow Kuh goat Ziege bird Vogel fish Fisch lamb Lamm mouse Maus crow Rabe"
VERBS = "sleeps schläft runs rennt eats frisst jumps springt waits wartet falls fällt stands steht sits sitzt"


def pairs_of(words: str) -> list[tuple[str, str]]:
    each = words.split()
    return list(zip(each[::2], each[1::2], strict=True))


def test_find_term_sets_ranks_translations_by_frequency():
    training = [
        SentencePair(f"The {noun} {verb}.", f"{'Köter' if noun == 'dog' and number < 3 else german} {german_verb}.")
        for noun, german in pairs_of(NOUNS)
        for number, (verb, german_verb) in enumerate(pairs_of(VERBS))
    ] * 3
    test = [SentencePair("The dog sleeps.", f"{word} schläft.") for word in ("Hund", "Köter", "Wolf")]
    first, second = find_term_sets(test, training)
    assert first.pairs == test[:1] and second.pairs == test[1:2]
    assert ("dog", "Hund", "") in first.glossary.terms and second.glossary.terms == [("dog", "Köter", "")]


def test_bench_terms_asks_for_all_files(capsys):
    with pytest.raises(SystemExit):
        bench_terms.main(["runs/demo", "--source", "test.en"])
    assert "--source, --target, --train_source, --train_target must be given together" in capsys.readouterr().err


def test_bench_terms_prints_a_row_for_each_mode(tmp_path, capsys):
    model, tokenizer = model_with_inline_terms()
    folder = save_model_folder(model, tokenizer, tmp_path / "model")
    bench_terms.main([str(folder), "--sentences", "2", "--write", str(tmp_path / "sets")])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[2] for row in rows] == ["none", "soft", "hard", "exact"] * 2
    assert all(row[3].endswith("%") and float(row[5].removesuffix(" |")) >= 0 for row in rows)
    assert len(read_lines(tmp_path / "sets" / "terms2.en")) == 2
    assert len(read_glossary(tmp_path / "sets" / "terms1.tsv")) == 40
