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
    options = {"vocab_size": 300, "show_progress": False}
    options["special_tokens"] = ["<|endoftext|>"]
    vocabulary.train_from_iterator([*SOURCES, *TARGETS], **options)
    vocabulary.save_model(str(folder))
    files = {"vocab": "vocab.json", "merges": "merges.txt"}
    files = {kind: str(folder / name) for kind, name in files.items()}
    tokenizer = GPT2Tokenizer(**files)
    assert tokenizer.pad_token is None
    assert tokenizer.eos_token_id not in tokenizer("A man").input_ids
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.sweep
def test_translation_model_learns_with_gpt2_tokenizer(tokenizer_folder, tmp_path):
    flags = ["--d_model", "32", "--dropout", "0", "--label_smoothing", "0", "--max_tokens", "300"]
    flags += ["--max_steps", "150", "--warmup_steps", "30", "--logging_steps", "10"]
    for side in ("encoder", "decoder"):
        flags += [f"--{side}_layers", "1", f"--{side}_ffn_dim", "64"]
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (tmp_path / name).write_text("\n".join(lines * 20) + "\n")
        flags += [f"--train_{name}", str(tmp_path / name)]
    flags += ["--tokenizer", str(tokenizer_folder), "--output_dir", str(tmp_path / "run")]
    folder = train(parse_recipe(flags))
    losses = [entry["loss"] for entry in entries(folder) if "loss" in entry]
    assert losses[-1] < 0.1 * losses[0]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    answers = pipeline("translation", model=str(folder))(SOURCES)
    for source, answer in zip(SOURCES, answers, strict=True):
        ids = torch.tensor(encode_sentences(tokenizer, [source]))
        (text,) = tokenizer.batch_decode(model.generate(ids), skip_special_tokens=True)
        assert answer["translation_text"] == text


def test_causal_lm_continues_prompts_alike_alone_and_padded(tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, padding_side="left")
    assert tokenizer.pad_token == "[PAD]"
    assert tokenizer.pad_token_id == len(tokenizer) - 1
    torch.manual_seed(0)
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": 0, "eos_token_id": 0}
    config = tiny_decoder_config(vocab_size=len(tokenizer), **ids)
    model = VanillaTransformerForCausalLM(config).eval()
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer)
    prompts = ["A man", "Two dogs run across"]
    options = {"max_new_tokens": 8, "do_sample": False}
    together = generate(prompts, batch_size=2, **options)
    for prompt, (answer,) in zip(prompts, together, strict=True):
        assert [answer] == generate(prompt, **options)
        assert answer["generated_text"].startswith(prompt)
