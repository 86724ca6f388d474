"""Validation: loss and scores on pairs that the model is not trained on."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.batch_sampler import plan_batches
from vanilla_transformer.data.micro_batch import Batch
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import EncodedPairs, TokenTable, encode_pairs, to_dataset
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .device_batch import to_device
from .distributed import sum_over_processes
from .loss import ModelWithLoss
from .varlen_attention import sdpa_for_varlen

# Scores a model on validation pairs: (model, tokenizer, pairs, **generate_kwargs) -> {"bleu": 35.1, ...}
Evaluator = Callable[..., dict[str, Any]]


def loss_only(*_: Any, **__: Any) -> dict[str, Any]:
    """Return no scores: an `Evaluator` that leaves validation to the loss."""
    return {}


class Validation:
    """Measure models on the validation pairs, of which there may be none.

    Each process computes the loss of its own batches, of at most `max_tokens` on either side, without the others. One
    process may have a batch more than another.

    `forgetting` measures the same models on pairs of another domain, under names that begin with `forgetting_`.
    """

    def __init__(
        self,
        pairs: Sequence[SentencePair],
        tokenizer: PreTrainedTokenizerBase,
        evaluate: Evaluator,
        accelerator: Accelerator,
        max_tokens: int,
        forgetting: "Validation | None" = None,
    ):
        self.pairs = pairs
        self.forgetting = forgetting
        self.tokenizer = tokenizer
        self.evaluate = evaluate
        self.accelerator = accelerator
        encoded = EncodedPairs(TokenTable(to_dataset(encode_pairs(tokenizer, pairs)))) if pairs else None
        self.batches = [] if encoded is None else _plan_batches(encoded, max_tokens, tokenizer.pad_token_id)

    def measure(self, model: VanillaTransformerForConditionalGeneration, **generate_kwargs: Any) -> dict[str, Any]:
        """Return loss and scores. `generate_kwargs` override the model's decoding, which is the paper's."""
        model.eval()
        with sdpa_for_varlen(model):
            entry = {"validation_loss": self.loss(model)}
            entry |= self.evaluate(model, self.tokenizer, self.pairs, **generate_kwargs)
        self.accelerator.wait_for_everyone()
        model.train()
        if self.forgetting is not None:
            others = self.forgetting.measure(model, **generate_kwargs)
            entry |= {f"forgetting_{name.removeprefix('validation_')}": value for name, value in others.items()}
        return entry

    @torch.no_grad()
    def loss(self, model: VanillaTransformerForConditionalGeneration) -> float:
        """Return the plain cross-entropy in nats per target token."""
        model_with_loss = ModelWithLoss(model, smoothing=0.0)
        plain = tokens = 0.0
        for batch, target_tokens in self.batches[self.accelerator.process_index :: self.accelerator.num_processes]:
            with self.accelerator.autocast():
                plain += float(model_with_loss(to_device(batch, model, self.accelerator.device)).plain)
            tokens += target_tokens
        plain, tokens = sum_over_processes(self.accelerator, [plain, tokens]).tolist()
        return plain / tokens


def _plan_batches(pairs: EncodedPairs, max_tokens: int, pad_token_id: int) -> list[tuple[Batch, int]]:
    """Return batches of pairs of similar length, each pair once, with their numbers of target tokens.

    A pair longer than `max_tokens` raises the limit.
    """
    source, target = pairs.source_lengths, pairs.target_lengths
    plan = plan_batches(source, target, max(max_tokens, int(source.max()), int(target.max())))
    batches = [batch for step in range(len(plan)) for batch in plan[step]]
    return [(pairs.table.pad(pairs.rows[batch], pad_token_id), int(target[batch].sum())) for batch in batches]
