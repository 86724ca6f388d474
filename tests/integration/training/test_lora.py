"""Low-rank adapters of `peft` train, save, load and merge into a model folder."""

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

PAIRS = [
    {"input_ids": [10 + n, *range(20, 20 + n % 4), 2], "labels": [*range(30, 31 + n % 5), 2]}
    for n in range(12)
]
TARGETS = [
    ["q_proj", "v_proj"],
    ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"],
    "all-linear",
]
every_target = pytest.mark.parametrize(
    "target_modules",
    sample(TARGETS, ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]),
    ids=["q and v", "by name", "all-linear"],
)


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    tiny_model.config.dropout = 0.0
    return save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")


def adapted(folder, **changes):
    torch.manual_seed(0)
    config = LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, **{"target_modules": TARGETS[0]} | changes)
    return get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(folder), config)


def train(model, tokenizer, output, **changes):
    options = {
        "max_steps": 2,
        "learning_rate": 0.1,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
    }
    options |= {
        "logging_steps": 1,
        "max_grad_norm": 0.0,
        "label_smoothing_factor": 0.1,
        "save_strategy": "no",
    }
    trainer = Seq2SeqTrainer(
        model,
        Seq2SeqTrainingArguments(output, **options | changes),
        train_dataset=PAIRS,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )
    trainer.train()
    return trainer


def logits(model):
    inputs = {
        "input_ids": torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]]),
        "labels": torch.tensor([[9, 8, 2], [7, 2, -100]]),
    }
    with torch.no_grad():
        return model.eval()(**inputs).logits


def generated(model):
    return model.eval().generate(input_ids=torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]])).tolist()


@needs_transformers("5.17", "Trainer counts the labels of encoder-decoder models wrongly")
def test_lora_accumulated_batches_match_large_batch(folder, tiny_tokenizer, tmp_path):
    sizes = (
        {"per_device_train_batch_size": 12},
        {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4},
    )
    big, parts = (
        train(adapted(folder), tiny_tokenizer, tmp_path, optim="sgd", **size) for size in sizes
    )
    for (name, ours), theirs in zip(
        parts.model.named_parameters(), big.model.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5, msg=name)
    losses = [
        [entry["loss"] for entry in one.state.log_history if "loss" in entry]
        for one in (big, parts)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@every_target
def test_lora_trains_saves_and_loads_adapters_only(
    folder, tiny_tokenizer, tmp_path, target_modules
):
    model = adapted(folder, target_modules=target_modules)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, tiny_tokenizer, tmp_path / "out").save_model()
    changed = {
        name
        for name, parameter in model.named_parameters()
        if not torch.equal(parameter, before[name])
    }
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
    torch.testing.assert_close(logits(merged), expected, atol=1e-4, rtol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    files = [
        load_file(place / "model.safetensors").keys() for place in (folder, tmp_path / "merged")
    ]
    assert files[0] == files[1], "each tied weight is stored once, as before"
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "merged")
    assert (
        again.lm_head.weight
        is again.model.encoder.embed_tokens.weight
        is again.model.decoder.embed_tokens.weight
    )
    torch.testing.assert_close(logits(again), expected, atol=1e-4, rtol=1e-4)
    assert generated(again) == translations
    assert (
        again.generation_config.num_beams == 4
        and again.generation_config.length_penalty_type == "wu"
    )


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
    assert not torch.allclose(expected, logits(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)))
    torch.testing.assert_close(logits(model.merge_and_unload()), expected, atol=1e-4, rtol=1e-4)
