"""When a hypothesis ends: at an EOS token, or at the longest length that its sentence may have."""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import MaxLengthCriteria
from transformers.generation import EosTokenCriteria

from vanilla_transformer.generation_vanilla_transformer import MaxNewTokensBeyondSource

KNOWN_CRITERIA = (EosTokenCriteria, MaxLengthCriteria, MaxNewTokensBeyondSource)


class StoppingRule:
    """
    The stopping criteria of a call as one comparison of tokens and one of lengths.

    Args:
        criteria: Only of `KNOWN_CRITERIA`.
        sentences: B, sentences in the batch.
    """

    def __init__(self, criteria: Iterable[Any], sentences: int, device: torch.device):
        self.eos = torch.empty(0, dtype=torch.long, device=device)
        self.longest = torch.full((sentences,), torch.iinfo(torch.long).max, device=device)  # (B,)
        for criterion in criteria:
            if isinstance(criterion, EosTokenCriteria):
                self.eos = torch.cat([self.eos, criterion.eos_token_id.to(device).flatten()])
            elif isinstance(criterion, MaxNewTokensBeyondSource):
                self.longest = torch.minimum(self.longest, criterion.max_lengths.to(device))
            else:
                self.longest.clamp_(max=criterion.max_length)

    def __call__(self, tokens: torch.Tensor, length: int) -> torch.Tensor:
        """Return which hypotheses of `length` end, given their last tokens `(B, candidates)`."""
        return torch.isin(tokens, self.eos) | (length >= self.longest)[:, None]

    def keep(self, sentences: torch.Tensor) -> None:
        """Leave only the given sentences, by their places, in the batch."""
        self.longest = self.longest[sentences]


__all__ = ["KNOWN_CRITERIA", "StoppingRule"]
