"""Shipped recipes train two steps of a tiny model on a tiny corpus; `tests/golden` trains each for twenty."""

import pytest
import torch
import yaml

from tests.sweeps import sample
from tests.tiny_runs import ROOT, flags, no_scores, read_without_corpus
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

RUN = {"max_steps": 2, "max_tokens": 200, "vocab_size": 600}


@pytest.mark.parametrize(
    "path", sample(sorted((ROOT / "recipes").glob("*.yaml")), ROOT / "recipes/base.yaml"), ids=lambda path: path.stem
)
def test_recipes_train_two_steps_of_tiny_model(path, corpus, tmp_path):
    shipped = read_without_corpus(path)
    (tmp_path / "shipped.yaml").write_text(yaml.safe_dump(shipped))
    kept = {name: shipped.get(name) for name in ("dropout", "warmup_steps", "save_steps", "average_checkpoints")}
    recipe = parse_recipe([str(tmp_path / "shipped.yaml"), *flags(corpus, tmp_path / "out", **RUN | kept)])
    assert recipe.model.dropout == shipped.get("dropout", 0.1)
    folder = train(recipe, evaluate=no_scores)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
    assert all(torch.isfinite(weight).all() for weight in model.parameters())
    assert (folder / "checkpoint-2").exists()
