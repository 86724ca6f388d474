"""
Train one system of `bench_training` in its own process until the time is over, and print the measurements as JSON.

    python -m benchmarks.training_worker '{"folder": …, "kind": …, "bf16": …, "options": …}'
"""

import functools
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from benchmarks.throughput_meter import ThroughputMeter, TimeLimitReached
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

_PEERS = {"random", "group_by_length"}  # values of `train_sampling_strategy`
_BUDGETS = {"budget", "budget_of_marian"}  # batches of `TokenBudgetTrainerMixin`
_MARIAN = {*_PEERS, "budget_of_marian"}
_ADAM = {"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9}


def measure(folder: str, kind: str, bf16: bool, options: dict[str, Any]) -> None:
    """Train one system until its time is over, and print the measurements."""
    meter = ThroughputMeter(options["seconds"], options["warm_up"], options["updates"])
    watch(meter, MarianMTModel if kind in _MARIAN else VanillaTransformerModel)
    try:
        if kind == "loop":
            train_with_our_loop(Path(folder), bf16, options)
        else:
            train_with_trainer(Path(folder), kind, bf16, options)
    except TimeLimitReached:
        if options.get("save_to"):
            meter.model.save_pretrained(options["save_to"])
        print(json.dumps(meter.result))


def watch(meter: ThroughputMeter, model_class: Any) -> None:
    """Count the target tokens that pass the model's `forward`, in any training loop."""
    forward = model_class.forward
    signature = inspect.signature(forward)  # tensors come by position or by name

    @functools.wraps(forward)
    def counted(model: Any, *arguments: Any, **tensors: Any) -> Any:
        if model.training:
            decoder_input_ids = signature.bind(model, *arguments, **tensors).arguments["decoder_input_ids"]
            meter.count(model, *target_tokens(decoder_input_ids, model.config.eos_token_id))
        return forward(model, *arguments, **tensors)

    model_class.forward = counted


def target_tokens(decoder_input_ids: torch.Tensor, eos_token_id: int) -> tuple[int, int]:
    """
    Return the number of labels of a batch, without and with padding.

    The decoder reads the start symbol and then all labels but the last. A row shorter than the longest one contains
    its EOS, the last label, after as many tokens as it has labels.
    """
    ends = decoder_input_ids == eos_token_id
    lengths = ends.int().argmax(dim=1).where(ends.any(dim=1), decoder_input_ids.new_tensor(ends.shape[1]))
    return int(lengths.sum()), ends.numel()


def shape(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that both configurations share."""
    shape = {"d_model": options["d_model"], "dropout": 0.1, "activation_function": "relu"}
    for part in ("encoder", "decoder"):
        shape |= {f"{part}_layers": options["layers"], f"{part}_ffn_dim": options["ffn_dim"]}
        shape |= {f"{part}_attention_heads": options["heads"]}
    return shape


def train_with_our_loop(folder: Path, bf16: bool, options: dict[str, Any]) -> None:
    from vanilla_transformer.training.arguments import parse_recipe
    from vanilla_transformer.training.trainer import train

    flags = shape(options) | _ADAM | {"attention_bias": True, "label_smoothing": 0.1}
    flags |= {"warmup_steps": options["warmup_steps"]}
    flags |= {"max_tokens": options["max_tokens"], "attn_implementation": options["attn_implementation"]}
    flags |= {"train_source": folder / "train.en", "train_target": folder / "train.de", "cache_dir": folder / "cache"}
    flags |= {"tokenizer": folder / "tokenizer", "mixed_precision": "bf16" if bf16 else "no", "max_steps": 10**6}
    flags |= {"save_steps": 10**6, "output_dir": folder / "out", "overwrite_output_dir": True}
    recipe = parse_recipe([word for name, value in flags.items() for word in (f"--{name}", str(value))])
    train(recipe, evaluate=lambda *_, **__: {})


def train_with_trainer(folder: Path, kind: str, bf16: bool, options: dict[str, Any]) -> None:
    from datasets import load_from_disk

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    shared: dict[str, Any] = _ADAM | {"output_dir": str(folder / "out"), "bf16": bf16, "label_smoothing_factor": 0.1}
    shared |= {
        "max_steps": 10**6,
        "warmup_steps": options["warmup_steps"],
        "max_grad_norm": 0.0,
        "logging_steps": 50,
        "use_cpu": True,
    }
    shared |= {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "optim": "adamw_torch_fused"}
    if kind in _BUDGETS:
        from vanilla_transformer.training.seq2seq_trainer import TokenBudgetTrainingArguments, VanillaSeq2SeqTrainer

        trainer_class: Any = VanillaSeq2SeqTrainer
        arguments: Any = TokenBudgetTrainingArguments(max_tokens=options["max_tokens"], **shared)
    else:
        shared |= {"per_device_train_batch_size": options["sentences"], "train_sampling_strategy": kind}
        trainer_class = Seq2SeqTrainer
        peak = (options["d_model"] * options["warmup_steps"]) ** -0.5  # the peak of equation 3
        arguments = Seq2SeqTrainingArguments(lr_scheduler_type="inverse_sqrt", learning_rate=peak, **shared)
    model = build_model(kind in _MARIAN, tokenizer, options)
    trainer_class(
        model,
        arguments,
        train_dataset=load_from_disk(folder / "dataset"),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    ).train()


def build_model(peer: bool, tokenizer: Any, options: dict[str, Any]) -> Any:
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    special |= {"decoder_start_token_id": tokenizer.bos_token_id, "vocab_size": len(tokenizer)}
    if peer:
        config = MarianConfig(**shape(options), **special, scale_embedding=True, forced_eos_token_id=None)
        model: Any = MarianMTModel(config)
    else:
        model = VanillaTransformerForConditionalGeneration(
            VanillaTransformerConfig(**shape(options), **special, attention_bias=True)
        )
    model.set_attn_implementation(options["attn_implementation"])
    return model


if __name__ == "__main__":
    measure(**json.loads(sys.argv[1]))
