"""
The log-probabilities of given translations: forced decoding, a pass of the decoder over each batch
of pairs.

Letters in shapes: B pairs in a batch, S source length, T target length, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.errors import UserError
from vanilla_transformer.lsh_attention import VanillaTransformerLSHAttention
from vanilla_transformer.machine.transfers import HostCopy, to_device
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences, encode_sources
from vanilla_transformer.text.languages import (
    NO_DIRECTION,
    Direction,
    DirectionTokens,
    find_languages,
)

from .ensemble import members_of, weights_of
from .options import check_languages

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

    from vanilla_transformer.decoding.ensemble import DecodedModel


@torch.inference_mode()
def score_tokens(
    model: "DecodedModel",
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    max_tokens: int = 2048,
) -> list[list[float]]:
    """
    Return the log-probability of each target token in nats, given its source and the target tokens
    before it.

    Where decoding finds a target, these are the [`Hypothesis.token_log_probabilities`] of it.

    Args:
        model: A sequence-to-sequence model in evaluation mode, of this package or of transformers,
            or an [`Ensemble`].
        sources, targets: Token ids of each pair, as the model was trained: usually with EOS at the
            end.
        max_tokens: Upper bound of the padded tokens of a batch on either side. A longer pair is a
            batch by itself.
    """
    start = model.generation_config.decoder_start_token_id
    if start is None:
        raise UserError(
            "The model's generation config must have a `decoder_start_token_id`, got none."
        )
    check_positions(model.config, [*sources, *targets])
    results = dict[int, list[float]]()
    sizes = []
    for source, target in zip(sources, targets, strict=True):
        sizes.append((len(source), len(target)))
    for batch in plan_scoring_batches(sizes, max_tokens):
        ids, seen = pad([sources[index] for index in batch])
        labels, _ = pad([targets[index] for index in batch])
        inputs = (to_device(tensor, model.device) for tensor in (ids, seen, labels))
        (rows,) = HostCopy(_score_batch(model, start, *inputs)).wait()
        for index, row in zip(batch, rows, strict=True):
            _, target_length = sizes[index]
            results[index] = row[:target_length]
    return [results[index] for index in range(len(sizes))]


def encode_as_trained(
    model: "DecodedModel",
    tokenizer: "PreTrainedTokenizerBase",
    sources: Sequence[str],
    targets: Sequence[str],
    direction: Direction = NO_DIRECTION,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of sources and targets, as the model was trained with them."""
    languages = find_languages(tokenizer)
    if languages is None:
        check_languages(tokenizer, direction)
    tokens = DirectionTokens() if languages is None else languages.tokens(direction)
    if not sources:
        return [], []
    ids = encode_sources(model, tokenizer, list(sources))
    # A target that begins with its language differs from a source in this token only, which is
    # replaced below. The tokenizer itself may know no target language.
    as_target = languages is None or not languages.is_forced
    if hasattr(model.config, "source_eos"):
        labels = encode_sentences(tokenizer, targets, as_target)
    else:
        side = "text_target" if as_target else "text"
        labels = tokenizer(**{side: list(targets)})["input_ids"]
    if languages is None:
        return ids, labels
    return languages.begin(ids, tokens.source), languages.begin(labels, tokens.target)


def plan_scoring_batches(sizes: Sequence[tuple[int, int]], max_tokens: int) -> Iterator[list[int]]:
    """
    Yield batches of similar pairs, by their places. The longest ones come first.

    Args:
        sizes: Source and target tokens of each pair.
    """

    def longer_side(index: int) -> tuple[int, ...]:
        return max(sizes[index]), *sizes[index]

    order = sorted(range(len(sizes)), key=longer_side, reverse=True)
    start = 0
    while start < len(order):
        most = max(1, max_tokens // max(*sizes[order[start]], 1))
        yield order[start : start + most]
        start += most


def _score_batch(
    model: "DecodedModel", start: int, ids: Tensor, seen: Tensor, labels: Tensor
) -> Tensor:
    """Return the log-probability of each label, `(B, T)`, given `(B, S)`, `(B, S)` and `(B, T)`."""
    starts = torch.full_like(labels[:, :1], start)
    previous = torch.cat([starts, labels[:, :-1]], dim=1)
    terms = []
    for member, weight in zip(members_of(model), weights_of(model), strict=True):
        logits = decoder_logits(member, ids, seen, previous).float()  # (B, T, V)
        of_labels = logits.gather(2, labels[:, :, None])[:, :, 0]
        terms.append(of_labels - logits.logsumexp(dim=2) + math.log(weight))
    return torch.stack(terms).logsumexp(dim=0)


def decoder_logits(
    model: "DecodedModel",
    ids: Tensor,
    mask: Tensor | None,
    previous: Tensor,
    encoded: BaseModelOutput | None = None,
) -> Tensor:
    """Return the decoder's logits `(B, T, V)` after each of the previous tokens, `(B, T)`, as in
    decoding.

    Args:
        encoded: The outputs of the encoder, if it has read the sources before.
    """
    source = {"input_ids": ids, "attention_mask": mask, "encoder_outputs": encoded}
    modules = model.modules()
    if not any(isinstance(module, VanillaTransformerLSHAttention) for module in modules):
        return model(**source, decoder_input_ids=previous, use_cache=False).logits
    # LSH attention restricts itself to chunks in a pass without a cache, but not where it decodes
    # step by step.
    first = model(**source, decoder_input_ids=previous[:, :1], use_cache=True)
    if previous.shape[1] == 1:
        return first.logits
    encoded = BaseModelOutput(first.encoder_last_hidden_state)
    cache = first[CACHE]
    rest = model(
        input_ids=ids,
        attention_mask=mask,
        decoder_input_ids=previous[:, 1:],
        encoder_outputs=encoded,
        cache=cache,
    )
    return torch.cat([first.logits, rest.logits], dim=1)


def check_positions(config: "PreTrainedConfig", texts: Sequence[Sequence[int]]) -> None:
    """Refuse texts that are longer than the learned positions of a model."""
    most = getattr(config, "max_position_embeddings", None)
    longest = max(map(len, texts), default=0)
    # By default learned, as in models of transformers
    is_limited = getattr(config, "position_embedding_type", "learned") == "learned"
    if is_limited and most is not None and longest > most:
        raise UserError(
            f"A text must have at most {most} tokens, as many as the model has positions, got "
            f"{longest}."
        )


def pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token ids, padded on the right, and a mask with 1 for tokens, `(B, length)` each."""
    pad = partial(nn.utils.rnn.pad_sequence, batch_first=True)
    ids = [torch.tensor(row) for row in rows]
    mask = [torch.ones(len(row), dtype=torch.long) for row in rows]
    return pad(ids), pad(mask)
