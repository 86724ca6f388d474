"""A tokenizer of GPT-2, which appends no EOS and gets a `[PAD]`, with our models: training, and raw
text prompts.
"""

import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GPT2Tokenizer, pipeline

from tests.tiny import tiny_decoder_config
from tests.tiny_runs import entries
from vanilla_transformer import VanillaTransformerForCausalLM
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

SOURCES = ["A man is sleeping.", "Two dogs run across the green grass."]
SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}
TARGETS = ["Ein Mann schläft.", "Zwei Hunde laufen über das grüne Gras."]


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    """Return the folder of GPT-2's class of tokenizer on a vocabulary of these sentences, with an
    added `[PAD]`.
    """
    folder = tmp_path_factory.mktemp("gpt2")
    vocabulary = ByteLevelBPETokenizer()
    options = {"vocab_size": 300, "special_tokens": ["<|endoftext|>"], "show_progress": False}
    vocabulary.train_from_iterator([*SOURCES, *TARGETS], **options)
    vocabulary.save_model(str(folder))
    tokenizer = GPT2Tokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    assert (
        tokenizer.pad_token is None and tokenizer.eos_token_id not in tokenizer("A man").input_ids
    )
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)
    return folder


def test_translation_model_learns_with_gpt2_tokenizer(tokenizer_folder, tmp_path):
    for name, lines in (("train.en", SOURCES), ("train.de", TARGETS)):
        (tmp_path / name).write_text("\n".join(lines * 20) + "\n")
    sides = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("layers", 1), ("ffn_dim", 64))
    }
    options = {
        "train_source": tmp_path / "train.en",
        "train_target": tmp_path / "train.de",
        "d_model": 32,
    } | sides
    options |= {
        "tokenizer": tokenizer_folder,
        "output_dir": tmp_path / "run",
        "dropout": 0,
        "label_smoothing": 0,
    }
    options |= {"max_tokens": 300, "max_steps": 150, "warmup_steps": 30, "logging_steps": 10}
    folder = train(
        parse_recipe(
            [word for name, value in options.items() for word in (f"--{name}", str(value))]
        )
    )
    losses = [entry["loss"] for entry in entries(folder) if "loss" in entry]
    assert losses[-1] < 0.1 * losses[0]
    model, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    texts = [
        model.generate(torch.tensor(encode_sentences(tokenizer, [source])))[0] for source in SOURCES
    ]
    answers = pipeline("translation", model=str(folder))(SOURCES)
    assert [each["translation_text"] for each in answers] == tokenizer.batch_decode(
        texts, skip_special_tokens=True
    )


def test_causal_lm_continues_raw_text_prompts_alike_alone_and_padded(tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, padding_side="left")
    assert tokenizer.pad_token == "[PAD]" and tokenizer.pad_token_id == len(tokenizer) - 1
    torch.manual_seed(0)
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": 0, "eos_token_id": 0}
    model = VanillaTransformerForCausalLM(
        tiny_decoder_config(vocab_size=len(tokenizer), **ids)
    ).eval()
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer)
    prompts = ["A man", "Two dogs run across"]
    options = {"max_new_tokens": 8, "do_sample": False}
    alone = [generate(prompt, **options)[0]["generated_text"] for prompt in prompts]
    together = [
        answer[0]["generated_text"] for answer in generate(prompts, batch_size=2, **options)
    ]
    assert together == alone
    assert all(text.startswith(prompt) for text, prompt in zip(alone, prompts, strict=True))
