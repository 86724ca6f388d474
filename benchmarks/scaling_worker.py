"""
Measure one point of a curve of `bench_scaling` in its own process, so that its peak memory is its own.

    python -m benchmarks.scaling_worker '{"side": "ours", "curve": "source length", "value": 64, …}'
"""

import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from benchmarks.bench_decoding import random_model
from benchmarks.memory_usage import sampled_increase
from benchmarks.throughput_meter import TimeLimitReached
from vanilla_transformer.conversion.marian import model_to_marian

TARGET_TOKENS = 32


def measure(side: str, curve: str, value: int, rounds: int, **options: Any) -> dict[str, float]:
    """Return seconds and MiB of one point."""
    if curve == "pairs of text":
        return text_point(side, value, **options)
    shape = {"source length": 24, "sentences": 32, "beams": 1, "vocabulary": 8000} | options | {curve: value}
    return decoding_point(side, rounds, shape)


def decoding_point(side: str, rounds: int, shape: dict[str, int]) -> dict[str, float]:
    """Decode and return the seconds of the best round and the memory added to the model's."""
    length, vocab_size = shape["source length"], shape["vocabulary"]
    model = random_model("small", vocab_size=vocab_size, max_position_embeddings=length + TARGET_TOKENS)
    source = torch.randint(3, vocab_size, (shape["sentences"], length))
    decoding: dict[str, Any] = {"num_beams": shape["beams"], "max_new_tokens": TARGET_TOKENS, "do_sample": False}
    decoding |= {"early_stopping": True, "length_penalty": 1.0, "attention_mask": torch.ones_like(source)}
    decoder: Any = model
    if side == "ours":
        decoding |= {"length_penalty_type": "power"}
    else:
        decoder = model_to_marian(model)
        del model
    seconds = []
    with sampled_increase() as watched:  # a warm-up round, which is not timed
        decoder.generate(source, **decoding)
    for _ in range(rounds):
        started = time.perf_counter()
        decoder.generate(source, **decoding)
        seconds.append(time.perf_counter() - started)
    return {"seconds": min(seconds), "mib": max(watched) / 2**20}


def text_point(side: str, pairs: int, folder: str) -> dict[str, float]:
    """Measure the way from text files to the first update, without imports."""

    def stop(*_: Any) -> None:
        raise TimeLimitReached

    register_optimizer_step_post_hook(stop)
    source, target = (Path(folder) / f"{pairs}.{end}" for end in ("en", "de"))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as output, sampled_increase() as watched, suppress(TimeLimitReached):
        (_with_our_loop if side == "ours" else _with_trainer)(source, target, Path(folder), output)
    return {"seconds": time.perf_counter() - started, "mib": max(watched) / 2**20}


def _with_our_loop(source: Path, target: Path, folder: Path, output: str) -> None:
    from vanilla_transformer.training.arguments import parse_recipe
    from vanilla_transformer.training.trainer import train

    flags: dict[str, Any] = {"train_source": source, "train_target": target, "tokenizer": folder / "tokenizer"}
    flags |= {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    flags |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_tokens": 2048, "max_steps": 9}
    flags |= {"output_dir": f"{output}/run", "cache_dir": f"{output}/cache", "mixed_precision": "no"}
    train(
        parse_recipe([word for name, value in flags.items() for word in (f"--{name}", str(value))]),
        evaluate=lambda *_, **__: {},
    )


def _with_trainer(source: Path, target: Path, folder: Path, output: str) -> None:
    """Prepare data and train like transformers' translation example: `datasets`, `map` and a padding collator."""
    import datasets
    from transformers import MarianConfig

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    columns = [path.read_text(encoding="utf-8").splitlines() for path in (source, target)]
    text = datasets.Dataset.from_dict(dict(zip(("source", "target"), columns, strict=True)))

    def encode(batch: dict[str, list[str]]) -> Any:
        return tokenizer(batch["source"], text_target=batch["target"])

    data = text.map(encode, batched=True, remove_columns=text.column_names)
    shape = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    shape |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": len(tokenizer)}
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = MarianMTModel(MarianConfig(**shape, **special, decoder_start_token_id=tokenizer.bos_token_id))
    arguments = Seq2SeqTrainingArguments(
        output, per_device_train_batch_size=128, train_sampling_strategy="group_by_length", max_steps=9, use_cpu=True,
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    Seq2SeqTrainer(model, arguments, train_dataset=data, data_collator=collator, processing_class=tokenizer).train()


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
