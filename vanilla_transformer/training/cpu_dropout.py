"""Dropout that draws less: the random numbers of a CPU are a large part of a small model's step."""

import torch
from torch import nn


class CPUDropout(nn.Dropout):
    """
    Dropout (section 5.4 of "Attention Is All You Need") with 16 random bits for each feature.

    `nn.Dropout` draws one random number for each feature, one after another. With it a training step of a small model
    takes 11 % longer in float32 and 31 % longer in bf16. Here each draw of 64 bits decides about four features. The
    probability is rounded to a multiple of 2⁻¹⁶, and the features that are kept are scaled accordingly.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not (self.training and self.p) or hidden_states.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(hidden_states)
        features, dropped = hidden_states.numel(), min(round(self.p * 2**16), 2**16 - 1)
        draws = torch.empty(-(-features // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        kept = draws[:features].view(hidden_states.shape) >= dropped - 2**15
        return hidden_states * kept.to(hidden_states.dtype).mul_(2**16 / (2**16 - dropped))


def replace_dropout(model: nn.Module) -> None:
    """Replace every `nn.Dropout` of a model by a `CPUDropout`."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, CPUDropout(child.p).train(child.training))
