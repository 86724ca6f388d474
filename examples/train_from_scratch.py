"""Train a translation model from two text files: the whole path, step by step, in one file to read.

    python examples/train_from_scratch.py train.en train.de runs/scratch

Line n of one file translates line n of the other. Sections are of "Attention Is All You Need"
(Vaswani et al., 2017). `vanilla-transformer train` does the same, and resumes, validates, compiles
and uses several GPUs besides.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import datasets
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, pipeline

from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerTokenizer,
)
from vanilla_transformer.data.batch_sampler import PairLengths, TokenBudgetBatchSampler
from vanilla_transformer.data.batches import Batch
from vanilla_transformer.training.averaging import average_state_dicts
from vanilla_transformer.training.loss import cross_entropy
from vanilla_transformer.training.lr_scheduler import noam_lambda

MAX_TOKENS = 2048  # of a side of a batch, with padding; the paper's have about 25,000
WARMUP_STEPS = 800  # the paper has 4,000 of 100,000 steps
AVERAGED = 5  # models at the end, 1 % of the steps apart


def read_pairs(*files: Path) -> tuple[list[str], list[str]]:
    """Read sentence pairs, without the ones that have an empty side.

    All files must have the same number of lines.
    """
    sides = (map(str.strip, path.open(encoding="utf-8")) for path in files)
    sources, targets = zip(*(pair for pair in zip(*sides, strict=True) if all(pair)), strict=True)
    return [*sources], [*targets]


def create_model(
    tokenizer: VanillaTransformerTokenizer,
) -> VanillaTransformerForConditionalGeneration:
    """Create a small model.

    Without arguments the configuration is the paper's base model (table 3).
    """
    config = VanillaTransformerConfig(
        vocab_size=len(tokenizer),
        d_model=256,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
    )
    return VanillaTransformerForConditionalGeneration(config)


def load_batches(
    sources: list[str], targets: list[str], tokenizer: VanillaTransformerTokenizer
) -> Iterator[Batch]:
    """Yield batches of pairs of similar length, epoch after epoch, each in another order (section
    5.1).
    """
    encoded = tokenizer(sources, text_target=targets)  # ids, with EOS at the end of each side
    lengths = PairLengths([*map(len, encoded["input_ids"])], [*map(len, encoded["labels"])])
    sampler = TokenBudgetBatchSampler(lengths, MAX_TOKENS)
    # The collator pads sources with <pad>, beside a mask, and labels with -100, which the loss
    # leaves out.
    pairs: Any = datasets.Dataset.from_dict(dict(encoded))
    loader = DataLoader(pairs, batch_sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tokenizer))
    for epoch in count():
        sampler.set_epoch(epoch)
        yield from loader


def train(
    model: VanillaTransformerForConditionalGeneration, batches: Iterator[Batch], steps: int
) -> None:
    """Minimize the label-smoothed cross-entropy, and leave the mean of the last models in
    `model`.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).train()
    # Section 5.3
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = LambdaLR(optimizer, noam_lambda(model.config.d_model, WARMUP_STEPS))  # equation 3
    averaged = range(steps, 0, -max(1, steps // 100))[:AVERAGED]
    kept = []
    for step in range(1, steps + 1):
        batch = {name: tensor.to(device) for name, tensor in next(batches).items()}
        # The decoder reads the target shifted right: position i sees the tokens before i and
        # predicts token i.
        labels = batch.pop("labels")
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
        # Section 5.4, summed over the tokens
        loss = cross_entropy(model(**batch).logits, labels, smoothing=0.1)
        tokens = (labels != -100).sum()
        (loss.smoothed / tokens).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == steps:
            print(f"step {step}: {loss.plain.item() / tokens:.3f} nats a token")
        if step in averaged:
            kept.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    model.load_state_dict(average_state_dicts(kept))  # section 6.1


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("source", "target", "output_dir"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--vocab_size", type=int, default=8000)
    options = parser.parse_args(words)
    torch.manual_seed(0)
    sources, targets = read_pairs(options.source, options.target)
    # One vocabulary for both languages (section 5.1).
    tokenizer = VanillaTransformerTokenizer.train_from_iterator(
        [*sources, *targets], options.vocab_size
    )
    model = create_model(tokenizer)
    train(model, load_batches(sources, targets, tokenizer), options.steps)
    model.save_pretrained(options.output_dir)
    tokenizer.save_pretrained(options.output_dir)
    # Beam search with 4 beams, as in section 6.1
    translate = pipeline("translation", model=str(options.output_dir))
    for source, answer in zip(sources[:3], translate(sources[:3]), strict=True):
        print(f"{source} → {answer['translation_text']}")


if __name__ == "__main__":
    main()
