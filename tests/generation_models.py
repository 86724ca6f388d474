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
    sizes = {
        "vocab_size": 12,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "dropout": 0.0,
    }
    sizes |= {
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
    }
    torch.manual_seed(seed)
    model = model_class(VanillaTransformerConfig(**{**sizes, **changes})).eval()
    model.generation_config = paper_generation_config(
        PAD, EOS, START, max_new_tokens_beyond_source=MARGIN
    )
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
    targets = [
        torch.randint(4, 12, (length,), generator=generator).tolist() + [EOS]
        for length in (8, 5, 3, 2)
    ]
    labels = padded(targets).masked_fill(padded(targets) == PAD, -100)
    input_ids = padded(SOURCES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        model(
            input_ids=input_ids, attention_mask=input_ids.ne(PAD).long(), labels=labels
        ).loss.backward()
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
        hypotheses = [
            [*start, end] for start in product(continuations, repeat=length - 1) for end in ends
        ]
        targets = torch.tensor(hypotheses)
        decoder_input_ids = torch.cat(
            [torch.full((len(targets), 1), START), targets[:, :-1]], dim=1
        )
        input_ids = torch.tensor([source]).expand(len(targets), -1)
        logits = model(
            input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False
        ).logits
        log_probabilities = (
            logits.double().log_softmax(-1).gather(-1, targets[..., None]).sum(dim=(1, 2))
        )
        scored += zip(
            (log_probabilities / penalty(kind, alpha, length)).tolist(), hypotheses, strict=True
        )
    return sorted(scored, reverse=True)


def padded(sources, pad=PAD):
    width = max(map(len, sources))
    return torch.tensor([source + [pad] * (width - len(source)) for source in sources])
