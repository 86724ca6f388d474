"""Training refuses alignments that do not fit the text."""

import pytest

from tests.tiny_runs import flags, no_scores
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train


def test_train_refuses_alignments_that_do_not_fit_the_text(corpus, alignments, tmp_path):
    recipe = parse_recipe(flags(corpus, tmp_path / "run", train_alignments=alignments))
    lines = alignments.read_text().splitlines()
    alignments.write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(ValueError, match="train.align must have a line for each of 40 training pairs, got 39"):
        train(recipe, evaluate=no_scores)
    alignments.write_text("\n".join([lines[0], "0-9", *lines[2:]]) + "\n")
    with pytest.raises(ValueError, match="got '0-9' in line 2 of .*train.align"):
        train(recipe, evaluate=no_scores)
    assert not (tmp_path / "run" / "config.json").exists()
