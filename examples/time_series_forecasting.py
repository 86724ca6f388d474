"""Forecast a time series with the decoder: values instead of tokens.

    python examples/time_series_forecasting.py --output_dir runs/series

The script draws noisy sums of two sine waves. Each value is projected to `d_model` and passed as
`inputs_embeds`; the model predicts the next value from all earlier ones. All flags of
`TrainingArguments` work.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import HfArgumentParser, Trainer, TrainingArguments

from vanilla_transformer import VanillaTransformerDecoderConfig, VanillaTransformerDecoderModel

LENGTH = 64  # values of a series
NOISE = 0.1


def waves(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Draw series `(LENGTH + 1,)`, so that each of the first LENGTH values has a next one."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.arange(LENGTH + 1)
    series = []
    for _ in range(count):
        periods = 6 + 18 * torch.rand(2, 1, generator=generator)
        phases = 2 * math.pi * torch.rand(2, 1, generator=generator)
        clean = torch.sin(2 * math.pi * times / periods + phases).sum(dim=0)
        series.append({"values": clean + NOISE * torch.randn(LENGTH + 1, generator=generator)})
    return series


class Forecaster(nn.Module):
    """Maps values `(batch_size, LENGTH + 1)` to forecasts `(batch_size, LENGTH)` of the next
    value.
    """

    def __init__(self) -> None:
        super().__init__()
        config = VanillaTransformerDecoderConfig(
            vocab_size=4,  # unused: there are no tokens
            d_model=64,
            decoder_layers=2,
            decoder_attention_heads=4,
            decoder_ffn_dim=128,
            dropout=0.0,
        )
        self.project = nn.Linear(1, config.d_model)
        self.model = VanillaTransformerDecoderModel(config)
        self.forecast = nn.Linear(config.d_model, 1)

    def forward(self, values: torch.Tensor) -> dict[str, torch.Tensor]:
        states = self.model(
            inputs_embeds=self.project(values[:, :-1, None]), use_cache=False
        ).last_hidden_state
        forecasts = self.forecast(states)[..., 0]
        return {"loss": nn.functional.mse_loss(forecasts, values[:, 1:]), "forecasts": forecasts}


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser(TrainingArguments, allow_abbrev=False)
    parser.set_defaults(
        learning_rate=3e-3,
        num_train_epochs=10,
        per_device_train_batch_size=64,
        save_strategy="no",
        report_to="none",
    )
    (training,) = parser.parse_args_into_dataclasses(list(words))
    model = Forecaster()
    trainer: Any = Trainer(model, training, train_dataset=waves(2_000, seed=0))
    trainer.train()
    values = torch.stack([row["values"] for row in waves(200, seed=1)]).to(training.device)
    with torch.no_grad():
        forecasts = model.eval()(values)["forecasts"]
    half = LENGTH // 2  # score the second half, where the model has seen enough of the series

    def rmse(predictions: torch.Tensor) -> float:
        return float((predictions[:, half:] - values[:, 1 + half :]).square().mean().sqrt())

    print(f"RMSE of the next value on 200 new series: {rmse(forecasts):.2f} by the model,")
    print(f"{rmse(values[:, :-1]):.2f} by repeating the last value. The noise is {NOISE:.2f}.")


if __name__ == "__main__":
    main(sys.argv[1:])
