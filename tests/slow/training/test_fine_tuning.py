"""A model of the shape of OPUS-MT is fine-tuned, and transformers' Marian translates with the
result.
"""

from itertools import chain

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig, MarianMTModel

from tests.marian_files import build_marian_tokenizer, marian_model
from tests.tiny_runs import entries, no_scores, to_words
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.decoding.pretrained import load_seq2seq
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.loading.model_folders import save_model_folder
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

OPUS_LAYERS = {"encoder_layers": 6, "decoder_layers": 6}
OPUS_LAYERS |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
OPUS_LAYERS |= {"d_model": 64, "encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "init_std": 0.02}
RECIPE = {"lr_scheduler": "constant_with_warmup", "learning_rate": 2e-3}
RECIPE |= {"warmup_steps": 50, "max_tokens": 256}
RECIPE |= {"max_steps": 200, "eval_steps": 100, "save_steps": 100, "average_checkpoints": 1}


@pytest.fixture
def text(tmp_path):
    """Write pairs of the demo corpus to files, and return all sentences for a tokenizer."""
    sentences = []
    for split, count in (("validation", 20), ("train", 1000)):
        pairs = read_demo_corpus(split, count)
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            text = "".join(f"{line}\n" for line in lines)
            (tmp_path / f"{split}.{side}").write_text(text)
        sentences = [*chain(*pairs)]
    return sentences


def mean_loss(model, tokenizer, pairs):
    sources, targets = map(list, zip(*pairs, strict=True))
    options = {"padding": True, "return_tensors": "pt"}
    batch = tokenizer(sources, text_target=targets, **options)
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    with torch.no_grad():
        return model(**batch).loss.item()


def translate(model, tokenizer, batch, **search):
    torch.manual_seed(0)
    config = GenerationConfig.from_model_config(model.config)
    search |= {"generation_config": config, "max_new_tokens": 30}
    tokens = model.generate(**batch, **search)
    return tokenizer.batch_decode(tokens, skip_special_tokens=True)


def test_marian_translates_as_a_fine_tuned_opus_mt(tmp_path, text):
    (tmp_path / "tokenizer").mkdir()
    tokenizer = build_marian_tokenizer(tmp_path / "tokenizer", text, vocab_size=1000)
    opus = marian_model(len(tokenizer), **OPUS_LAYERS)
    save_model_folder(opus, tokenizer, tmp_path / "opus")
    recipe = RECIPE | {"init_from": tmp_path / "opus", "output_dir": tmp_path / "tuned"}
    for split in ("train", "validation"):
        recipe[f"{split}_source"] = tmp_path / f"{split}.source"
        recipe[f"{split}_target"] = tmp_path / f"{split}.target"
    tuned = train(parse_recipe(to_words(recipe)), evaluate=no_scores)

    validations = [entry for entry in entries(tuned) if "validation_loss" in entry]
    losses = [entry["validation_loss"] for entry in validations]
    assert losses[-1] < losses[1] < losses[0] - 1.0
    pairs = read_demo_corpus("validation", 20)
    sources = [pair.source for pair in pairs]
    comparison = WRITERS["marian"](tuned, tmp_path / "back", sources)
    assert comparison.num_identical == 20
    assert comparison.max_logit_difference < 1e-3

    ours = load_seq2seq(tuned, "translates").eval()
    back = MarianMTModel.from_pretrained(tmp_path / "back").eval()
    loaded = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert mean_loss(back, loaded, pairs) < mean_loss(opus, tokenizer, pairs) - 1.0
    batch = loaded(sources, padding=True, return_tensors="pt")
    for search in ({"num_beams": 4}, {"num_beams": 1, "do_sample": True}):
        translations = translate(back, loaded, batch, **search)
        assert translations == translate(ours, loaded, batch, **search)
    # Samples differ, whereas a beam of such a young model may not.
    assert len(set(translations)) == 20
