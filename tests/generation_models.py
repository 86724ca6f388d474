"""Small models with random weights or a little training, and an exhaustive search of their
translations.
"""

import copy
from functools import cache
from itertools import product

import torch

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    paper_generation_config,
)

PAD, START, EOS = 0, 1, 2
MARGIN = 4
SOURCES = [[5, 6, 7, 8, 9, 10, EOS], [7, 8, EOS], [11, 5, 3, 9, EOS], [EOS]]


def build(seed=0, model_class=VanillaTransformerForConditionalGeneration, **changes):
    """Return a model with random weights and a vocabulary of 12 tokens."""
    fields = {"vocab_size": 12, "d_model": 16, "dropout": 0.0}
    fields |= {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32}
    fields |= {"decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 32}
    torch.manual_seed(seed)
    model = model_class(VanillaTransformerConfig(**fields | changes)).eval()
    limit = {"max_new_tokens_beyond_source": MARGIN}
    model.generation_config = paper_generation_config(PAD, EOS, START, **limit)
    return model


def partly_trained_model(seed=0, **changes):
    """
    Return a model trained for 30 steps on a random target for each source.

    Its translations differ: some end in EOS and some do not, and several have close scores.
    """
    return copy.deepcopy(train(seed, tuple(changes.items())))


@cache
def train(seed, changes):
    model = build(seed, **dict(changes))
    generator = torch.Generator().manual_seed(seed)
    targets = []
    for length in (8, 5, 3, 2):
        tokens = torch.randint(4, 12, (length,), generator=generator)
        targets.append([*tokens.tolist(), EOS])
    inputs = {"input_ids": padded(SOURCES), "labels": padded(targets, -100)}
    inputs["attention_mask"] = inputs["input_ids"].ne(PAD).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def penalty(kind, alpha, length):
    return ((5 + length) / 6) ** alpha if kind == "wu" else length**alpha


@torch.no_grad()
def all_hypotheses(model, source, limit, kind, alpha):
    """Return (score, tokens) of each hypothesis that ends in EOS or has `limit` tokens, best first;
    no cache.
    """
    vocabulary = range(model.config.vocab_size)
    continuations = [token for token in vocabulary if token != EOS]
    scored = []
    for length in range(1, limit + 1):
        ends = vocabulary if length == limit else [EOS]
        hypotheses = [*map(list, product(*[continuations] * (length - 1), ends))]
        targets = torch.tensor(hypotheses)
        starts = torch.full((len(targets), 1), START)
        inputs = {"input_ids": torch.tensor([source]).expand(len(targets), -1)}
        inputs["decoder_input_ids"] = torch.cat([starts, targets[:, :-1]], dim=1)
        logits = model(**inputs, use_cache=False).logits
        log_probabilities = logits.double().log_softmax(-1)
        totals = log_probabilities.gather(-1, targets[..., None]).sum(dim=(1, 2))
        scores = totals / penalty(kind, alpha, length)
        scored += zip(scores.tolist(), hypotheses, strict=True)
    return sorted(scored, reverse=True)


def padded(sources, pad=PAD):
    width = max(map(len, sources))
    return torch.tensor([source + [pad] * (width - len(source)) for source in sources])
