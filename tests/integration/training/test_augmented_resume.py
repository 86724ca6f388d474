"""A run with augmented text resumes bit for bit, and its tokens are part of the model."""

from pathlib import Path

from tests.tiny_runs import assert_same_run, flags, kill_at_step, no_scores
from vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerTokenizer
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.text.inline_terms import knows_inline_terms
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train

RUN = {
    "augment": '{"inline_terms": 0.5, "placeholders": 0.5}',
    "bpe_dropout": 0.1,
    "vocab_size": 300,
    "max_tokens": 400,
    "max_steps": 12,
    "save_steps": 1,
    "ema_decay": 0.9,
}


def write_text(folder: Path) -> Path:
    for split, count in (("train", 60), ("validation", 5)):
        for end, lines in zip("ab", zip(*read_demo_corpus(split, count), strict=True), strict=True):
            (folder / f"{split}.{end}").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_train_resumes_augmented_run_bit_for_bit(tmp_path, monkeypatch):
    text = write_text(tmp_path)
    straight = train(parse_recipe(flags(text, tmp_path / "straight", **RUN)), evaluate=no_scores)
    recipe = parse_recipe(flags(text, tmp_path / "killed", **RUN))
    kill_at_step(recipe, monkeypatch, 10)
    assert_same_run(straight, train(recipe, evaluate=no_scores))
    tokenizer = VanillaTransformerTokenizer.from_pretrained(straight)
    assert knows_inline_terms(tokenizer)
    model = VanillaTransformerForConditionalGeneration.from_pretrained(straight)
    assert model.config.vocab_size == len(tokenizer) == 300 + 11
