"""Choose the head of cross-attention that aligns words best, on given translations."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from transformers.utils import CONFIG_NAME

from vanilla_transformer.data.lexical_alignments import align_lexically
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.word_alignments import GoldAlignment, WordPair, grow_diagonally
from vanilla_transformer.file_utils import update_json
from vanilla_transformer.inference.alignments import Span, link_units, linked_words, token_spans
from vanilla_transformer.inference.engine.alignment_heads import alignment_heads_of, check_cross_attention
from vanilla_transformer.inference.forced_decoding import cross_attentions
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

from .alignment_scores import score_alignments


class HeadError(NamedTuple):
    """A head of a decoder layer's cross-attention, and its alignment error rate, from 0 to 1."""

    layer: int
    head: int
    error: float


def rank_alignment_heads(
    model: Any, tokenizer: Any, pairs: Sequence[SentencePair], expected: Sequence[set[WordPair]] | None = None
) -> list[HeadError]:
    """Return all heads, best first.

    Args:
        expected: The aligned words of each pair, see [`read_alignments`]. By default the heads are compared with the
            alignments of [`align_lexically`], and their order matters more than their errors.

    Raises:
        ValueError: The model has no softmax cross-attention, there are no pairs, or the tokenizer is not a fast one.
    """
    check_cross_attention(model)
    if not pairs:
        raise ValueError("There must be sentences to choose an alignment head on, got none.")
    expected = align_lexically(pairs) if expected is None else expected
    config = model.config
    heads = [(layer, head) for layer in range(config.decoder_layers) for head in range(config.decoder_attention_heads)]
    found: dict[tuple[int, int], list[set[WordPair]]] = {each: [] for each in heads}
    for aligned in align_given(model, tokenizer, pairs, heads):
        for each, links in zip(heads, aligned, strict=True):
            found[each].append(links)
    gold = [GoldAlignment(sure=links, possible=links) for links in expected]
    errors = [HeadError(*each, score_alignments(found[each], gold).error_rate) for each in heads]
    return sorted(errors, key=lambda each: each.error)


def align_by_heads(
    model: Any, tokenizer: Any, pairs: Sequence[SentencePair], reverse: tuple[Any, Any] | None = None
) -> list[set[WordPair]]:
    """Return the words that the `alignment_heads` of a model align, for each pair.

    Args:
        reverse: A model of the other direction and its tokenizer, which may have another vocabulary. The links of
            both are put together by [`grow_diagonally`].

    Raises:
        ValueError: A configuration names no heads, or a tokenizer is not a fast one.
    """
    forward = _align_by_mean(model, tokenizer, pairs)
    if reverse is None:
        return forward
    backward = _align_by_mean(*reverse, [SentencePair(pair.target, pair.source) for pair in pairs])
    return grow_diagonally(forward, [{(source, target) for target, source in links} for links in backward])


def align_given(
    model: Any, tokenizer: Any, pairs: Sequence[SentencePair], heads: Sequence[tuple[int, int]]
) -> Iterator[list[set[WordPair]]]:
    """Yield the words that each head aligns, for each pair in order, by forced decoding of its target."""
    for pair, spans, attentions in _attentions(model, tokenizer, pairs, heads):
        yield [_linked(pair, *spans, attention) for attention in attentions]


def _align_by_mean(model: Any, tokenizer: Any, pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    rows = _attentions(model, tokenizer, pairs, alignment_heads_of(model))
    return [_linked(pair, *spans, attentions.mean(dim=0)) for pair, spans, attentions in rows]


def _attentions(
    model: Any, tokenizer: Any, pairs: Sequence[SentencePair], heads: Sequence[tuple[int, int]]
) -> Iterator[tuple[SentencePair, tuple[list[Span], list[Span]], Tensor]]:
    """Yield each pair, the characters of the tokens on both sides, and the attention of the heads, `(heads, T, S)`."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    encoded = encode_sentences(tokenizer, sources), encode_sentences(tokenizer, targets, as_target=True)
    spans = zip(token_spans(tokenizer, sources), token_spans(tokenizer, targets), strict=True)
    yield from zip(pairs, spans, cross_attentions(model, *encoded, heads), strict=True)


def _linked(
    pair: SentencePair, source_spans: Sequence[Span], target_spans: Sequence[Span], attention: Tensor
) -> set[WordPair]:
    links = link_units(pair.source, source_spans, pair.target, target_spans, attention)
    return linked_words(pair.source, pair.target, links)


def store_alignment_heads(folder: str | Path, heads: Sequence[tuple[int, int]]) -> None:
    """Write `alignment_heads` to the configuration of a model folder.

    Raises:
        OSError: The folder has no configuration, or it cannot be written.
    """
    update_json(Path(folder) / CONFIG_NAME, {"alignment_heads": [[*head] for head in heads]})


__all__ = ["HeadError", "align_by_heads", "align_given", "rank_alignment_heads", "store_alignment_heads"]
