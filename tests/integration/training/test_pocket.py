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


def write_corpus(folder, split, count):
    """Write pairs of the demo corpus."""
    sides = zip(*read_demo_corpus(split, count), strict=True)
    for end, lines in zip("ab", sides, strict=True):
        (folder / f"{split}.{end}").write_text("\n".join([*lines, ""]))


def test_pocket_resumes_and_carries_its_sentencepiece_model(tmp_path, monkeypatch):
    write_corpus(tmp_path, "train", 60)
    write_corpus(tmp_path, "validation", 5)
    changes = {"vocab_size": 330, "max_tokens": 400, "max_steps": 12}
    changes |= {"save_steps": 1, "mixed_precision": "no"}
    words = ["pocket", *flags(tmp_path, tmp_path / "straight", **changes)]
    straight = train(parse_recipe(words), evaluate=no_scores)
    recipe = parse_recipe(["pocket", *flags(tmp_path, tmp_path / "killed", **changes)])
    kill_at_step(recipe, monkeypatch, 10)
    assert_same_run(straight, train(recipe, evaluate=no_scores))
    for folder in (straight, straight / "checkpoint-12", straight / "ema"):
        has_file = (folder / SENTENCEPIECE_FILE).exists()
        assert has_file == (folder / "tokenizer.json").exists()
    assert (straight / SENTENCEPIECE_FILE).exists()
    config = VanillaTransformerConfig.from_pretrained(straight)
    assert config.sinusoid_layout == "tensor2tensor" and config.vocab_size == 329
    assert config.pad_token_id == config.decoder_start_token_id == 328
    assert config.bos_token_id is None
    translate = pipeline("translation", model=str(straight))
    (answer,) = translate("Tom  schläft.", return_alignments=True)
    assert "alignment" in answer
    message = "different values of tokenizer_model was 'sentencepiece' and is 'bpe'"
    with pytest.raises(ValueError, match=message):
        train(parse_recipe([*words, "--tokenizer_model", "bpe"]))


def test_pocket_has_the_size_that_it_says():
    files = ["--train_source=a", "--train_target=b", "--output_dir=out"]
    recipe = parse_recipe(["pocket", *files])
    sizes = {**vars(recipe.model), "vocab_size": recipe.data.vocab_size}
    config = VanillaTransformerConfig(**sizes)
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    matrices = biases = 0
    for weight in model.parameters():
        if weight.dim() == 2:
            matrices += weight.numel()
        elif weight.dim() == 1:
            biases += weight.numel()
    # Marian always stores the biases of attention, as the output's.
    attentions = config.encoder_layers + 2 * config.decoder_layers
    biases += 4 * config.d_model * attentions + config.vocab_size
    size = matrices + 4 * biases
    assert round(size / 1e6, 1) == 17.4 and round(size / 2**20, 1) == 16.6
