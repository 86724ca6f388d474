"""
Train one small decoder-only model for `bench_long_tasks` in its own process, and evaluate it.

    python -m benchmarks.long_tasks_worker '{"what": "task", "task": "copy", "side": "linear", "length": 256, …}'
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.memory_usage import peak_increase_of
from vanilla_transformer import VanillaTransformerLongDecoderConfig, VanillaTransformerLongForCausalLM, create_cache

FIRST = 3  # ids below are padding, start and end; they are never drawn
SYMBOLS, LETTERS, NOISE = 8, 32, 16  # vocabulary sizes: recalled symbols, copied letters and keys, noise
ITEMS = 16  # letters of a word, pairs of a list
_LETTER = FIRST + SYMBOLS
_CAPITAL = _LETTER + LETTERS
_NOISE = _CAPITAL + LETTERS
_PAIR = _NOISE + NOISE
SHORTEST = 4 * ITEMS  # the first training length
WORDS, CONCENTRATION = 256, 0.05  # documents: vocabulary size, and the parameter of the Dirichlet prior
SEGMENT = 16
SHAPE: dict[str, Any] = {"d_model": 64, "decoder_layers": 2, "decoder_ffn_dim": 256, "dropout": 0.0}
SHAPE |= {"normalize_before": True, "vocab_size": _PAIR + LETTERS * SYMBOLS, "decoder_attention_heads": 4}
# One head for linear attention: the capacity of its sums grows with the head's width.
SIDES: dict[str, dict[str, Any]] = {
    "softmax": {"layer_types": "full_attention", "attn_implementation": "eager"},
    "linear": {"layer_types": "linear_attention", "decoder_attention_heads": 1},
    "lsh": {"layer_types": "lsh_attention", "lsh_attn_chunk_length": 64, "num_hashes": 2},
    "relative": {"layer_types": "transfo_xl_attention"},
}
EVAL_NUM_HASHES = 8  # more rounds than in training improve accuracy, see table 2 of Kitaev et al. (2020)
BATCH, DOCUMENTS, WARM_UP, ADVANCE_ACCURACY = 2, 64, 100, 0.8
EVAL_BATCHES = 32  # of four texts each

Texts = tuple[torch.Tensor, torch.Tensor]


def copying(sentences: int, length: int) -> Texts:
    """Draw a word of different letters, and the same word in capitals; its first capital has no label."""
    word = _different_letters(sentences)
    capitals = word + _CAPITAL
    return _within_noise(word + _LETTER, capitals, capitals.index_fill(1, torch.tensor(0), -100), length)


def recalling(sentences: int, length: int) -> Texts:
    """Draw pairs (letter, symbol), one token each; then the letters in another order, each before its symbol."""
    letters, symbols = _different_letters(sentences), torch.randint(SYMBOLS, (sentences, ITEMS))
    order = torch.rand(sentences, ITEMS).argsort(dim=1)
    query = torch.stack([letters.gather(1, order) + _LETTER, symbols.gather(1, order) + FIRST], dim=2).flatten(1)
    labels = query.index_fill(1, torch.arange(0, 2 * ITEMS, 2), -100)
    return _within_noise(letters * SYMBOLS + symbols + _PAIR, query, labels, length)


def _different_letters(sentences: int) -> torch.Tensor:
    return torch.rand(sentences, LETTERS).argsort(dim=1)[:, :ITEMS]


def _within_noise(facts: torch.Tensor, query: torch.Tensor, labels: torch.Tensor, length: int) -> Texts:
    """Return ids and labels `(sentences, length)`: the facts anywhere in the first half, the query at the end."""
    ids = torch.randint(_NOISE, _NOISE + NOISE, (facts.shape[0], length))
    begins = torch.randint(length // 2 - ITEMS + 1, (facts.shape[0], 1))
    ids.scatter_(1, begins + torch.arange(ITEMS), facts)
    ids[:, -query.shape[1] :] = query
    return ids, nn.functional.pad(labels, (length - labels.shape[1], 0), value=-100)


TASKS: dict[str, Callable[[int, int], Texts]] = {"copy": copying, "recall": recalling}
ANSWERS = {"copy": LETTERS, "recall": SYMBOLS}  # number of possible answers


def documents(sentences: int, length: int) -> torch.Tensor:
    """Draw texts `(sentences, length)` whose words follow the frequencies of their own document."""
    frequencies = torch.distributions.Dirichlet(torch.full((WORDS,), CONCENTRATION)).sample((sentences,))
    return torch.multinomial(frequencies, length, replacement=True) + FIRST


def ideal_losses(texts: torch.Tensor) -> torch.Tensor:
    """
    Return the losses `(sentences, length)` in nats of an ideal reader, which counts all earlier words.

    A word that occurred n times among N has the probability (n + c) / (N + WORDS c), with c the concentration.
    """
    words = nn.functional.one_hot(texts - FIRST, WORDS)
    before = (words.cumsum(dim=1) - words).gather(2, (texts - FIRST)[..., None])[..., 0]
    seen = torch.arange(texts.shape[1])
    return -((before + CONCENTRATION) / (seen + WORDS * CONCENTRATION)).log()


def build(side: str) -> VanillaTransformerLongForCausalLM:
    """Build the model of one side."""
    return VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**SHAPE | SIDES[side]))


def set_attention_fields(model: Any, **fields: Any) -> None:
    """Change fields of attention between calls: buckets, hashing rounds, memory length."""
    for layer in model.model.layers:
        for name, value in fields.items():
            setattr(layer.self_attn.config, name, value)


def buckets_of(length: int) -> int:
    """Return two LSH buckets per chunk, or one for a single chunk."""
    chunks = length // SIDES["lsh"]["lsh_attn_chunk_length"]
    return 1 if chunks <= 1 else 2 * chunks


def read(model: VanillaTransformerLongForCausalLM, side: str, ids: torch.Tensor, labels: torch.Tensor) -> Any:
    """
    Run the model and return its loss and logits.

    Transformer-XL attention gets the last `SHORTEST` tokens with a memory of the rest, the others the whole text.
    """
    if side != "relative":
        return model(input_ids=ids, labels=labels, use_cache=False)
    memory = create_cache(model.config)
    *earlier, last = ids.split(SHORTEST, dim=1)
    with torch.no_grad():
        for segment in earlier:
            model.model(input_ids=segment, past_key_values=memory)
    return model(input_ids=last, labels=labels[:, -SHORTEST:], past_key_values=memory)


def memory_of(task: str, side: str, length: int) -> dict[str, float]:
    """Measure the MiB of a training step beyond the model and its gradients."""
    model = build(side)
    set_attention_fields(model, num_buckets=buckets_of(length))
    texts = TASKS[task](BATCH, length)

    def step() -> None:
        read(model, side, *texts).loss.backward()

    step()
    return {"mib": peak_increase_of(step) / 2**20}


def until(minutes: float) -> Iterator[float]:
    """Yield the share of the time that has passed, until it is 1."""
    started = time.monotonic()
    while (passed := (time.monotonic() - started) / (60 * minutes)) < 1.0:
        yield passed


class TimedOptimizer:
    """Adam with warm-up and a cosine schedule over the available time."""

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


def train_task(task: str, side: str, length: int, minutes: float, learning_rate: float) -> Any:
    """
    Train for the given time and return the model, its updates, and the length reached.

    The length starts at `SHORTEST` and doubles whenever the accuracy exceeds `ADVANCE_ACCURACY`.
    """
    model, current = build(side).train(), min(SHORTEST, length)
    optimizer = TimedOptimizer(model, learning_rate)
    set_attention_fields(model, num_buckets=buckets_of(current))
    for passed in until(minutes):
        ids, labels = TASKS[task](BATCH * length // current, current)
        outputs = read(model, side, ids, labels)
        optimizer.update(outputs.loss, passed)
        if current < length and accuracy_of(outputs.logits, labels) > ADVANCE_ACCURACY:
            current *= 2
            set_attention_fields(model, num_buckets=buckets_of(current))
    return model.eval(), optimizer.updates, current


def accuracy_of(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of labels that the previous position predicts; logits may cover the end of the text only."""
    labels = labels[:, -logits.shape[1] :][:, 1:]
    return (logits[:, :-1].argmax(dim=-1) == labels)[labels != -100].float().mean().item()


@torch.inference_mode()
def evaluate_task(model: Any, task: str, side: str, length: int) -> float:
    """Measure accuracy on new texts of that length."""
    set_attention_fields(model, num_buckets=buckets_of(length), num_hashes=EVAL_NUM_HASHES)
    texts = [TASKS[task](4, length) for _ in range(EVAL_BATCHES)]
    return sum(accuracy_of(read(model, side, *each).logits, each[1]) for each in texts) / EVAL_BATCHES


def run_task(task: str, side: str, length: int, evaluated: int, minutes: float, learning_rate: float) -> Any:
    """Train, then measure accuracy at the training length and at the long one."""
    model, updates, reached = train_task(task, side, length, minutes, learning_rate)
    found: dict[str, float] = {"updates": updates, "reached": reached}
    return found | {
        "own": evaluate_task(model, task, side, length),
        "long": evaluate_task(model, task, side, evaluated),
    }


def run_context(side: str, memories: list[int], minutes: float, learning_rate: float) -> Any:
    """Train on consecutive segments, then measure the perplexity of new documents for each memory length."""
    model = build(side).train()
    set_attention_fields(model, mem_len=2 * SEGMENT)
    optimizer = TimedOptimizer(model, learning_rate)
    segments: Iterator[torch.Tensor] = iter(())
    for passed in until(minutes):
        segment = next(segments, None)
        if segment is None:
            segments, memory = iter(documents(DOCUMENTS, 8 * SEGMENT).split(SEGMENT, dim=1)), _memory(model, side)
            continue
        optimizer.update(model(input_ids=segment, labels=segment, past_key_values=memory).loss, passed)
    found = {}
    for length in memories if side == "relative" else [0]:
        found[str(length)], counted = perplexities(model.eval(), side, length)
    return {"updates": optimizer.updates, "perplexity": found, "counted": counted}


def _memory(model: Any, side: str) -> Any:
    return create_cache(model.config) if side == "relative" else None


@torch.inference_mode()
def perplexities(model: Any, side: str, mem_len: int, count: int = 256) -> tuple[float, float]:
    """Return the perplexities of model and ideal reader over the later segments, whose memory is full."""
    texts = documents(count, 20 * SEGMENT)
    set_attention_fields(model, mem_len=mem_len)
    memory = _memory(model, side) if mem_len else None
    losses = [
        model(input_ids=segment, labels=segment, past_key_values=memory).loss.item()
        for segment in texts.split(SEGMENT, dim=1)
    ]
    counted = ideal_losses(texts).unflatten(1, (-1, SEGMENT))[:, 10:, 1:]  # no prediction of a segment's first word
    return math.exp(sum(losses[10:]) / len(losses[10:])), counted.mean().exp().item()


def main(what: str, seed: int, **options: Any) -> Any:
    torch.manual_seed(seed)
    jobs: dict[str, Callable[..., Any]] = {"memory": memory_of, "task": run_task, "context": run_context}
    return jobs[what](**options)


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
