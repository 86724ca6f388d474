"""The most likely tokens after given beginnings of translations."""

from collections.abc import Sequence
from typing import Any

import torch

from .forced_decoding import decoder_logits, pad, plan_scoring_batches
from .options import OptionError

_MOST_TOKENS = 4096  # in a batch of prefixes


@torch.inference_mode()
def next_tokens(
    model: Any, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], count: int, special: Sequence[int]
) -> list[list[int]]:
    """Return the most likely tokens after the prefix of each source, most likely first.

    Args:
        special: Tokens that no translation has. EOS is not among them.
    """
    start, device = model.generation_config.decoder_start_token_id, model.device
    entries = model.get_output_embeddings().weight.shape[0] - len({*special})
    if count > entries:
        raise OptionError(f"`alternatives` must be at most {entries}, as many as there are tokens, got {count}.")
    found = dict[int, list[int]]()
    sizes = [(len(source), len(prefix) + 1) for source, prefix in zip(sources, prefixes, strict=True)]
    for batch in plan_scoring_batches(sizes, _MOST_TOKENS):
        ids, seen = (each.to(device) for each in pad([sources[index] for index in batch]))
        previous, written = (each.to(device) for each in pad([[start, *prefixes[index]] for index in batch]))
        logits = decoder_logits(model, ids, seen, previous).float()
        last = logits[torch.arange(len(batch), device=device), written.sum(dim=1) - 1]  # (B, V)
        last[:, list(special)] = -torch.inf
        found |= zip(batch, last.topk(count)[1].tolist(), strict=True)
    return [found[index] for index in range(len(sizes))]
