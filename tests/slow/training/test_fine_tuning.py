"""A model of the shape of OPUS-MT is fine-tuned, and transformers' Marian translates with the
result.
"""

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig, MarianMTModel

from tests.marian_files import build_marian_tokenizer, marian_model
from tests.tiny_runs import entries, no_scores
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.decoding.pretrained import load_seq2seq
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

OPUS_LAYERS = {
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 8,
    "decoder_attention_heads": 8,
}
OPUS_LAYERS |= {"d_model": 64, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "init_std": 0.02}
RECIPE = {
    "lr_scheduler": "constant_with_warmup",
    "learning_rate": 2e-3,
    "warmup_steps": 50,
    "max_tokens": 256,
}
RECIPE |= {"max_steps": 200, "eval_steps": 100, "save_steps": 100, "average_checkpoints": 1}


@pytest.fixture
def text(tmp_path):
    """Write pairs of the demo corpus to files, and return all sentences for a tokenizer."""
    for split, count in (("train", 1000), ("validation", 20)):
        for side, lines in zip(
            ("source", "target"), zip(*read_demo_corpus(split, count), strict=True), strict=True
        ):
            (tmp_path / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
    return [line for pair in read_demo_corpus("train", 1000) for line in pair]


def mean_loss(model, tokenizer, pairs):
    batch = tokenizer(
        [pair.source for pair in pairs],
        text_target=[pair.target for pair in pairs],
        padding=True,
        return_tensors="pt",
    )
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    with torch.no_grad():
        return model(**batch).loss.item()


def translate(model, tokenizer, batch, **search):
    torch.manual_seed(0)
    tokens = model.generate(
        **batch,
        generation_config=GenerationConfig.from_model_config(model.config),
        max_new_tokens=30,
        **search,
    )
    return tokenizer.batch_decode(tokens, skip_special_tokens=True)


def test_train_fine_tunes_the_shape_of_opus_mt_and_marian_translates_the_same(tmp_path, text):
    (tmp_path / "tokenizer").mkdir()
    tokenizer = build_marian_tokenizer(tmp_path / "tokenizer", text, vocab_size=1000)
    opus = marian_model(len(tokenizer), **OPUS_LAYERS)
    save_model_folder(opus, tokenizer, tmp_path / "opus")
    files = {
        f"{split}_{side}": tmp_path / f"{split}.{side}"
        for split in ("train", "validation")
        for side in ("source", "target")
    }
    recipe = files | RECIPE | {"init_from": tmp_path / "opus", "output_dir": tmp_path / "tuned"}
    words = [word for name, value in recipe.items() for word in (f"--{name}", str(value))]
    tuned = train(parse_recipe(words), evaluate=no_scores)

    losses = [entry["validation_loss"] for entry in entries(tuned) if "validation_loss" in entry]
    assert losses[-1] < losses[1] < losses[0] - 1.0
    pairs = read_demo_corpus("validation", 20)
    comparison = WRITERS["marian"](tuned, tmp_path / "back", [pair.source for pair in pairs])
    assert comparison.num_identical == 20 and comparison.max_logit_difference < 1e-3

    ours, back = (
        load_seq2seq(tuned, "translates").eval(),
        MarianMTModel.from_pretrained(tmp_path / "back").eval(),
    )
    loaded = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert mean_loss(back, loaded, pairs) < mean_loss(opus, tokenizer, pairs) - 1.0
    batch = loaded([pair.source for pair in pairs], padding=True, return_tensors="pt")
    for search in ({"num_beams": 4}, {"num_beams": 1, "do_sample": True}):
        found, expected = (translate(model, loaded, batch, **search) for model in (back, ours))
        assert found == expected
    assert len(set(found)) == 20  # samples differ, whereas a beam of such a young model may not
