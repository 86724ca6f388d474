"""
The log-probabilities of given translations: forced decoding, a pass of the decoder over each batch of pairs.

Letters in shapes: B pairs in a batch, S source length, T target length, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer.device_utils import HostCopy, to_device
from vanilla_transformer.lsh_attention import VanillaTransformerLSHAttention
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences, encode_sources
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, DirectionTokens, find_languages

from .engine.ensemble import members_of, weights_of
from .options import OptionError
from .pretrained import load_seq2seq, load_tokenizer
from .segments import check_languages

_MOST_TOKENS = 4096  # in a batch of prefixes


@torch.inference_mode()
def score_tokens(
    model: Any, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], max_tokens: int = 2048
) -> list[list[float]]:
    """
    Return the log-probability of each target token in nats, given its source and the target tokens before it.

    Where decoding finds a target, these are the [`Hypothesis.token_log_probabilities`] of it.

    Args:
        model: A sequence-to-sequence model in evaluation mode, of this package or of transformers, or an [`Ensemble`].
        sources, targets: Token ids of each pair, as the model was trained: usually with EOS at the end.
        max_tokens: Upper bound of the padded tokens of a batch on either side. A longer pair is a batch by itself.

    Raises:
        ValueError: The model has no `decoder_start_token_id`, or a text is longer than its positions.
    """
    start = model.generation_config.decoder_start_token_id
    if start is None:
        raise ValueError("The model's generation config must have a `decoder_start_token_id`, got none.")
    _check_positions(model.config, [*sources, *targets])
    results = dict[int, list[float]]()
    sizes = [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for batch in plan_scoring_batches(sizes, max_tokens):
        ids, seen = _pad([sources[index] for index in batch])
        labels, _ = _pad([targets[index] for index in batch])
        inputs = (to_device(each, model.device) for each in (ids, seen, labels))
        (rows,) = HostCopy(_score_batch(model, start, *inputs)).wait()
        results |= {index: row[: sizes[index][1]] for index, row in zip(batch, rows, strict=True)}
    return [results[index] for index in range(len(sizes))]


def encode_as_trained(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    direction: Direction = NO_DIRECTION,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of sources and targets, as the model was trained with them.

    Raises:
        ValueError: The model has several languages, and not the ones of `direction`.
    """
    languages = find_languages(tokenizer)
    if languages is None:
        check_languages(tokenizer, direction)
    tokens = DirectionTokens() if languages is None else languages.tokens(direction)
    if not sources:
        return [], []
    ids = encode_sources(model, tokenizer, list(sources))
    # A target that begins with its language differs from a source in this token only, which is replaced below. The
    # tokenizer itself may know no target language.
    as_target = languages is None or not languages.is_forced
    if hasattr(model.config, "source_eos"):
        labels = encode_sentences(tokenizer, targets, as_target)
    else:
        labels = tokenizer(**{"text_target" if as_target else "text": list(targets)})["input_ids"]
    if languages is None:
        return ids, labels
    return languages.begin(ids, tokens.source), languages.begin(labels, tokens.target)


@torch.inference_mode()
def cross_attentions(
    model: Any,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    heads: Sequence[tuple[int, int]],
) -> Iterator[Tensor]:
    """
    Yield the attention of heads, each a layer and a number, to a source when each target token is predicted.

    The attention of each pair is `(heads, T, S)`, over the tokens that the model may see. Pairs are computed one by
    one. The model's attention implementation becomes `"eager"`, since no other one returns weights.

    Raises:
        ValueError: A text is longer than the learned positions.
    """
    _check_positions(model.config, [*sources, *targets])
    model.set_attn_implementation("eager")
    start, device = model.generation_config.decoder_start_token_id, model.device
    for source, target in zip(sources, targets, strict=True):
        ids, previous = (torch.tensor([row], device=device) for row in (source, [start, *target[:-1]]))
        outputs = model(input_ids=ids, decoder_input_ids=previous, use_cache=False, output_attentions=True)
        yield torch.stack([outputs.cross_attentions[layer][0, head] for layer, head in heads]).float().cpu()


@torch.inference_mode()
def next_tokens(
    model: Any, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], count: int, special: Sequence[int]
) -> list[list[int]]:
    """Return the most likely tokens after the prefix of each source, most likely first.

    Args:
        special: Tokens that no translation has. EOS is not among them.

    Raises:
        ValueError: The vocabulary has fewer tokens.
    """
    start, device = model.generation_config.decoder_start_token_id, model.device
    entries = model.get_output_embeddings().weight.shape[0] - len({*special})
    if count > entries:
        raise OptionError(f"`alternatives` must be at most {entries}, as many as there are tokens, got {count}.")
    found = dict[int, list[int]]()
    sizes = [(len(source), len(prefix) + 1) for source, prefix in zip(sources, prefixes, strict=True)]
    for batch in plan_scoring_batches(sizes, _MOST_TOKENS):
        ids, seen = (each.to(device) for each in _pad([sources[index] for index in batch]))
        previous, written = (each.to(device) for each in _pad([[start, *prefixes[index]] for index in batch]))
        logits = decoder_logits(model, ids, seen, previous).float()
        last = logits[torch.arange(len(batch), device=device), written.sum(dim=1) - 1]  # (B, V)
        last[:, list(special)] = -torch.inf
        found |= zip(batch, last.topk(count)[1].tolist(), strict=True)
    return [found[index] for index in range(len(sizes))]


def plan_scoring_batches(sizes: Sequence[tuple[int, int]], max_tokens: int) -> Iterator[list[int]]:
    """
    Yield batches of similar pairs, by their places. The longest ones come first.

    Args:
        sizes: Source and target tokens of each pair.
        max_tokens: See [`score_tokens`].
    """
    order = sorted(range(len(sizes)), key=lambda index: (max(sizes[index]), *sizes[index]), reverse=True)
    start = 0
    while start < len(order):
        most = max(1, max_tokens // max(*sizes[order[start]], 1))
        yield order[start : start + most]
        start += most


def _score_batch(model: Any, start: int, ids: Tensor, seen: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probability of each label, `(B, T)`, given `(B, S)`, `(B, S)` and `(B, T)`."""
    previous = torch.cat([torch.full_like(labels[:, :1], start), labels[:, :-1]], dim=1)
    terms = []
    for member, weight in zip(members_of(model), weights_of(model), strict=True):
        logits = decoder_logits(member, ids, seen, previous).float()  # (B, T, V)
        terms.append(logits.gather(2, labels[:, :, None])[:, :, 0] - logits.logsumexp(dim=2) + math.log(weight))
    return torch.stack(terms).logsumexp(dim=0)


def decoder_logits(
    model: Any, ids: Tensor, mask: Tensor | None, previous: Tensor, encoded: BaseModelOutput | None = None
) -> Tensor:
    """Return the decoder's logits `(B, T, V)` after each of the previous tokens, `(B, T)`, as in decoding.

    Args:
        encoded: The outputs of the encoder, if it has read the sources before.
    """
    source = {"input_ids": ids, "attention_mask": mask, "encoder_outputs": encoded}
    if not any(isinstance(module, VanillaTransformerLSHAttention) for module in model.modules()):
        return model(**source, decoder_input_ids=previous, use_cache=False).logits
    # LSH attention restricts itself to chunks in a pass without a cache, but not where it decodes step by step.
    first = model(**source, decoder_input_ids=previous[:, :1], use_cache=True)
    if previous.shape[1] == 1:
        return first.logits
    encoded, cache = BaseModelOutput(first.encoder_last_hidden_state), first.cache
    rest = model(
        input_ids=ids,
        attention_mask=mask,
        decoder_input_ids=previous[:, 1:],
        encoder_outputs=encoded,
        cache=cache,
    )
    return torch.cat([first.logits, rest.logits], dim=1)


def _check_positions(config: Any, texts: Sequence[Sequence[int]]) -> None:
    most, longest = getattr(config, "max_position_embeddings", None), max(map(len, texts), default=0)
    is_limited = getattr(config, "position_embedding_type", "learned") == "learned"  # as in models of transformers
    if is_limited and most is not None and longest > most:
        raise ValueError(f"A text must have at most {most} tokens, as many as the model has positions, got {longest}.")


def _pad(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return token ids, padded on the right, and a mask with 1 for tokens, `(B, length)` each."""
    pad = partial(nn.utils.rnn.pad_sequence, batch_first=True)
    return pad([torch.tensor(row) for row in rows]), pad([torch.ones(len(row), dtype=torch.long) for row in rows])


_WINDOW = 8192  # pairs that are sorted by length and scored at a time


def dual_scores(forward: str, backward: str, pairs: Sequence[tuple[str, str]], direction: Direction) -> np.ndarray:
    """
    Return a score in (0, 1] for each pair, which is high if both models find it about equally probable.

    With the cross-entropies for each token `f` by the forward and `b` by the backward model, it is
    exp(-(|f - b| + (f + b) / 2)).

    Args:
        forward, backward: A model of the direction, and one of the opposite direction; folders or names on the Hub.

    Raises:
        OSError: there is no such model.
        ValueError: a model cannot translate in its direction, or a text is too long for it.
    """
    reverse = Direction(direction.target, direction.source)
    forth = cross_entropies(forward, pairs, direction)
    back = cross_entropies(backward, [(target, source) for source, target in pairs], reverse)
    return np.exp(-(np.abs(forth - back) + (forth + back) / 2))


def cross_entropies(name: str, pairs: Sequence[tuple[str, str]], direction: Direction) -> np.ndarray:
    """Return the negative log-probability of each translation, given its source, for each of its tokens, in nats."""
    model = load_seq2seq(name, "scores translations").to(PartialState().device)
    tokenizer = load_tokenizer(name)
    direction = NO_DIRECTION if find_languages(tokenizer) is None else direction
    results = list[float]()
    for window in tqdm(list(_windows(pairs)), f"Scoring by {name}", delay=1, disable=None):
        sources, targets = zip(*window, strict=True)
        ids, labels = encode_as_trained(model, tokenizer, sources, targets, direction)
        results += [-sum(row) / len(row) for row in score_tokens(model, ids, labels)]
    return np.array(results)


def _windows(pairs: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    return (pairs[start : start + _WINDOW] for start in range(0, len(pairs), _WINDOW))
