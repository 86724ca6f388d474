"""Decoder-only and encoder-only models: parity with GPT-2 and the full model, padding, loading and
training.
"""

import copy
import json
import os

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from tests.processes import run_python
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderConfig,
    VanillaTransformerDecoderModel,
    VanillaTransformerEncoderConfig,
    VanillaTransformerEncoderModel,
    VanillaTransformerForCausalLM,
    VanillaTransformerForMaskedLM,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerModel,
)

VOCABULARY, PAD, START, EOS = 40, 0, 1, 2
GPT2 = {
    "normalize_before": True,
    "position_embedding_type": "learned",
    "max_position_embeddings": 32,
}
GPT2 |= {
    "activation_function": "gelu_new",
    "attention_bias": True,
    "scale_embedding": False,
    "layer_norm_eps": 1e-5,
}
# Each model class with its configuration class and its Auto class.
CLASSES = [
    (VanillaTransformerDecoderModel, VanillaTransformerDecoderConfig, AutoModel),
    (VanillaTransformerForCausalLM, VanillaTransformerDecoderConfig, AutoModelForCausalLM),
    (VanillaTransformerEncoderModel, VanillaTransformerEncoderConfig, AutoModel),
    (VanillaTransformerForMaskedLM, VanillaTransformerEncoderConfig, AutoModelForMaskedLM),
    (
        VanillaTransformerForSequenceClassification,
        VanillaTransformerEncoderConfig,
        AutoModelForSequenceClassification,
    ),
]


def tiny_config(config_class, **changes):
    stack = "decoder" if config_class is VanillaTransformerDecoderConfig else "encoder"
    sizes = {f"{stack}_layers": 2, f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 24}
    return config_class(
        **{"vocab_size": VOCABULARY, "d_model": 16, "init_std": 0.3} | sizes | changes
    )


def tiny_model(model_class, config_class=VanillaTransformerDecoderConfig, seed=0, **changes):
    torch.manual_seed(seed)
    return model_class(tiny_config(config_class, **changes)).eval()


def tokens(sentences, length):
    return torch.randint(3, VOCABULARY, (sentences, length))


# --- Decoder-only models --------------------------------------------------------------------------


def copy_gpt2(gpt2):
    """Return a decoder-only model with the weights of `gpt2`."""
    model = VanillaTransformerForCausalLM(tiny_config(VanillaTransformerDecoderConfig, **GPT2))
    body, stack = gpt2.transformer, model.model
    pairs = [
        (stack.embed_tokens, body.wte),
        (stack.embed_positions, body.wpe),
        (stack.layer_norm, body.ln_f),
    ]
    for layer, block in zip(stack.layers, body.h, strict=True):
        pairs += [(layer.self_attn_layer_norm, block.ln_1), (layer.final_layer_norm, block.ln_2)]
        joined = zip(
            block.attn.c_attn.weight.t().chunk(3), block.attn.c_attn.bias.chunk(3), strict=True
        )
        for projection, (weight, bias) in zip(
            (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
            joined,
            strict=True,
        ):
            projection.weight.data, projection.bias.data = weight.clone(), bias.clone()
        for ours, theirs in (
            (layer.self_attn.out_proj, block.attn.c_proj),
            (layer.fc1, block.mlp.c_fc),
            (layer.fc2, block.mlp.c_proj),
        ):
            ours.weight.data, ours.bias.data = theirs.weight.t().clone(), theirs.bias.clone()
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())
    return model.eval()


@pytest.fixture
def gpt2():
    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCABULARY,
        "n_positions": 32,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "n_inner": 24,
    }
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=START, eos_token_id=EOS)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def test_causal_lm_matches_gpt2_with_same_weights(gpt2):
    model, ids = copy_gpt2(gpt2), tokens(3, 9)
    ours, theirs = model(ids, labels=ids), gpt2(ids, labels=ids)
    torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.loss, theirs.loss)
    ours.loss.backward()
    theirs.loss.backward()
    torch.testing.assert_close(
        model.model.embed_tokens.weight.grad, gpt2.transformer.wte.weight.grad, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("beams", [1, 3])
def test_causal_lm_generates_like_gpt2(gpt2, beams):
    prompt = tokens(2, 4)
    prompt[0, :2] = PAD
    decoding = {"attention_mask": prompt.ne(PAD).long(), "max_new_tokens": 12, "num_beams": beams}
    decoding |= {"do_sample": False, "pad_token_id": PAD}
    expected = gpt2.generate(prompt, **decoding)
    assert torch.equal(copy_gpt2(gpt2).generate(prompt, **decoding), expected)


@pytest.mark.parametrize(("beams", "length"), [(1, 4), (2, 4), (1, 1)])
def test_generate_does_not_read_eos_at_the_end_of_prompts(beams, length):
    model, prompt = tiny_model(VanillaTransformerForCausalLM), tokens(2, length)
    ended = torch.cat([prompt, torch.full((2, 1), EOS)], dim=1)
    decoding = {"max_new_tokens": 5, "num_beams": beams, "do_sample": False}
    found, expected = model.generate(ended, **decoding), model.generate(prompt, **decoding)
    assert torch.equal(found[:, : length + 1], ended)
    assert torch.equal(found[:, length + 1 :], expected[:, length:])


# --- Encoder-only models --------------------------------------------------------------------------


def test_encoder_model_matches_encoder_of_full_model():
    encoder, ids = (
        tiny_model(VanillaTransformerEncoderModel, VanillaTransformerEncoderConfig),
        tokens(3, 7),
    )
    whole = VanillaTransformerModel(tiny_config(VanillaTransformerConfig, encoder_layers=2)).eval()
    whole.encoder.load_state_dict(encoder.state_dict())
    ids[1, 4:] = PAD
    assert torch.equal(encoder(ids).last_hidden_state, whole.encoder(ids).last_hidden_state)


@pytest.mark.parametrize(
    "model_class", [VanillaTransformerForMaskedLM, VanillaTransformerForSequenceClassification]
)
def test_encoder_heads_ignore_padding(model_class):
    model, ids = tiny_model(model_class, VanillaTransformerEncoderConfig), tokens(2, 6)
    padded = nn.functional.pad(ids, (0, 3), value=PAD)
    found, expected = model(padded).logits, model(ids).logits
    torch.testing.assert_close(found[:, : expected.shape[1]], expected, atol=1e-5, rtol=1e-4)


def test_sequence_classification_with_one_label_is_regression():
    model = tiny_model(
        VanillaTransformerForSequenceClassification, VanillaTransformerEncoderConfig, num_labels=1
    )
    outputs = model(tokens(4, 5), labels=torch.rand(4))
    assert outputs.logits.shape == (4, 1)
    assert model.config.problem_type == "regression" and outputs.loss.requires_grad


# --- All models -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("model_class", "config_class", "auto_class"), CLASSES)
def test_auto_class_loads_saved_model(
    model_class, config_class, auto_class, tiny_tokenizer, tmp_path
):
    model = tiny_model(model_class, config_class)
    model.save_pretrained(tmp_path)
    found = auto_class.from_pretrained(tmp_path)
    assert type(found) is model_class and type(AutoConfig.from_pretrained(tmp_path)) is config_class
    tiny_tokenizer.save_pretrained(tmp_path)
    assert type(AutoTokenizer.from_pretrained(tmp_path)) is type(tiny_tokenizer)
    inputs = tokens(2, 5)
    assert torch.equal(found.eval()(inputs)[0], model(inputs)[0])


LOAD_WITHOUT_PACKAGE = """
import sys, json
sys.modules["vanilla_transformer"] = None  # as if it were not installed
import torch, transformers
for folder, auto_class in json.loads(sys.argv[1]):
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True).eval()
    print(json.dumps([type(model).__name__, model(torch.tensor([[5, 6, 7]]))[0].flatten().tolist()]))
"""


def test_auto_class_loads_saved_model_without_package(tmp_path):
    models = [tiny_model(model_class, config_class) for model_class, config_class, _ in CLASSES]
    asked = []
    for model, (_, _, auto_class) in zip(models, CLASSES, strict=True):
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        asked.append([str(folder), auto_class.__name__])
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    ended = run_python("-c", LOAD_WITHOUT_PACKAGE, json.dumps(asked), env=environment, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for model, line in zip(models, ended.stdout.splitlines()[-len(models) :], strict=True):
        name, found = json.loads(line)
        assert name == type(model).__name__
        torch.testing.assert_close(
            torch.tensor(found), model(torch.tensor([[5, 6, 7]]))[0].flatten()
        )


@pytest.mark.parametrize(
    "model_class", [VanillaTransformerForCausalLM, VanillaTransformerForMaskedLM]
)
def test_resize_token_embeddings_keeps_weights_tied(model_class, tmp_path):
    model = tiny_model(model_class, model_class.config_class)
    before = model(tokens(1, 4))[0]
    model.resize_token_embeddings(VOCABULARY + 3)
    assert model(tokens(1, 4) * 0 + VOCABULARY + 2)[0].shape[-1] == VOCABULARY + 3
    assert (
        before.shape[-1] == VOCABULARY and model.lm_head.weight is model.model.embed_tokens.weight
    )
    model.save_pretrained(tmp_path)
    assert model_class.from_pretrained(tmp_path).config.vocab_size == VOCABULARY + 3


@pytest.mark.parametrize(("model_class", "config_class", "auto_class"), CLASSES)
def test_model_rejects_input_ids_outside_vocabulary(model_class, config_class, auto_class):
    with pytest.raises(ValueError, match="`input_ids` must be from 0 to 39, got 40"):
        tiny_model(model_class, config_class)(torch.tensor([[40]]))


# --- Stock Trainer and collators ------------------------------------------------------------------


def train_and_return_losses(model, tokenizer, rows, collator, tmp_path):
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=60, learning_rate=5e-3, per_device_train_batch_size=8,
        logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, seed=1,
    )  # fmt: skip
    trainer = Trainer(
        model, arguments, train_dataset=rows, data_collator=collator, processing_class=tokenizer
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return sum(losses[:5]) / 5, sum(losses[-5:]) / 5


@pytest.fixture
def masking_tokenizer(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    return tokenizer


TEXTS = [
    "A man is sleeping.",
    "Two dogs run across the green grass.",
    "A dog is sleeping.",
    "Two men run.",
] * 8


@pytest.mark.parametrize("masked", [False, True])
def test_stock_trainer_trains_language_models(masked, masking_tokenizer, tmp_path):
    model_class = VanillaTransformerForMaskedLM if masked else VanillaTransformerForCausalLM
    model = tiny_model(
        model_class, model_class.config_class, vocab_size=len(masking_tokenizer), init_std=None
    ).train()
    rows = [{"input_ids": ids} for ids in masking_tokenizer(TEXTS)["input_ids"]]
    collator = DataCollatorForLanguageModeling(
        masking_tokenizer, mlm=masked, seed=1 if masked else None
    )
    first, last = train_and_return_losses(model, masking_tokenizer, rows, collator, tmp_path)
    assert last < 0.7 * first


def test_stock_trainer_trains_classifier(tiny_tokenizer, tmp_path):
    model = tiny_model(
        VanillaTransformerForSequenceClassification,
        VanillaTransformerEncoderConfig,
        vocab_size=len(tiny_tokenizer),
        init_std=None,
    ).train()
    encoded = tiny_tokenizer(TEXTS)["input_ids"]
    rows = [
        {"input_ids": ids, "label": int(text.startswith("A"))}
        for ids, text in zip(encoded, TEXTS, strict=True)
    ]
    first, last = train_and_return_losses(
        model, tiny_tokenizer, rows, DataCollatorWithPadding(tiny_tokenizer), tmp_path
    )
    assert last < 0.5 * first
