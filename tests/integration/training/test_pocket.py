"""The recipe `pocket` with tiny sizes: it resumes bit for bit, translates, and fits what Bergamot
computes.
"""

import pytest
import torch
from transformers import pipeline

from tests.tiny_runs import assert_same_run, flags, kill_at_step, no_scores
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.tokenization_vanilla_transformer import SENTENCEPIECE_FILE
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


def test_pocket_resumes_bit_for_bit_and_carries_its_sentencepiece_model(tmp_path, monkeypatch):
    for split, count in (("train", 60), ("validation", 5)):
        for end, lines in zip("ab", zip(*read_demo_corpus(split, count), strict=True), strict=True):
            (tmp_path / f"{split}.{end}").write_text("".join(f"{line}\n" for line in lines))
    changes = {
        "vocab_size": 330,
        "max_tokens": 400,
        "max_steps": 12,
        "save_steps": 1,
        "mixed_precision": "no",
    }
    words = ["pocket", *flags(tmp_path, tmp_path / "straight", **changes)]
    straight = train(parse_recipe(words), evaluate=no_scores)
    recipe = parse_recipe(["pocket", *flags(tmp_path, tmp_path / "killed", **changes)])
    kill_at_step(recipe, monkeypatch, 10)
    assert_same_run(straight, train(recipe, evaluate=no_scores))
    for folder in (straight, straight / "checkpoint-12", straight / "ema"):
        assert (folder / SENTENCEPIECE_FILE).exists() == (folder / "tokenizer.json").exists()
    assert (straight / SENTENCEPIECE_FILE).exists()
    config = VanillaTransformerConfig.from_pretrained(straight)
    assert config.sinusoid_layout == "tensor2tensor" and config.vocab_size == 329
    assert (
        config.pad_token_id == config.decoder_start_token_id == 328 and config.bos_token_id is None
    )
    assert pipeline("translation", model=str(straight))("Tom  schläft.", return_alignments=True)[
        0
    ].keys() >= {"alignment"}
    with pytest.raises(
        ValueError, match="different values of tokenizer_model was 'sentencepiece' and is 'bpe'"
    ):
        train(parse_recipe([*words, "--tokenizer_model", "bpe"]))


def test_pocket_has_the_size_that_it_says():
    recipe = parse_recipe(["pocket", "--train_source=a", "--train_target=b", "--output_dir=out"])
    config = VanillaTransformerConfig(**vars(recipe.model), vocab_size=recipe.data.vocab_size)
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    matrices = sum(each.numel() for each in {*model.parameters()} if each.dim() == 2)
    attentions = (
        config.encoder_layers + 2 * config.decoder_layers
    )  # whose biases Marian always stores, as the output's
    biases = 4 * config.d_model * attentions + config.vocab_size
    size = matrices + 4 * (
        biases + sum(each.numel() for each in model.parameters() if each.dim() == 1)
    )
    assert round(size / 1e6, 1) == 17.4 and round(size / 2**20, 1) == 16.6
