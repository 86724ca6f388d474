"""Validation: loss and scores on pairs that are not trained on, and which models have done best by them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.batch_sampler import Batch, collate, count_tokens, plan_batches
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import EncodedPair, encode_pairs
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .arguments import OutputArguments
from .checkpoint import Progress
from .distributed import sum_over_processes
from .loss import Objective

# Scores a model on validation pairs: (model, tokenizer, pairs, **generate_kwargs) -> {"bleu": 35.1, ...}
Evaluator = Callable[..., dict[str, Any]]


class Validation:
    """
    The validation pairs, and what a model is worth on them. There may be none; nothing is validated then.

    Models are whole ones, that a process can run without the others: each has batches of its own, of `max_tokens` on
    either side, and one may have more of them than another.
    """

    def __init__(
        self,
        pairs: Sequence[SentencePair],
        tokenizer: PreTrainedTokenizerBase,
        evaluate: Evaluator,
        accelerator: Accelerator,
        max_tokens: int,
    ):
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.evaluate = evaluate
        self.accelerator = accelerator
        self.batches = _batches(encode_pairs(tokenizer, pairs), max_tokens, tokenizer.pad_token_id)

    def measure(self, model: VanillaTransformerForConditionalGeneration, **generate_kwargs: Any) -> dict[str, Any]:
        """Loss and scores. Decodes by the model's own defaults, the paper's, but for `generate_kwargs`."""
        model.eval()
        entry = {"validation_loss": self.loss(model)}
        entry |= self.evaluate(model, self.tokenizer, self.pairs, **generate_kwargs)
        self.accelerator.wait_for_everyone()
        model.train()
        return entry

    @torch.no_grad()
    def loss(self, model: VanillaTransformerForConditionalGeneration) -> float:
        """Plain cross-entropy in nats a target token."""
        objective = Objective(model, smoothing=0.0)
        plain = tokens = 0.0
        for batch in self.batches[self.accelerator.process_index :: self.accelerator.num_processes]:
            batch = send_to_device(batch, self.accelerator.device)
            with self.accelerator.autocast():
                plain += float(objective(batch).plain)
            tokens += count_tokens(batch)
        plain, tokens = sum_over_processes(self.accelerator, [plain, tokens]).tolist()
        return plain / tokens


def rank(entry: dict[str, Any], progress: Progress, output: OutputArguments) -> set[int] | None:
    """
    Enters the validation of the present update among the best of `progress`, and counts those that brought nothing.

    Returns:
        The updates whose models are to be kept; None where the entry has no score to choose by.
    """
    score = -entry["validation_loss"] if output.best_metric == "loss" else entry.get(output.best_metric)
    if score is None:
        return None
    best = progress.best
    improved = not best or score > best[0]["score"]
    progress.validations_without_improvement = 0 if improved else progress.validations_without_improvement + 1
    best.append({"step": progress.step, "score": score})
    best.sort(key=lambda other: -other["score"])
    del best[max(1, output.keep_best) :]
    return {int(other["step"]) for other in best[: output.keep_best]}


def _batches(pairs: Sequence[EncodedPair], max_tokens: int, pad_token_id: int) -> list[Batch]:
    """Every pair once, among pairs of like length. Where one alone has more than `max_tokens`, that is the bound."""
    if not pairs:
        return []
    source, target = [len(pair.source) for pair in pairs], [len(pair.target) for pair in pairs]
    plan = plan_batches(source, target, max(max_tokens, *source, *target))
    batches = [batch for step in range(len(plan)) for batch in plan[step]]
    return [collate([pairs[number] for number in batch], pad_token_id) for batch in batches]
