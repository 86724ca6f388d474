"""The alignment error rate, and the cross-attention heads that align words with the lowest one."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME

from vanilla_transformer.data.readers import SentencePair, WordPair
from vanilla_transformer.decoding.engine.source_attention import (
    alignment_heads_of,
    check_cross_attention,
)
from vanilla_transformer.decoding.forced_decoding import check_positions, encode_as_trained
from vanilla_transformer.decoding.unit_links import link_units, linked_words, token_spans
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.hashes import update_json

from .word_alignments import GoldAlignment, align_lexically, grow_diagonally


class AlignmentScores(NamedTuple):
    """Shares from 0 to 1: with links A, sure links S and possible links P, S included in P.

    error_rate: `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)`
    precision: `|A ∩ P| / |A|`
    recall: `|A ∩ S| / |S|`
    """

    error_rate: float
    precision: float
    recall: float


def score_alignments(
    predicted: Sequence[set[WordPair]], gold: Sequence[GoldAlignment]
) -> AlignmentScores:
    """Compare the links of all sentences with the gold links.

    Without any links on either side there is no error.
    """
    links = sure = found_sure = found_possible = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        links += len(ours)
        sure += len(theirs.sure)
        found_sure += len(ours & theirs.sure)
        found_possible += len(ours & theirs.possible)
    error_rate = 0.0
    if links + sure:
        error_rate = 1.0 - (found_sure + found_possible) / (links + sure)
    precision = found_possible / links if links else 1.0
    recall = found_sure / sure if sure else 1.0
    return AlignmentScores(error_rate, precision, recall)


# The layer and the number of each; their attention is averaged.
Heads = Sequence[tuple[int, int]]


class HeadsError(NamedTuple):
    """Heads of the decoder's cross-attention, and their alignment error rate, from 0 to 1."""

    heads: Heads
    error: float


def rank_alignment_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[SentencePair],
    expected: Sequence[set[WordPair]] | None = None,
) -> list[HeadsError]:
    """Return each head and all heads of each layer together, best first.

    Args:
        expected: The aligned words of each pair, see [`read_alignments`]. By default the heads are
            compared with the alignments of [`align_lexically`], and their order matters more than
            their errors.
    """
    check_cross_attention(model)
    if not pairs:
        raise UserError("There must be sentences to choose an alignment head on, got none.")
    expected = align_lexically(pairs) if expected is None else expected
    count = model.config.decoder_attention_heads
    single_heads: list[Heads] = []
    whole_layers: list[Heads] = []
    for layer in range(model.config.decoder_layers):
        heads = [(layer, head) for head in range(count)]
        single_heads += [[head] for head in heads]
        if count > 1:
            whole_layers.append(heads)
    choices = single_heads + whole_layers
    links_by_choice = zip(*align_given(model, tokenizer, pairs, choices), strict=True)
    gold = [GoldAlignment(sure=links, possible=links) for links in expected]
    errors = [score_alignments(links, gold).error_rate for links in links_by_choice]
    return sorted(map(HeadsError, choices, errors), key=lambda choice: choice.error)


def align_by_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[SentencePair],
    reverse: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
) -> list[set[WordPair]]:
    """Return the words that the `alignment_heads` of a model align, for each pair.

    Args:
        reverse: A model of the other direction and its tokenizer, which may have another
            vocabulary. The links of both are put together by [`grow_diagonally`].
    """
    heads = alignment_heads_of(model)
    forward = [links for (links,) in align_given(model, tokenizer, pairs, [heads])]
    if reverse is None:
        return forward
    reverse_model, reverse_tokenizer = reverse
    heads = alignment_heads_of(reverse_model)
    reversed_pairs = [SentencePair(pair.target, pair.source) for pair in pairs]
    rows = align_given(reverse_model, reverse_tokenizer, reversed_pairs, [heads])
    return grow_diagonally(forward, [links for (links,) in rows])


def align_given(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[SentencePair],
    choices: Sequence[Heads],
) -> Iterator[list[set[WordPair]]]:
    """Yield the words that each choice of heads aligns, for each pair in order, by forced decoding
    of its target.
    """
    heads = sorted({*chain.from_iterable(choices)})
    sources = [pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    encoded = encode_as_trained(model, tokenizer, sources, targets)
    source_rows = token_spans(tokenizer, sources, encoded[0])
    target_rows = token_spans(tokenizer, targets, encoded[1])
    attentions = cross_attentions(model, *encoded, heads)
    columns = zip(sources, targets, source_rows, target_rows, attentions, strict=True)
    for source, target, source_spans, target_spans, rows in columns:
        links = []
        for choice in choices:
            attention = rows[[heads.index(head) for head in choice]].mean(dim=0)
            unit_links = link_units(source, source_spans, target, target_spans, attention)
            links.append(linked_words(source, target, unit_links))
        yield links


@torch.inference_mode()
def cross_attentions(
    model: PreTrainedModel,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    heads: Sequence[tuple[int, int]],
) -> Iterator[Tensor]:
    """
    Yield the attention of heads, each a layer and a number, to a source when each target token is
    predicted.

    The attention of each pair is `(heads, T, S)`, over the tokens that the model may see. Pairs are
    computed one by one. The model's attention implementation becomes `"eager"`, since no other one
    returns weights.
    """
    check_positions(model.config, [*sources, *targets])
    model.set_attn_implementation("eager")
    start, device = model.generation_config.decoder_start_token_id, model.device
    for source, target in zip(sources, targets, strict=True):
        ids = torch.tensor([source], device=device)
        previous = torch.tensor([[start, *target[:-1]]], device=device)
        outputs = model(
            input_ids=ids, decoder_input_ids=previous, use_cache=False, output_attentions=True
        )
        rows = [outputs.cross_attentions[layer][0, head] for layer, head in heads]
        yield torch.stack(rows).float().cpu()


def store_alignment_heads(folder: str | Path, heads: Heads) -> None:
    """Write `alignment_heads` to the configuration of a model folder."""
    rows = [[*head] for head in heads]
    update_json(Path(folder) / CONFIG_NAME, {"alignment_heads": rows})
