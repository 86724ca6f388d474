"""Classify images with the encoder: patches instead of tokens, as in ViT.

    python examples/image_classification.py --output_dir runs/stripes

The script draws noisy images of stripes; the label is their direction. Each image is cut into
square patches, and each patch is projected to `d_model` and passed as `inputs_embeds`. All flags of
`TrainingArguments` work.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import EvalPrediction, HfArgumentParser, Trainer, TrainingArguments

from vanilla_transformer import (
    VanillaTransformerEncoderConfig,
    VanillaTransformerForSequenceClassification,
)

SIZE, PATCH = 24, 6  # pixels
DIRECTIONS = ["horizontal", "rising", "vertical", "falling"]


def striped_images(count: int, seed: int) -> list[dict[str, Any]]:
    """Draw noisy images `(SIZE, SIZE)` of stripes with random width and phase, labeled with their
    direction.
    """
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images = []
    for _ in range(count):
        direction = int(torch.randint(len(DIRECTIONS), (), generator=generator))
        angle = direction * math.pi / len(DIRECTIONS)
        across = rows * math.cos(angle) + columns * math.sin(angle)
        frequency, phase = torch.rand(2, generator=generator).tolist()
        stripes = torch.sin(across * (0.5 + frequency) + 2 * math.pi * phase)
        noise = torch.randn(SIZE, SIZE, generator=generator)
        images.append({"pixel_values": stripes + noise, "labels": direction})
    return images


class PatchClassifier(nn.Module):
    """Maps images `(batch_size, SIZE, SIZE)` to logits `(batch_size, len(DIRECTIONS))`."""

    def __init__(self) -> None:
        super().__init__()
        config = VanillaTransformerEncoderConfig(
            vocab_size=4,  # unused: there are no tokens
            d_model=64,
            encoder_layers=2,
            encoder_attention_heads=4,
            encoder_ffn_dim=128,
            num_labels=len(DIRECTIONS),
        )
        self.project = nn.Linear(PATCH * PATCH, config.d_model)
        self.model = VanillaTransformerForSequenceClassification(config)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        # (B, rows, columns, PATCH, PATCH)
        squares = pixel_values.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)
        patches = squares.flatten(3).flatten(1, 2)  # (B, patches, PATCH²)
        return self.model(inputs_embeds=self.project(patches), labels=labels)


def compute_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    logits: Any = prediction.predictions
    return {"accuracy": float((logits.argmax(-1) == prediction.label_ids).mean())}


def main(words: Sequence[str]) -> None:
    parser = HfArgumentParser(TrainingArguments, allow_abbrev=False)
    parser.set_defaults(
        learning_rate=1e-3,
        num_train_epochs=5,
        per_device_train_batch_size=64,
        save_strategy="no",
        report_to="none",
    )
    (training,) = parser.parse_args_into_dataclasses(list(words))
    trainer = Trainer(
        PatchClassifier(),
        training,
        train_dataset=striped_images(2_000, seed=0),
        eval_dataset=striped_images(400, seed=1),
        compute_metrics=compute_accuracy,
    )
    trainer.train()
    metrics = trainer.evaluate()
    print(
        f"Accuracy on 400 new images: {metrics['eval_accuracy']:.1%}; chance is "
        f"{1 / len(DIRECTIONS):.0%}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
