"""Decoder-only and encoder-only models: parity with GPT-2 and the full model, padding, loading and
training.
"""

import copy
import json
import os
from functools import partial

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
GPT2 = {"normalize_before": True, "position_embedding_type": "learned"}
GPT2 |= {"max_position_embeddings": 32, "activation_function": "gelu_new"}
GPT2 |= {"attention_bias": True, "scale_embedding": False, "layer_norm_eps": 1e-5}
assert_close = torch.testing.assert_close
assert_near = partial(assert_close, atol=1e-5, rtol=1e-4)
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
    sizes = {"vocab_size": VOCABULARY, "d_model": 16, "init_std": 0.3}
    sizes |= {f"{stack}_layers": 2, f"{stack}_attention_heads": 2, f"{stack}_ffn_dim": 24}
    return config_class(**sizes | changes)


def tiny_model(model_class, config_class=VanillaTransformerDecoderConfig, seed=0, **changes):
    torch.manual_seed(seed)
    return model_class(tiny_config(config_class, **changes)).eval()


def tokens(sentences, length):
    return torch.randint(3, VOCABULARY, (sentences, length))


# --- Decoder-only models --------------------------------------------------------------------------


def copy_gpt2(gpt2):
    """Return a decoder-only model with the weights of `gpt2`."""
    config = tiny_config(VanillaTransformerDecoderConfig, **GPT2)
    model = VanillaTransformerForCausalLM(config)
    body, stack = gpt2.transformer, model.model
    pairs = [(stack.embed_tokens, body.wte), (stack.embed_positions, body.wpe)]
    pairs.append((stack.layer_norm, body.ln_f))
    for layer, block in zip(stack.layers, body.h, strict=True):
        pairs.append((layer.self_attn_layer_norm, block.ln_1))
        pairs.append((layer.final_layer_norm, block.ln_2))
        attention, joined = layer.self_attn, block.attn.c_attn
        weights, biases = joined.weight.t().chunk(3), joined.bias.chunk(3)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        for projection, weight, bias in zip(projections, weights, biases, strict=True):
            projection.weight.data, projection.bias.data = weight.clone(), bias.clone()
        for ours, theirs in (
            (layer.self_attn.out_proj, block.attn.c_proj),
            (layer.fc1, block.mlp.c_fc),
            (layer.fc2, block.mlp.c_proj),
        ):
            ours.weight.data = theirs.weight.t().clone()
            ours.bias.data = theirs.bias.clone()
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())
    return model.eval()


@pytest.fixture
def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 16, "n_layer": 2}
    sizes |= {"n_head": 2, "n_inner": 24, "bos_token_id": START, "eos_token_id": EOS}
    model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def test_causal_lm_matches_gpt2_with_same_weights(gpt2):
    model, ids = copy_gpt2(gpt2), tokens(3, 9)
    ours, theirs = model(ids, labels=ids), gpt2(ids, labels=ids)
    assert_near(ours.logits, theirs.logits)
    assert_close(ours.loss, theirs.loss)
    ours.loss.backward()
    theirs.loss.backward()
    expected = gpt2.transformer.wte.weight.grad
    assert_near(model.model.embed_tokens.weight.grad, expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_causal_lm_generates_like_gpt2(gpt2, beams):
    prompt = tokens(2, 4)
    prompt[0, :2] = PAD
    decoding = {"attention_mask": prompt.ne(PAD).long(), "max_new_tokens": 12}
    decoding |= {"num_beams": beams, "do_sample": False, "pad_token_id": PAD}
    expected = gpt2.generate(prompt, **decoding)
    assert torch.equal(copy_gpt2(gpt2).generate(prompt, **decoding), expected)


@pytest.mark.parametrize(("beams", "length"), [(1, 4), (2, 4), (1, 1)])
def test_generate_does_not_read_eos_at_the_end_of_prompts(beams, length):
    model, prompt = tiny_model(VanillaTransformerForCausalLM), tokens(2, length)
    ended = torch.cat([prompt, torch.full((2, 1), EOS)], dim=1)
    decoding = {"max_new_tokens": 5, "num_beams": beams, "do_sample": False}
    continued = model.generate(ended, **decoding)
    expected = model.generate(prompt, **decoding)
    assert torch.equal(continued[:, : length + 1], ended)
    assert torch.equal(continued[:, length + 1 :], expected[:, length:])


# --- Encoder-only models --------------------------------------------------------------------------


def test_encoder_model_matches_encoder_of_full_model():
    encoder = tiny_model(VanillaTransformerEncoderModel, VanillaTransformerEncoderConfig)
    ids, config = tokens(3, 7), tiny_config(VanillaTransformerConfig, encoder_layers=2)
    whole = VanillaTransformerModel(config).eval()
    whole.encoder.load_state_dict(encoder.state_dict())
    ids[1, 4:] = PAD
    expected = whole.encoder(ids).last_hidden_state
    assert torch.equal(encoder(ids).last_hidden_state, expected)


ENCODER_HEADS = [VanillaTransformerForMaskedLM, VanillaTransformerForSequenceClassification]


@pytest.mark.parametrize("model_class", ENCODER_HEADS)
def test_encoder_heads_ignore_padding(model_class):
    model, ids = tiny_model(model_class, VanillaTransformerEncoderConfig), tokens(2, 6)
    padded = nn.functional.pad(ids, (0, 3), value=PAD)
    logits, expected = model(padded).logits, model(ids).logits
    assert_near(logits[:, : expected.shape[1]], expected)


def test_sequence_classification_with_one_label_is_regression():
    model_class = VanillaTransformerForSequenceClassification
    model = tiny_model(model_class, model_class.config_class, num_labels=1)
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
    loaded = auto_class.from_pretrained(tmp_path)
    assert type(loaded) is model_class
    assert type(AutoConfig.from_pretrained(tmp_path)) is config_class
    tiny_tokenizer.save_pretrained(tmp_path)
    assert type(AutoTokenizer.from_pretrained(tmp_path)) is type(tiny_tokenizer)
    inputs = tokens(2, 5)
    assert torch.equal(loaded.eval()(inputs)[0], model(inputs)[0])


LOAD_WITHOUT_PACKAGE = """
import sys, json
sys.modules["vanilla_transformer"] = None  # as if it were not installed
import torch, transformers
for folder, auto_class in json.loads(sys.argv[1]):
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True).eval()
    print(json.dumps([type(model).__name__, model(torch.tensor([[5, 6, 7]]))[0].flatten().tolist()]))
"""


def test_auto_class_loads_saved_model_without_package(tmp_path):
    models, folders = [], []
    for model_class, config_class, auto_class in CLASSES:
        model, folder = tiny_model(model_class, config_class), tmp_path / model_class.__name__
        model.save_pretrained(folder)
        models.append(model)
        folders.append([str(folder), auto_class.__name__])
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    arguments = ["-c", LOAD_WITHOUT_PACKAGE, json.dumps(folders)]
    ended = run_python(*arguments, env=os.environ | home, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = ended.stdout.splitlines()[-len(models) :]
    for model, line in zip(models, lines, strict=True):
        name, output = json.loads(line)
        assert name == type(model).__name__
        expected = model(torch.tensor([[5, 6, 7]]))[0].flatten()
        assert_close(torch.tensor(output), expected)


LANGUAGE_MODELS = [VanillaTransformerForCausalLM, VanillaTransformerForMaskedLM]


@pytest.mark.parametrize("model_class", LANGUAGE_MODELS)
def test_resize_token_embeddings_keeps_weights_tied(model_class, tmp_path):
    model = tiny_model(model_class, model_class.config_class)
    before = model(tokens(1, 4))[0]
    model.resize_token_embeddings(VOCABULARY + 3)
    assert model(tokens(1, 4) * 0 + VOCABULARY + 2)[0].shape[-1] == VOCABULARY + 3
    assert before.shape[-1] == VOCABULARY
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path)
    assert model_class.from_pretrained(tmp_path).config.vocab_size == VOCABULARY + 3


@pytest.mark.parametrize(("model_class", "config_class", "auto_class"), CLASSES)
def test_model_rejects_ids_outside_vocabulary(model_class, config_class, auto_class):
    with pytest.raises(ValueError, match="`input_ids` must be from 0 to 39, got 40"):
        tiny_model(model_class, config_class)(torch.tensor([[40]]))


# --- Stock Trainer and collators ------------------------------------------------------------------


def train_and_return_losses(model, tokenizer, rows, collator, tmp_path):
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=60, learning_rate=5e-3, per_device_train_batch_size=8,
        logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, seed=1,
    )  # fmt: skip
    data = {"train_dataset": rows, "data_collator": collator}
    trainer = Trainer(model, arguments, processing_class=tokenizer, **data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return sum(losses[:5]) / 5, sum(losses[-5:]) / 5


@pytest.fixture
def masking_tokenizer(tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    return tokenizer


TEXTS = ["A man is sleeping.", "Two dogs run across the green grass."]
TEXTS = [*TEXTS, "A dog is sleeping.", "Two men run."] * 8


@pytest.mark.parametrize("masked", [False, True])
def test_stock_trainer_trains_language_models(masked, masking_tokenizer, tmp_path):
    tokenizer = masking_tokenizer
    model_class = LANGUAGE_MODELS[masked]
    sizes = {"vocab_size": len(tokenizer), "init_std": None}
    model = tiny_model(model_class, model_class.config_class, **sizes).train()
    rows = [{"input_ids": ids} for ids in tokenizer(TEXTS)["input_ids"]]
    options = {"mlm": masked, "seed": 1 if masked else None}
    collator = DataCollatorForLanguageModeling(tokenizer, **options)
    first, last = train_and_return_losses(model, tokenizer, rows, collator, tmp_path)
    assert last < 0.7 * first


def test_stock_trainer_trains_classifier(tiny_tokenizer, tmp_path):
    model = tiny_model(
        VanillaTransformerForSequenceClassification,
        VanillaTransformerEncoderConfig,
        vocab_size=len(tiny_tokenizer),
        init_std=None,
    ).train()
    encoded = tiny_tokenizer(TEXTS)["input_ids"]
    rows = []
    for ids, text in zip(encoded, TEXTS, strict=True):
        rows.append({"input_ids": ids, "label": int(text.startswith("A"))})
    first, last = train_and_return_losses(
        model, tiny_tokenizer, rows, DataCollatorWithPadding(tiny_tokenizer), tmp_path
    )
    assert last < 0.5 * first
