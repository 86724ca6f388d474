"""
The best scores over a vocabulary.

The best are in the blocks of the vocabulary with the best maxima. So the long axis, which takes the
time, is read once and not written.

Letters in shapes: B sentences, N beams, C candidates, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

UNLIKELY = -1.0e9  # the library's score of hypotheses that must not be chosen
_BLOCK = 32  # entries of the vocabulary
_CHUNK = 2**17  # logits that are summed at once, which fit in a core's cache


class Candidates(NamedTuple):
    """Continuations: log-probabilities, the beams that they continue and their tokens, `(B, C)`
    each.
    """

    scores: Tensor
    parents: Tensor
    tokens: Tensor


def argmax(scores: Tensor) -> Tensor:
    """Return `scores.argmax(dim=-1)` of `(B, V)`.

    On a CPU, a maximum of few rows takes less time than the operations on blocks, unless these are
    compiled.
    """
    if _is_eager_on_cpu(scores) and scores.numel() <= _CHUNK:
        return scores.max(dim=-1).indices
    tokens, _ = tokens_of_blocks(
        reduce_blocks(scores, torch.amax).argmax(dim=-1, keepdim=True), scores.shape[1]
    )
    return tokens.gather(1, scores.gather(1, tokens).argmax(dim=-1, keepdim=True))[:, 0]


def top_continuations(
    logits: Tensor, log_scale: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """
    Find the best continuations of all beams of each sentence.

    Args:
        logits (`torch.FloatTensor` of shape `(B, N, V)`): Of the next token.
        log_scale (`torch.FloatTensor` of shape `(B, N)`): Added to the logits of a beam; the sums
        are the scores.

    Returns:
        Scores, beams and tokens, each `(B, count)`, best first.
    """
    vocab_size = logits.shape[2]
    maxima = reduce_blocks(logits, torch.amax) + log_scale[:, :, None]  # (B, N, blocks)
    best = maxima.flatten(1).topk(min(count, maxima[0].numel()))[1]
    tokens, repeated = tokens_of_blocks(best % maxima.shape[2], vocab_size)
    parents = (best // maxima.shape[2]).repeat_interleave(_BLOCK, dim=1)
    within = logits.flatten(1).gather(1, parents * vocab_size + tokens) + log_scale.gather(
        1, parents
    )
    scores, places = within.masked_fill_(repeated, -torch.inf).topk(count)
    return scores, parents.gather(1, places), tokens.gather(1, places)


def log_sums(logits: Tensor) -> Tensor:
    """Return `logits.logsumexp(dim=-1)` of `(B, N, V)`.

    On a CPU it is computed for a few rows at a time, unless it is compiled: its intermediate
    results would be as large as all logits, for which the system provides new memory at each step.
    """
    if not _is_eager_on_cpu(logits) or logits.numel() <= _CHUNK:
        return logits.logsumexp(dim=-1)
    chunks = logits.flatten(0, 1).split(max(1, _CHUNK // logits.shape[2]))
    return torch.cat([chunk.logsumexp(dim=-1) for chunk in chunks]).view(logits.shape[:2])


def _is_eager_on_cpu(logits: Tensor) -> bool:
    return logits.device.type == "cpu" and not torch.compiler.is_compiling()


def reduce_blocks(scores: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    """Map `(…, V)` to `(…, blocks)`: reduce each block of the vocabulary to a number.

    The last one may be smaller.
    """
    complete = scores.shape[-1] // _BLOCK
    reduced = reduce(scores[..., : complete * _BLOCK].unflatten(-1, (complete, _BLOCK)), dim=-1)
    rest = scores[..., complete * _BLOCK :]
    return (
        reduced
        if not rest.shape[-1]
        else torch.cat([reduced, reduce(rest, dim=-1, keepdim=True)], dim=-1)
    )


def tokens_of_blocks(blocks: Tensor, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Return the tokens `(B, n * _BLOCK)` of blocks `(B, n)`, and where the last token is repeated
    to fill a block.
    """
    tokens = (blocks[..., None] * _BLOCK + torch.arange(_BLOCK, device=blocks.device)).flatten(-2)
    return tokens.clamp(max=vocab_size - 1), tokens >= vocab_size


def pick(values: Tensor, beams: Tensor) -> Tensor:
    """Return `values` of shape `(B, beams, …)` at the given beams, `(B, k)`."""
    sentences = torch.arange(values.shape[0], device=values.device)[:, None]
    return values[sentences, beams]
