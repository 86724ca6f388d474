"""Validation: loss and scores on pairs that the model is not trained on."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.data.batches import Batch, plan_batches
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.texts import Texts
from vanilla_transformer.data.tokenized_corpus import (
    EncodedPairs,
    TokenTable,
    encode_pairs,
    to_dataset,
)
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_languages

from .device_batch import BatchPreparation, batch_to_device
from .distributed import sum_over_processes, wait_for_processes
from .loss import ModelWithLoss

# Scores a model on validation pairs: (model, tokenizer, pairs, **generate_kwargs) -> {"bleu": 35.1,
# ...}
Evaluator = Callable[..., dict[str, Any]]


def loss_only(*_: Any, **__: Any) -> dict[str, Any]:
    """Return no scores: an `Evaluator` that leaves validation to the loss."""
    return {}


class Validation:
    """Measure models on validation pairs of a direction.

    Each process computes the loss of its own batches, of at most `max_tokens` on either side or of
    the longest pair, without the others. One process may have a batch more than another.

    Args:
        direction: The languages of the pairs, for a model that has several.
    """

    def __init__(
        self,
        pairs: Sequence[SentencePair],
        tokenizer: PreTrainedTokenizerBase,
        evaluate: Evaluator,
        accelerator: Accelerator,
        max_tokens: int,
        direction: Direction = NO_DIRECTION,
    ):
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.evaluate = evaluate
        self.accelerator = accelerator
        has_languages = find_languages(tokenizer) is not None
        self._languages = (
            {"src_lang": direction.source, "tgt_lang": direction.target} if has_languages else {}
        )
        # Pairs of similar length share a batch, with its number of target tokens.
        self.batches: list[tuple[Batch, int]] = []
        encoded = EncodedPairs(TokenTable(to_dataset(encode_pairs(tokenizer, pairs, direction))))
        source, target = encoded.source_lengths, encoded.target_lengths
        plan = plan_batches(source, target, max(max_tokens, int(source.max()), int(target.max())))
        for rows in (rows for step in range(len(plan)) for rows in plan[step]):
            batch = encoded.table.pad(encoded.rows[rows], tokenizer.pad_token_id)
            self.batches.append((batch, int(target[rows].sum())))

    def measure(
        self, model: VanillaTransformerForConditionalGeneration, **generate_kwargs: Any
    ) -> dict[str, Any]:
        """Return loss and scores.

        `generate_kwargs` override the model's decoding, which is the paper's.
        """
        model.eval()
        entry = {"validation_loss": self.loss(model)}
        entry |= self.evaluate(
            model, self.tokenizer, self.pairs, **self._languages, **generate_kwargs
        )
        wait_for_processes(self.accelerator)
        model.train()
        return entry

    @torch.no_grad()
    def loss(self, model: VanillaTransformerForConditionalGeneration) -> float:
        """Return the plain cross-entropy in nats per target token."""
        model_with_loss = ModelWithLoss(model, smoothing=0.0)
        prepare, plain, tokens = BatchPreparation.for_model(model), 0.0, 0.0
        for batch, target_tokens in self.batches[
            self.accelerator.process_index :: self.accelerator.num_processes
        ]:
            with self.accelerator.autocast():
                plain += float(
                    model_with_loss(batch_to_device(batch, prepare, self.accelerator.device)).plain
                )
            tokens += target_tokens
        plain, tokens = sum_over_processes(self.accelerator, [plain, tokens]).tolist()
        return plain / tokens


class Validations:
    """Measure models on the validation pairs of a recipe, of which there may be none.

    Scores of several directions have their names, such as `bleu_en-de`. The ones without a name, by
    which models are ranked, are then the means over the directions that are trained, or over all if
    none is: others are zero-shot. Scores on text of a model's former domain have names that begin
    with `forgetting_`.

    Args:
        create: Creates the `Validation` of some pairs of a direction.
    """

    def __init__(
        self, texts: Texts, create: Callable[[Sequence[SentencePair], Direction], Validation]
    ):
        self.pairs = texts.validation
        self._parts = {
            part.direction: create(part.pairs, part.direction)
            for part in texts.validation_sets
            if part.pairs
        }
        self._trained = {spec.direction for spec in texts.specs}
        self._forgetting = (
            create(texts.forgetting, texts.validation_sets[0].direction)
            if texts.forgetting
            else None
        )

    def measure(
        self, model: VanillaTransformerForConditionalGeneration, **generate_kwargs: Any
    ) -> dict[str, Any]:
        """Return loss and scores; see [`Validation.measure`]."""
        entries = {
            direction: part.measure(model, **generate_kwargs)
            for direction, part in self._parts.items()
        }
        ranked = [entries[direction] for direction in entries if direction in self._trained]
        ranked = ranked or list(entries.values())
        entry = ranked[0]
        if len(entries) > 1:
            numbers = [name for name, value in entry.items() if isinstance(value, int | float)]
            entry = dict(entry)
            for name in numbers:
                entry[name] = statistics.fmean(scores[name] for scores in ranked)
            for direction, scores in entries.items():
                entry |= {f"{name}_{direction}": scores[name] for name in numbers}
        if self._forgetting is not None:
            others = self._forgetting.measure(model, **generate_kwargs)
            entry |= {
                f"forgetting_{name.removeprefix('validation_')}": value
                for name, value in others.items()
            }
        return entry
