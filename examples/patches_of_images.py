"""
Patches in place of words: an encoder tells in which direction the stripes of noisy images run.

    python examples/patches_of_images.py --output_dir runs/stripes

Images are drawn here. Each is cut into squares, and each square projected to a vector of the model's width: what
stands in the place of embedded tokens. Every flag of `TrainingArguments` is one of this script.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import EvalPrediction, HfArgumentParser, Trainer, TrainingArguments

from vanilla_transformer import VanillaTransformerEncoderConfig, VanillaTransformerForSequenceClassification

SIZE, PATCH = 24, 6  # pixels
DIRECTIONS = ["horizontal", "rising", "vertical", "falling"]


def striped_images(count: int, seed: int) -> list[dict[str, Any]]:
    """Images `(SIZE, SIZE)` of stripes of random width and place, with noise, and the number of their direction."""
    draw = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images = []
    for _ in range(count):
        direction = int(torch.randint(len(DIRECTIONS), (), generator=draw))
        angle = direction * math.pi / len(DIRECTIONS)
        across = rows * math.cos(angle) + columns * math.sin(angle)
        width, place = torch.rand(2, generator=draw).tolist()
        stripes = torch.sin(across * (0.5 + width) + 2 * math.pi * place)
        noise = torch.randn(SIZE, SIZE, generator=draw)
        images.append({"pixel_values": stripes + noise, "labels": direction})
    return images


class PatchClassifier(nn.Module):
    """Maps images `(batch_size, SIZE, SIZE)` to logits `(batch_size, len(DIRECTIONS))`."""

    def __init__(self) -> None:
        super().__init__()
        config = VanillaTransformerEncoderConfig(
            vocab_size=4,  # of tokens, of which there are none
            d_model=64,
            encoder_layers=2,
            encoder_attention_heads=4,
            encoder_ffn_dim=128,
            num_labels=len(DIRECTIONS),
        )
        self.project = nn.Linear(PATCH * PATCH, config.d_model)
        self.model = VanillaTransformerForSequenceClassification(config)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        squares = pixel_values.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)  # (B, rows, columns, PATCH, PATCH)
        patches = squares.flatten(3).flatten(1, 2)  # (B, patches, PATCH²)
        return self.model(inputs_embeds=self.project(patches), labels=labels)


def accuracy(outcome: EvalPrediction) -> dict[str, float]:
    logits: Any = outcome.predictions
    return {"accuracy": float((logits.argmax(-1) == outcome.label_ids).mean())}


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser(TrainingArguments, allow_abbrev=False)
    parser.set_defaults(
        learning_rate=1e-3, num_train_epochs=5, per_device_train_batch_size=64, save_strategy="no", report_to="none"
    )
    (training,) = parser.parse_args_into_dataclasses(list(words))
    trainer = Trainer(
        PatchClassifier(),
        training,
        train_dataset=striped_images(2_000, seed=0),
        eval_dataset=striped_images(400, seed=1),
        compute_metrics=accuracy,
    )
    trainer.train()
    found = trainer.evaluate()
    print(f"Of 400 new images {found['eval_accuracy']:.1%} are told right; chance is {1 / len(DIRECTIONS):.0%}.")


if __name__ == "__main__":
    main(sys.argv[1:])
