"""
One training of `long_tasks.py`, in a process of its own: a small decoder alone learns for some minutes, and is asked.

    python benchmarks/long_task_training.py '{"task": "copy", "side": "linear", "length": 256, "minutes": 3, …}'
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from long_point import peak_of

from vanilla_transformer import VanillaTransformerLongDecoderConfig, VanillaTransformerLongForCausalLM, new_memory

SYMBOLS, KEYS = 16, 512  # of the tasks; the first ids are padding, start and end, and never drawn
FIRST = 3
SEGMENT, NOISE = 16, 0.1
SHAPE: dict[str, Any] = {"d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 256}
SHAPE |= {"dropout": 0.0, "normalize_before": True, "vocab_size": FIRST + SYMBOLS + KEYS}
SIDES: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax", "attn_implementation": "eager"},
    "linear": {"attention": "linear"},
    "lsh": {"attention": "lsh", "lsh_chunk": 32, "lsh_rounds": 1},
    "relative": {"attention": "relative", "memory_length": 2 * SEGMENT},
}
BATCH, DOCUMENTS, WARM_UP = 2, 64, 100


def copying(sentences: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A word of different letters, and the word again, which is asked: ids and labels `(sentences, length)`."""
    word = _different_keys(sentences, length // 2)
    return torch.cat([word, word], dim=1), torch.cat([torch.full_like(word, -100), word], dim=1)


def _different_keys(sentences: int, count: int) -> torch.Tensor:
    if count > KEYS:
        raise ValueError(f"So long a text needs {count} different letters or keys, and there are {KEYS}.")
    return torch.stack([torch.randperm(KEYS)[:count] for _ in range(sentences)]) + FIRST + SYMBOLS


def recalling(sentences: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Keys, all different, each with a symbol behind it; then all keys again in another order. What is asked is the
    symbol behind each of those: ids and labels `(sentences, length)`, of which a quarter are asked.
    """
    pairs = length // 4
    keys = _different_keys(sentences, pairs)
    values = torch.randint(FIRST, FIRST + SYMBOLS, (sentences, pairs))
    order = torch.stack([torch.randperm(pairs) for _ in range(sentences)])
    asked = torch.stack([keys.gather(1, order), values.gather(1, order)], dim=2).flatten(1)
    told = torch.stack([keys, values], dim=2).flatten(1)
    labels = torch.full((sentences, 4 * pairs), -100)
    labels[:, 2 * pairs + 1 :: 2] = asked[:, 1::2]
    return torch.cat([told, asked], dim=1), labels


TASKS: dict[str, Callable[[int, int], tuple[torch.Tensor, torch.Tensor]]] = {"copy": copying, "recall": recalling}
# What a guess is one of.
CHOICES = {"copy": KEYS, "recall": SYMBOLS}
SHORTEST = 16  # where the lengths begin that a training goes through


def documents(sentences: int, length: int) -> torch.Tensor:
    """
    Texts `(sentences, length)`, each in a language of its own: a symbol's successor is always the same one, but for
    one in `1 / NOISE`, which is any symbol. Whoever knows the language is left with `known_perplexity()`.
    """
    successors = torch.stack([torch.randperm(SYMBOLS) for _ in range(sentences)])
    texts = [torch.randint(SYMBOLS, (sentences,))]
    for _ in range(length - 1):
        following = successors.gather(1, texts[-1][:, None])[:, 0]
        texts.append(torch.where(torch.rand(sentences) < NOISE, torch.randint(SYMBOLS, (sentences,)), following))
    return torch.stack(texts, dim=1) + FIRST


def known_perplexity() -> float:
    """Of a symbol of `documents` for whoever knows each successor."""
    other = NOISE / SYMBOLS
    right = 1.0 - NOISE + other
    return math.exp(-(right * math.log(right) + (SYMBOLS - 1) * other * math.log(other)))


def build(side: str, length: int) -> VanillaTransformerLongForCausalLM:
    """The model of one side, with LSH's buckets for that length."""
    fields = SHAPE | SIDES[side]
    if side == "lsh":
        fields["lsh_buckets"] = max(2, 2 * length // fields["lsh_chunk"])
    return VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**fields))


def memory_of(task: str, side: str, length: int) -> dict[str, float]:
    """MiB of a training step beyond the model and its gradients."""
    model = build(side, length)
    ids, labels = TASKS[task](BATCH, length)

    def step() -> None:
        model(input_ids=ids, labels=labels, num_items_in_batch=(labels != -100).sum()).loss.backward()

    step()
    return {"mib": peak_of(step) / 2**20}


def until(minutes: float) -> Iterator[float]:
    """How much of the time has passed, from 0 to 1, again and again until it has."""
    started = time.monotonic()
    while (passed := (time.monotonic() - started) / (60 * minutes)) < 1.0:
        yield passed


class Learner:
    """Adam with a warm-up and a cosine over the time that there is."""

    def __init__(self, model: torch.nn.Module, learning_rate: float):
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
        self.learning_rate, self.updates = learning_rate, 0

    def update(self, loss: torch.Tensor, passed: float) -> None:
        self.updates += 1
        rate = self.learning_rate * min(1.0, self.updates / WARM_UP) * (1 + math.cos(math.pi * passed)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for group in self.optimizer.param_groups for p in group["params"]], 1.0)
        self.optimizer.step()


def learn_task(task: str, side: str, length: int, minutes: float, learning_rate: float) -> Any:
    """
    A model that has learnt for that time, its updates, and the length that it came to: from `SHORTEST` on, the next
    power of two begins once nine of ten answers are right, for all sides alike.
    """
    model, current = build(side, length).train(), min(SHORTEST, length)
    learner = Learner(model, learning_rate)
    for passed in until(minutes):
        ids, labels = TASKS[task](BATCH * length // current, current)
        outputs = model(input_ids=ids, labels=labels)
        learner.update(outputs.loss, passed)
        if current < length and accuracy_of(outputs.logits, labels) > 0.9:
            current *= 2
    return model.eval(), learner.updates, current


def accuracy_of(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of labels that are the likeliest token of the position before them."""
    asked = labels[:, 1:] != -100
    return (logits[:, :-1].argmax(dim=-1) == labels[:, 1:])[asked].float().mean().item()


@torch.inference_mode()
def asked(model: Any, task: str, length: int, batches: int = 4) -> float:
    """Accuracy over some texts of that length."""
    batch = [TASKS[task](4, length) for _ in range(batches)]
    return sum(accuracy_of(model(input_ids=ids, use_cache=False).logits, labels) for ids, labels in batch) / batches


def run_task(task: str, side: str, length: int, evaluated: int, minutes: float, learning_rate: float) -> Any:
    """Accuracy at the length that was learnt and at the long one."""
    model, updates, reached = learn_task(task, side, length, minutes, learning_rate)
    found = {"updates": updates, "reached": reached}
    return found | {"own": asked(model, task, length), "long": asked(model, task, evaluated)}


def run_context(side: str, memories: list[int], minutes: float, learning_rate: float) -> Any:
    """Perplexity of new documents by the length of the memory, of a model that learns segment after segment."""
    model = build(side, SEGMENT).train()
    learner = Learner(model, learning_rate)
    segments: Iterator[torch.Tensor] = iter(())
    for passed in until(minutes):
        segment = next(segments, None)
        if segment is None:
            segments, memory = iter(documents(DOCUMENTS, 8 * SEGMENT).split(SEGMENT, dim=1)), _memory(model, side)
            continue
        learner.update(model(input_ids=segment, labels=segment, past_key_values=memory).loss, passed)
    found = {}
    for length in memories if side == "relative" else [0]:
        found[str(length)] = perplexity(model.eval(), side, length)
    return {"updates": learner.updates, "perplexity": found, "limit": known_perplexity()}


def _memory(model: Any, side: str) -> Any:
    return new_memory(model.config) if side == "relative" else None


@torch.inference_mode()
def perplexity(model: Any, side: str, memory_length: int, count: int = 256) -> float:
    """Of the later half of many segments, whose memory is full."""
    segments = documents(count, 20 * SEGMENT).split(SEGMENT, dim=1)
    for layer in model.model.layers:
        layer.self_attn.config.memory_length = memory_length
    memory = _memory(model, side) if memory_length else None
    losses = [model(input_ids=segment, labels=segment, past_key_values=memory).loss.item() for segment in segments]
    return math.exp(sum(losses[10:]) / len(losses[10:]))


def main(what: str, seed: int, **options: Any) -> Any:
    torch.manual_seed(seed)
    jobs: dict[str, Callable[..., Any]] = {"memory": memory_of, "task": run_task, "context": run_context}
    return jobs[what](**options)


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
