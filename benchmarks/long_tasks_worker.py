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

FIRST = 3  # the ids before it are padding, start and end, and never drawn
SYMBOLS, LETTERS, NOISE = 8, 32, 16  # of the tasks: what is recalled, what is copied or a key, and what lies between
ITEMS = 16  # letters of a word, pairs of a list
_LETTER = FIRST + SYMBOLS
_CAPITAL = _LETTER + LETTERS
_NOISE = _CAPITAL + LETTERS
_PAIR = _NOISE + NOISE
SHORTEST = 4 * ITEMS  # where the lengths begin that a training goes through
WORDS, CONCENTRATION = 256, 0.05  # of the documents: how many there are, and how few of them a document likes
SEGMENT = 16
SHAPE: dict[str, Any] = {"d_model": 64, "decoder_layers": 2, "decoder_ffn_dim": 256, "dropout": 0.0}
SHAPE |= {"normalize_before": True, "vocab_size": _PAIR + LETTERS * SYMBOLS, "decoder_attention_heads": 4}
# The sums of linear attention hold as much as a head is wide.
SIDES: dict[str, dict[str, Any]] = {
    "softmax": {"layer_types": "full_attention", "attn_implementation": "eager"},
    "linear": {"layer_types": "linear_attention", "decoder_attention_heads": 1},
    "lsh": {"layer_types": "lsh_attention", "lsh_attn_chunk_length": 64, "num_hashes": 2},
    "relative": {"layer_types": "transfo_xl_attention"},
}
ROUNDS_WHEN_ASKED = 8  # more rounds than in training miss less, as in table 2 of Kitaev et al. (2020)
BATCH, DOCUMENTS, WARM_UP, ENOUGH = 2, 64, 100, 0.8
ASKED = 32  # batches of four texts each

Texts = tuple[torch.Tensor, torch.Tensor]


def copying(sentences: int, length: int) -> Texts:
    """A word of different letters, and the same word in capitals; what is asked is all of it but its first letter."""
    word = _different_letters(sentences)
    capitals = word + _CAPITAL
    return _within_noise(word + _LETTER, capitals, capitals.index_fill(1, torch.tensor(0), -100), length)


def recalling(sentences: int, length: int) -> Texts:
    """A list of pairs, each a letter and a symbol in one token; then the letters in another order, each asked for its
    symbol, which follows it."""
    letters, symbols = _different_letters(sentences), torch.randint(SYMBOLS, (sentences, ITEMS))
    order = torch.rand(sentences, ITEMS).argsort(dim=1)
    asked = torch.stack([letters.gather(1, order) + _LETTER, symbols.gather(1, order) + FIRST], dim=2).flatten(1)
    labels = asked.index_fill(1, torch.arange(0, 2 * ITEMS, 2), -100)
    return _within_noise(letters * SYMBOLS + symbols + _PAIR, asked, labels, length)


def _different_letters(sentences: int) -> torch.Tensor:
    return torch.rand(sentences, LETTERS).argsort(dim=1)[:, :ITEMS]


def _within_noise(told: torch.Tensor, asked: torch.Tensor, labels: torch.Tensor, length: int) -> Texts:
    """Ids and labels `(sentences, length)`: what is told anywhere in the first half, what is asked at the end."""
    ids = torch.randint(_NOISE, _NOISE + NOISE, (told.shape[0], length))
    begins = torch.randint(length // 2 - ITEMS + 1, (told.shape[0], 1))
    ids.scatter_(1, begins + torch.arange(ITEMS), told)
    ids[:, -asked.shape[1] :] = asked
    return ids, nn.functional.pad(labels, (length - labels.shape[1], 0), value=-100)


TASKS: dict[str, Callable[[int, int], Texts]] = {"copy": copying, "recall": recalling}
CHOICES = {"copy": LETTERS, "recall": SYMBOLS}  # what a guess is one of


def documents(sentences: int, length: int) -> torch.Tensor:
    """Texts `(sentences, length)`, whose words are drawn from frequencies that each document has of its own."""
    frequencies = torch.distributions.Dirichlet(torch.full((WORDS,), CONCENTRATION)).sample((sentences,))
    return torch.multinomial(frequencies, length, replacement=True) + FIRST


def counting_losses(texts: torch.Tensor) -> torch.Tensor:
    """
    Losses `(sentences, length)` in nats of whoever knows how documents come about and counts all words before: a word
    that was there n times among N has the chance (n + c) / (N + WORDS c), with c the concentration.
    """
    words = nn.functional.one_hot(texts - FIRST, WORDS)
    before = (words.cumsum(dim=1) - words).gather(2, (texts - FIRST)[..., None])[..., 0]
    seen = torch.arange(texts.shape[1])
    return -((before + CONCENTRATION) / (seen + WORDS * CONCENTRATION)).log()


def build(side: str) -> VanillaTransformerLongForCausalLM:
    """The model of one side."""
    return VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**SHAPE | SIDES[side]))


def set_choices(model: Any, **choices: Any) -> None:
    """Of attention, which may differ from call to call: buckets, rounds of hashing, the length of the memory."""
    for layer in model.model.layers:
        for name, value in choices.items():
            setattr(layer.self_attn.config, name, value)


def buckets_of(length: int) -> int:
    """Two for each chunk of LSH; one where there is one chunk."""
    chunks = length // SIDES["lsh"]["lsh_attn_chunk_length"]
    return 1 if chunks <= 1 else 2 * chunks


def read(model: VanillaTransformerLongForCausalLM, side: str, ids: torch.Tensor, labels: torch.Tensor) -> Any:
    """
    Loss and logits of the end of the text: all of it at once, or, with relative attention, its last `SHORTEST` tokens
    with the memory of those before.
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
    """MiB of a training step beyond the model and its gradients."""
    model = build(side)
    set_choices(model, num_buckets=buckets_of(length))
    texts = TASKS[task](BATCH, length)

    def step() -> None:
        read(model, side, *texts).loss.backward()

    step()
    return {"mib": peak_increase_of(step) / 2**20}


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
    power of two begins once `ENOUGH` of the answers are right, for all sides alike.
    """
    model, current = build(side).train(), min(SHORTEST, length)
    learner = Learner(model, learning_rate)
    set_choices(model, num_buckets=buckets_of(current))
    for passed in until(minutes):
        ids, labels = TASKS[task](BATCH * length // current, current)
        outputs = read(model, side, ids, labels)
        learner.update(outputs.loss, passed)
        if current < length and accuracy_of(outputs.logits, labels) > ENOUGH:
            current *= 2
            set_choices(model, num_buckets=buckets_of(current))
    return model.eval(), learner.updates, current


def accuracy_of(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of labels that are the likeliest token of the position before them; logits may be of the end alone."""
    labels = labels[:, -logits.shape[1] :][:, 1:]
    return (logits[:, :-1].argmax(dim=-1) == labels)[labels != -100].float().mean().item()


@torch.inference_mode()
def asked(model: Any, task: str, side: str, length: int) -> float:
    """Accuracy over some texts of that length."""
    set_choices(model, num_buckets=buckets_of(length), num_hashes=ROUNDS_WHEN_ASKED)
    texts = [TASKS[task](4, length) for _ in range(ASKED)]
    return sum(accuracy_of(read(model, side, *each).logits, each[1]) for each in texts) / ASKED


def run_task(task: str, side: str, length: int, evaluated: int, minutes: float, learning_rate: float) -> Any:
    """Accuracy at the length that was learnt and at the long one."""
    model, updates, reached = learn_task(task, side, length, minutes, learning_rate)
    found = {"updates": updates, "reached": reached}
    return found | {"own": asked(model, task, side, length), "long": asked(model, task, side, evaluated)}


def run_context(side: str, memories: list[int], minutes: float, learning_rate: float) -> Any:
    """Perplexity of new documents by the length of the memory, of a model that learns segment after segment."""
    model = build(side).train()
    set_choices(model, mem_len=2 * SEGMENT)
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
        found[str(length)], counted = perplexities(model.eval(), side, length)
    return {"updates": learner.updates, "perplexity": found, "counted": counted}


def _memory(model: Any, side: str) -> Any:
    return create_cache(model.config) if side == "relative" else None


@torch.inference_mode()
def perplexities(model: Any, side: str, mem_len: int, count: int = 256) -> tuple[float, float]:
    """The model's and the counting reader's, over the later half of many segments, whose memory is full."""
    texts = documents(count, 20 * SEGMENT)
    set_choices(model, mem_len=mem_len)
    memory = _memory(model, side) if mem_len else None
    losses = [
        model(input_ids=segment, labels=segment, past_key_values=memory).loss.item()
        for segment in texts.split(SEGMENT, dim=1)
    ]
    counted = counting_losses(texts).unflatten(1, (-1, SEGMENT))[:, 10:, 1:]  # no segment foretells its first word
    return math.exp(sum(losses[10:]) / len(losses[10:])), counted.mean().exp().item()


def main(what: str, seed: int, **options: Any) -> Any:
    torch.manual_seed(seed)
    jobs: dict[str, Callable[..., Any]] = {"memory": memory_of, "task": run_task, "context": run_context}
    return jobs[what](**options)


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
