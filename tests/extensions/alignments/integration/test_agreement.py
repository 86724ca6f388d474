"""Training with `train_alignments: agreement` aligns the words of its own text."""

import pytest

from tests.tiny_runs import flags
from vanilla_transformer.cli import main
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.data.tokenized_corpus import TokenColumn
from vanilla_transformer.extensions.alignments.token_alignments import load_alignments
from vanilla_transformer.training.recipe import parse_recipe


def links_of(recipe, tokenizer, folder):
    found = load_alignments(load_texts(recipe.data, folder), tokenizer)
    return TokenColumn(found.dataset.data.column("links")).read(range(40))


def test_agreement_is_what_write_alignments_writes(corpus, tiny_tokenizer, tmp_path):
    files = ["--source", str(corpus / "train.a"), "--target", str(corpus / "train.b")]
    assert main(["write-alignments", *files, "--output", str(tmp_path / "found.align")]) == 0
    assert len((tmp_path / "found.align").read_text().splitlines()) == 40
    recipes = [
        parse_recipe(flags(corpus, tmp_path / "run", train_alignments=name))
        for name in ("agreement", tmp_path / "found.align")
    ]
    (values, sizes), (others, other_sizes) = (
        links_of(recipe, tiny_tokenizer, tmp_path) for recipe in recipes
    )
    assert (
        values.tolist() == others.tolist()
        and sizes.tolist() == other_sizes.tolist()
        and len(values) > 200
    )


@pytest.mark.parametrize(
    "lines, found", [("A B\n", "the same number of lines, got 40 in"), ("", "empty")]
)
def test_write_alignments_names_files_that_do_not_fit(corpus, tmp_path, capsys, lines, found):
    (corpus / "other").write_text(lines)
    files = ["--source", str(corpus / "train.a"), "--target", str(corpus / "other")]
    assert main(["write-alignments", *files, "--output", str(tmp_path / "out.align")]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("error: ") and output.err.count("\n") == 1 and found in output.err
    assert not [*tmp_path.glob("out.align*")]
