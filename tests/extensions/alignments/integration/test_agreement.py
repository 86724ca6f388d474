"""Training with `train_alignments: agreement` aligns the words of its own text."""

import pytest

from tests.tiny_runs import flags
from vanilla_transformer.cli import main
from vanilla_transformer.data.prepare_data import load_texts
from vanilla_transformer.data.tokenized_corpus import TokenColumn
from vanilla_transformer.data.tokenizer_training import hash_tokenizer
from vanilla_transformer.extensions.alignments.token_alignments import load_alignments
from vanilla_transformer.training.recipe import parse_recipe


def links_of(recipe, tokenizer, folder):
    texts, key = load_texts(recipe.data, folder), hash_tokenizer(tokenizer)
    alignments = load_alignments(texts, tokenizer, key)
    return TokenColumn(alignments.dataset.data.column("links")).read(range(40))


def test_agreement_is_what_write_alignments_writes(corpus, tiny_tokenizer, tmp_path):
    files = ["--source", str(corpus / "train.a"), "--target", str(corpus / "train.b")]
    path = tmp_path / "found.align"
    assert main(["write-alignments", *files, "--output", str(path)]) == 0
    assert len(path.read_text().splitlines()) == 40
    columns = []
    for name in ("agreement", path):
        recipe = parse_recipe(flags(corpus, tmp_path / "run", train_alignments=name))
        columns.append(links_of(recipe, tiny_tokenizer, tmp_path))
    (values, sizes), (others, other_sizes) = columns
    assert values.tolist() == others.tolist()
    assert sizes.tolist() == other_sizes.tolist()
    assert len(values) > 200


UNLIKE = [("A B\n", "the same number of lines, got 40 in"), ("", "empty")]


@pytest.mark.parametrize("lines, words", UNLIKE)
def test_write_alignments_names_files_that_do_not_fit(corpus, tmp_path, capsys, lines, words):
    (corpus / "other").write_text(lines)
    files = ["--source", str(corpus / "train.a"), "--target", str(corpus / "other")]
    path = tmp_path / "out.align"
    assert main(["write-alignments", *files, "--output", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert words in error
    assert not [*tmp_path.glob("out.align*")]
