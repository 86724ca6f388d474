"""Advice of `--dry_run` by the size of the corpus."""

import pytest

from vanilla_transformer.training.dry_run import advise
from vanilla_transformer.training.recipe import parse_recipe

FILES = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
TUNING = ["--init_from", "a", "--lr_scheduler", "constant_with_warmup", "--learning_rate", "2e-4"]
TUNING += ["--freeze", "encoder"]


def test_advise_names_what_the_recipe_has_instead():
    recipe = parse_recipe([*FILES, "--d_model", "256", "--dropout", "0.3", "--vocab_size", "8000"])
    assert advise(recipe, 29_000, 95.0) == [
        "Rules of thumb for training on 29,000 pairs:",
        "  d_model 256",
        "  encoder_layers 3 (here 6)",
        "  decoder_layers 3 (here 6)",
        "  vocab_size 6,000 (here 8,000)",
        "  dropout 0.2 (here 0.3)",
        "  epochs 100",
    ]


COUNTS = [(3000, True), (19_999, True), (20_000, False), (10**8, False)]


@pytest.mark.parametrize(("pairs", "few"), COUNTS)
def test_advise_recommends_a_trained_model_for_few_pairs(pairs, few):
    lines = advise(parse_recipe(FILES), pairs, 20.0)
    assert any("--init_from" in line for line in lines) is few


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (
            1000,
            [
                "  learning_rate 5e-05 (here 0.0002)",
                "  freeze embeddings (here encoder)",
                "  epochs 20 (here 4)",
            ],
        ),
        (
            29_000,
            ["  learning_rate 0.0001", "  freeze none (here encoder)", "  epochs 10 (here 4)"],
        ),
        (10**7, ["  learning_rate 0.0001", "  freeze none (here encoder)", "  epochs 3"]),
    ],
)
def test_advise_for_fine_tuning(pairs, expected):
    assert advise(parse_recipe([*FILES, *TUNING]), pairs, 4.0)[1:] == expected
