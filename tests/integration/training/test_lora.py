"""Low-rank adapters of `peft` train, save, load and merge into a model folder."""

from functools import partial

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from tests.releases import needs_transformers
from tests.sweeps import sample
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.loading.model_folders import save_model_folder

PAIRS = []
for number in range(12):
    source = [10 + number, *range(20, 20 + number % 4), 2]
    pair = {"input_ids": source, "labels": [*range(30, 31 + number % 5), 2]}
    PAIRS.append(pair)
NAMED = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]
TARGETS = [["q_proj", "v_proj"], NAMED, "all-linear"]
SOURCES = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]])
assert_near = partial(torch.testing.assert_close, atol=1e-4, rtol=1e-4)
every_target = pytest.mark.parametrize(
    "target_modules",
    sample(TARGETS, NAMED),
    ids=["q and v", "by name", "all-linear"],
)


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    tiny_model.config.dropout = 0.0
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


def adapted(folder, **changes):
    torch.manual_seed(0)
    options = {"task_type": "SEQ_2_SEQ_LM", "r": 2, "target_modules": TARGETS[0]}
    config = LoraConfig(**options | changes)
    return get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(folder), config)


def train(model, tokenizer, output, **changes):
    options = {"max_steps": 2, "learning_rate": 0.1, "use_cpu": True, "report_to": []}
    options |= {"disable_tqdm": True, "logging_steps": 1, "max_grad_norm": 0.0}
    options |= {"label_smoothing_factor": 0.1, "save_strategy": "no"}
    trainer = Seq2SeqTrainer(
        model,
        Seq2SeqTrainingArguments(output, **options | changes),
        train_dataset=PAIRS,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )
    trainer.train()
    return trainer


def logits(model):
    inputs = {"input_ids": SOURCES, "labels": torch.tensor([[9, 8, 2], [7, 2, -100]])}
    with torch.no_grad():
        return model.eval()(**inputs).logits


def generated(model):
    return model.eval().generate(input_ids=SOURCES).tolist()


def losses_of(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@needs_transformers("5.17", "Trainer counts labels of such models wrongly")
def test_lora_accumulated_batches_match_large_batch(folder, tiny_tokenizer, tmp_path):
    options = {"optim": "sgd", "per_device_train_batch_size": 12}
    big = train(adapted(folder), tiny_tokenizer, tmp_path, **options)
    options |= {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
    parts = train(adapted(folder), tiny_tokenizer, tmp_path, **options)
    weights = dict(parts.model.named_parameters())
    for name, expected in big.model.named_parameters():
        tolerance = {"atol": 1e-6, "rtol": 1e-5, "msg": name}
        torch.testing.assert_close(weights[name], expected, **tolerance)
    assert losses_of(parts) == pytest.approx(losses_of(big), rel=1e-4)


@every_target
def test_lora_trains_and_saves_adapters_only(folder, tiny_tokenizer, tmp_path, target_modules):
    model = adapted(folder, target_modules=target_modules)
    before = {}
    for name, weight in model.named_parameters():
        before[name] = weight.detach().clone()
    train(model, tiny_tokenizer, tmp_path / "out").save_model()
    weights = dict(model.named_parameters())
    changed = {name for name in weights if not torch.equal(weights[name], before[name])}
    assert changed == {name for name in before if "lora_" in name}
    assert any("encoder_attn.q_proj" in name for name in changed)
    stored = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert stored and all("lora_" in name for name in stored)
    plain = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert not torch.allclose(logits(plain), logits(model))
    loaded = PeftModel.from_pretrained(plain, tmp_path / "out")
    torch.testing.assert_close(logits(loaded), logits(model), atol=0.0, rtol=0.0)
    assert generated(loaded) == generated(model)


@every_target
def test_lora_merge_keeps_logits(folder, tiny_tokenizer, tmp_path, target_modules):
    model = adapted(folder, target_modules=target_modules)
    train(model, tiny_tokenizer, tmp_path / "out")
    expected, translations = logits(model), generated(model)
    merged = model.merge_and_unload()
    assert_near(logits(merged), expected)
    merged.save_pretrained(tmp_path / "merged")
    files = [folder / "model.safetensors", tmp_path / "merged" / "model.safetensors"]
    before, after = map(load_file, files)
    assert before.keys() == after.keys(), "each tied weight is stored once, as before"
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged")
    weight = again.lm_head.weight
    assert weight is again.model.encoder.embed_tokens.weight
    assert weight is again.model.decoder.embed_tokens.weight
    assert_near(logits(again), expected)
    assert generated(again) == translations
    config = again.generation_config
    assert (config.num_beams, config.length_penalty_type) == (4, "wu")


def test_lora_scales_adapters_of_embeddings(tiny_config, tmp_path):
    """The adapter of an embedding is multiplied by √d_model too, before and after merging.

    The weights are untied, since peft merges the adapters of tied weights once per place, with a
    warning.
    """
    tiny_config.tie_word_embeddings = False
    VanillaTransformerForConditionalGeneration(tiny_config).save_pretrained(tmp_path)
    model = adapted(tmp_path, target_modules=["embed_tokens"])
    for name, parameter in model.named_parameters():
        if "lora_embedding" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    expected = logits(model)
    plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert not torch.allclose(expected, logits(plain))
    assert_near(logits(model.merge_and_unload()), expected)
