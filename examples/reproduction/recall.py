"""A task that needs a long memory: pairs of a letter and a symbol, noise, and at the end the
letters once more.
"""

import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from vanilla_transformer.configuration_vanilla_transformer_long import (
    VanillaTransformerLongDecoderConfig,
)
from vanilla_transformer.modeling_vanilla_transformer_long import (
    VanillaTransformerLongForCausalLM,
    create_cache,
)

ANSWERS = 8  # symbols, of which one is right
_FIRST = 3  # ids below are padding, start and end; none is drawn
_LETTERS, _NOISE, _PAIRS = 32, 16, 16
_LETTER = _FIRST + ANSWERS
_NOISY = _LETTER + _LETTERS
_PAIR = _NOISY + _NOISE
SEGMENT = 4 * _PAIRS  # positions; the shortest text, and what Transformer-XL reads at a time
SHAPE: dict[str, Any] = {
    "vocab_size": _PAIR + _LETTERS * ANSWERS,
    "d_model": 64,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 256,
    "dropout": 0.0,
    "normalize_before": True,
}
_TOKENS, _LEARNING_RATE, _WARM_UP, _ADVANCE = 2048, 0.003, 100, 0.8
_TEXTS, _BATCHES = 4, 16  # of an evaluation
_LSH_CHUNK = 64


def build(fields: dict[str, Any]) -> VanillaTransformerLongForCausalLM:
    """Return a small language model with random weights."""
    return VanillaTransformerLongForCausalLM(VanillaTransformerLongDecoderConfig(**SHAPE | fields))


def draw_texts(count: int, length: int) -> tuple[Tensor, Tensor]:
    """
    Return ids and labels, `(count, length)`.

    16 pairs, a token each, are anywhere in the first half; noise surrounds them. The last 32 tokens
    are the letters of the pairs in another order, each before its symbol. Only symbols have labels.
    """
    letters = torch.rand(count, _LETTERS).argsort(dim=1)[:, :_PAIRS]
    symbols = torch.randint(ANSWERS, (count, _PAIRS))
    order = torch.rand(count, _PAIRS).argsort(dim=1)
    asked = torch.stack(
        [letters.gather(1, order) + _LETTER, symbols.gather(1, order) + _FIRST], dim=2
    ).flatten(1)
    ids = torch.randint(_NOISY, _NOISY + _NOISE, (count, length))
    starts = torch.randint(length // 2 - _PAIRS + 1, (count, 1))
    ids.scatter_(1, starts + torch.arange(_PAIRS), letters * ANSWERS + symbols + _PAIR)
    ids[:, -2 * _PAIRS :] = asked
    labels = torch.full_like(ids, -100)
    labels[:, -2 * _PAIRS + 1 :: 2] = asked[:, 1::2]
    return ids, labels


def read_text(model: Any, ids: Tensor, labels: Tensor) -> Any:
    """Return the model's output for texts; Transformer-XL reads segments, and its output is that of
    the last one.
    """
    if model.config.layer_types[0] != "transfo_xl_attention":
        return model(input_ids=ids, labels=labels, use_cache=False)
    memory = create_cache(model.config)
    *earlier, last = ids.split(SEGMENT, dim=1)
    with torch.no_grad():
        for segment in earlier:
            model.model(input_ids=segment, cache=memory)
    return model(input_ids=last, labels=labels[:, -last.shape[1] :], cache=memory)


def set_length(model: Any, length: int) -> None:
    """Let LSH attention have two buckets for each chunk of a text."""
    if model.config.layer_types[0] == "lsh_attention":
        model.config.num_buckets = max(1, 2 * (length // _LSH_CHUNK)) if length > _LSH_CHUNK else 1


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the share of labels that the previous position predicts; logits may be of the text's
    end only.
    """
    labels = labels[:, -logits.shape[1] :][:, 1:]
    return (logits[:, :-1].argmax(dim=-1) == labels)[labels != -100].float().mean().item()


def train_recall(fields: dict[str, Any], seed: int, seconds: float, length: int) -> dict[str, Any]:
    """
    Train, and return the number of updates, the length that was reached, and the accuracy at
    `length`.

    Texts are short at first and twice as long whenever four fifths of a batch's symbols are right.

    Args:
        seconds: Seconds of processor time, all threads together, which does not depend on other
            work of the machine.
    """
    torch.manual_seed(seed)
    model, current, updates = build(fields).train(), min(SEGMENT, length), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
    set_length(model, current)
    started = time.process_time()
    while (passed := (time.process_time() - started) / seconds) < 1.0:
        ids, labels = draw_texts(max(1, _TOKENS // current), current)
        output = read_text(model, ids, labels)
        updates += 1
        for group in optimizer.param_groups:
            group["lr"] = (
                _LEARNING_RATE * min(1.0, updates / _WARM_UP) * (1 + math.cos(math.pi * passed)) / 2
            )
        optimizer.zero_grad()
        output.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if current < length and accuracy(output.logits, labels) > _ADVANCE:
            current *= 2
            set_length(model, current)
    set_length(model.eval(), length)
    with torch.inference_mode():
        texts = [draw_texts(_TEXTS, length) for _ in range(_BATCHES)]
        shares = [accuracy(read_text(model, *text).logits, text[1]) for text in texts]
    return {"updates": updates, "length": current, "accuracy": sum(shares) / len(shares)}
