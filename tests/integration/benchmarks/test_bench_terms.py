"""Term sets are sentences with new nouns, and the table compares the modes."""

from benchmarks import bench_terms
from benchmarks.term_sets import build_term_sets
from tests.inline_terms import model_with_inline_terms
from vanilla_transformer.data.readers import read_lines
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


def test_bench_terms_prints_a_row_for_each_mode(tmp_path, capsys):
    model, tokenizer = model_with_inline_terms()
    folder = save_model_folder(model, tokenizer, tmp_path / "model")
    bench_terms.main([str(folder), "--sentences", "2", "--write", str(tmp_path / "sets")])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[2] for row in rows] == ["none", "soft", "hard", "exact"] * 2
    assert all(row[3].endswith("%") and float(row[5].removesuffix(" |")) >= 0 for row in rows)
    assert len(read_lines(tmp_path / "sets" / "terms2.en")) == 2
    assert len(read_glossary(tmp_path / "sets" / "terms1.tsv")) == 40
