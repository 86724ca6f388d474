"""Pipelines of transformers with decoder-only and encoder-only models, and special tokens that a
user adds.
"""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast, pipeline

from tests.tiny import tiny_long_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer import (
    TranslationPipeline,
    VanillaTransformerDecoderConfig,
    VanillaTransformerEncoderConfig,
    VanillaTransformerForCausalLM,
    VanillaTransformerForMaskedLM,
)
from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import encode_pairs
from vanilla_transformer.data.tokenizer_training import train_tokenizer

TEXTS = ["The child sleeps.", "Where is the dog?"] * 20
SIZES = {"d_model": 16, "init_std": 0.3}


@pytest.fixture(scope="module")
def special_tokenizer(tmp_path_factory):
    """Return a tokenizer with a mask and a language, and the same one saved and loaded."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=300)
    tokenizer.add_special_tokens({"mask_token": "<mask>", "extra_special_tokens": ["<2de>"]})
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return [tokenizer, AutoTokenizer.from_pretrained(folder)]


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_tokenizer_keeps_added_special_tokens_whole(special_tokenizer):
    for tokenizer in special_tokenizer:
        language, mask = tokenizer.convert_tokens_to_ids(["<2de>", "<mask>"])
        words = ids_of(tokenizer, "The child")
        assert ids_of(tokenizer, "<2de> The child") == [language, *words]
        expected = [*ids_of(tokenizer, "The"), mask, *ids_of(tokenizer, "sleeps.")]
        assert ids_of(tokenizer, "The <mask> sleeps.") == expected


def test_tokenizer_skips_added_special_tokens_when_it_decodes(special_tokenizer):
    for tokenizer in special_tokenizer:
        ids = tokenizer(["<2de> The child", "The child"])["input_ids"]
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        assert texts == ["The child", "The child"]
        assert tokenizer.decode(ids[0]) == "<2de> The child</s>"
        first = torch.tensor(ids[0])
        assert tokenizer.decode(first, skip_special_tokens=True) == "The child"


def test_tokenizer_takes_its_own_symbols_in_a_text_for_characters(special_tokenizer):
    for tokenizer in special_tokenizer:
        for symbol in ("<pad>", "<s>", "</s>"):
            assert len(ids_of(tokenizer, f"a {symbol}")) > 2
            ids = tokenizer(f"a {symbol} b")["input_ids"]
            assert tokenizer.decode(ids, skip_special_tokens=True) == f"a {symbol} b"


def test_tokenizer_replaces_its_eos_by_one_that_no_text_contains():
    tokenizer = train_tokenizer(TEXTS, vocab_size=300)
    tokenizer.add_special_tokens({"eos_token": "<eot>"})
    assert tokenizer.eos_token_id not in ids_of(tokenizer, "The <eot>")


def foreign_tokenizer():
    """Train a tokenizer of another kind, which adds no EOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    options = {"vocab_size": 300, "show_progress": False}
    options["special_tokens"] = ["<pad>", "<s>", "</s>"]
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(**options))
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


LAYER_TYPES = ["linear_attention", "lsh_attention"]
LAYER_TYPES += ["transfo_xl_attention", "full_attention"]


def record_inputs(module):
    """Return a list that gets the inputs of a module."""
    seen = []
    module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].tolist()))
    return seen


@pytest.mark.parametrize("layer_type", LAYER_TYPES)
def test_pipeline_of_long_models_ends_sources_as_training_does(layer_type):
    tokenizer, model = foreign_tokenizer(), tiny_long_model(layer_types=layer_type)
    seen = record_inputs(model.model.encoder.embed_tokens)
    TranslationPipeline(model, tokenizer)("Where is the dog?", max_new_tokens=1)
    ((trained, _),) = encode_pairs(tokenizer, [SentencePair("Where is the dog?", "")])
    assert seen == [[trained]] and trained[-1] == tokenizer.eos_token_id


def test_fill_mask_pipeline_finds_the_mask(special_tokenizer):
    tokenizer = special_tokenizer[1]
    sizes = {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    sizes |= {"vocab_size": len(tokenizer), **SIZES}
    config = VanillaTransformerEncoderConfig(**sizes)
    model = VanillaTransformerForMaskedLM(config).eval()
    fill = pipeline("fill-mask", model=model, tokenizer=tokenizer)
    answers = fill("The <mask> sleeps.", top_k=2)
    assert len(answers) == 2
    assert all(answer["token"] < len(tokenizer) for answer in answers)


def language_model(tokenizer):
    torch.manual_seed(0)
    sizes = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 8}
    sizes |= {"vocab_size": len(tokenizer), **SIZES}
    config = VanillaTransformerDecoderConfig(**sizes)
    return VanillaTransformerForCausalLM(config).eval()


def test_text_generation_pipeline_continues_before_eos(special_tokenizer):
    tokenizer = special_tokenizer[0]
    model = language_model(tokenizer)
    options = {"max_new_tokens": 5, "do_sample": False}
    prompt = torch.tensor([ids_of(tokenizer, "Where is")])
    (tokens,) = model.generate(prompt, **options)
    expected = tokenizer.decode(tokens, skip_special_tokens=True)
    seen = record_inputs(model.model.embed_tokens)
    generate = pipeline("text-generation", model=model, tokenizer=tokenizer)
    assert generate("Where is", **options) == [{"generated_text": expected}]
    assert seen[0] == prompt.tolist()


def test_generate_does_not_read_an_eos_that_ends_all_prompts(special_tokenizer):
    model = language_model(special_tokenizer[0])
    options = {"max_new_tokens": 3, "do_sample": False}
    prompt = torch.tensor([[5, 6, 2], [7, 8, 2]])
    plain = model.generate(prompt[:, :2], **options)
    whole = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    assert torch.equal(whole, torch.cat([prompt, plain[:, 2:]], dim=1))
    search = {"num_beams": 2, "num_return_sequences": 2, **options}
    search["return_dict_in_generate"] = True
    beams = model.generate(input_ids=prompt, **search)
    assert torch.equal(beams.sequences[:, :3], prompt.repeat_interleave(2, dim=0))
    for other in ([[2]], [[5, 2], [5, 6]]):
        with_eos = model.generate(torch.tensor(other), **options)
        assert torch.equal(with_eos[:, : len(other[0])], torch.tensor(other))
        assert with_eos.shape[1] <= len(other[0]) + 3


def test_generate_returns_the_answer_of_another_search(special_tokenizer):
    model, prompt = language_model(special_tokenizer[0]), torch.tensor([[5, 6, 2]])
    assert model.generate(prompt, custom_generate=lambda *_, **__: "text") == "text"


RELEASE = "tested with 5.24 and later releases of transformers"


@pytest.mark.skipif(CACHE != "cache", reason=RELEASE)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_generate_batch_continues_each_prompt_as_generate(special_tokenizer, attention):
    from transformers import ContinuousBatchingConfig

    model = language_model(special_tokenizer[0])
    prompts = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]
    model.set_attn_implementation(attention)
    options = {"max_new_tokens": 4, "do_sample": False}
    options |= {"eos_token_id": 2, "pad_token_id": 0}
    # Not most of the memory.
    pages = ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)
    config = GenerationConfig(**options)
    results = model.generate_batch(prompts, config, continuous_batching_config=pages)
    answers = {}
    for result in results.values():
        answers[tuple(result.prompt_ids)] = result.generated_tokens
    for prompt in prompts:
        (expected,) = model.generate(torch.tensor([prompt]), **options).tolist()
        assert answers[tuple(prompt)] == expected[len(prompt) :]


def linear_model():
    return tiny_long_causal_lm(layer_types="linear_attention")


@pytest.mark.parametrize("make", [linear_model, tiny_model])
def test_generate_batch_refuses_a_model_at_once(make):
    model = make()
    name = type(model).__name__
    model_class = f"got {name} with (linear|full)_attention. Call `generate"
    with pytest.raises(ValueError, match=f"model with full attention, {model_class}"):
        model.generate_batch(inputs=[[5, 6]])


LENGTHS = [{"max_length": 9}, {"max_length": 9, "min_length": 9, "num_beams": 2}, {}]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_lengths_follow_a_prompt_without_its_eos(special_tokenizer, lengths):
    """Give a prompt and its embeddings."""
    model = language_model(special_tokenizer[0])
    prompt = torch.tensor([[5, 6, 2], [7, 8, 2]])
    mask = torch.ones_like(prompt)
    shorter = dict(lengths)
    for name in ("max_length", "min_length"):
        if name in lengths:
            shorter[name] -= 1
    tokens = model.generate(prompt[:, :2], attention_mask=mask[:, :2], **shorter)
    expected = torch.cat([prompt, tokens[:, 2:]], dim=1)
    special = {"eos_token_id": model.config.eos_token_id}
    special["pad_token_id"] = model.config.pad_token_id
    config = GenerationConfig(**lengths, **special)
    for options in (lengths, {"generation_config": config}):
        tokens = model.generate(prompt, attention_mask=mask, **options)
        assert torch.equal(tokens, expected)
    assert all(getattr(config, name) == value for name, value in lengths.items())
    embeddings = model.get_input_embeddings()(prompt)
    inputs = {"inputs_embeds": embeddings, "attention_mask": mask}
    assert torch.equal(model.generate(prompt, **inputs, **lengths), expected)
    # The last row of longer embeddings may be no EOS.
    inputs["inputs_embeds"] = torch.cat([embeddings[:, :1], embeddings], dim=1)
    inputs["attention_mask"] = torch.ones(2, 4).long()
    assert model.generate(prompt, **inputs, max_new_tokens=2).shape == (2, 5)
