"""
The data of an explanation: a translation, the attention of all heads, runners-up and the recorded
search.

Letters in shapes: S source length, T target length, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.decoding.engine.recorded_search import (
    RecordedHypothesis,
    RecordedSearch,
    record_search,
)
from vanilla_transformer.decoding.engine.source_attention import alignment_heads_of
from vanilla_transformer.decoding.forced_decoding import decoder_logits, encode_as_trained
from vanilla_transformer.decoding.segments import begin_with_languages, forced_language
from vanilla_transformer.decoding.token_texts import next_token_text, token_texts
from vanilla_transformer.errors import UserError
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import Direction

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Of a source or a translation: more make a page that is slow and hard to read.
MOST_TOKENS = 100
_ALTERNATIVES = 5
_PART = "Explain one of its sentences."


class TokenChoice(NamedTuple):
    """
    A token of the translation, and the most likely ones at its place.

    Attributes:
        probability: Given the source and the tokens before.
        rank: 1 if no token was more likely.
        alternatives: The text and the probability of the most likely other tokens, best first.
    """

    text: str
    probability: float
    rank: int
    alternatives: list[tuple[str, float]]


class Attention(NamedTuple):
    """
    The weights of all heads of one kind of attention.

    Attributes:
        kind: `"cross"`, `"encoder"` or `"decoder"`.
        weights: `(layers, heads, T or S, S or T)`, where each row sums to 1; None if the model
            computes none.
    """

    kind: str
    weights: Tensor | None


class Node(NamedTuple):
    """A candidate of the search, with the place of its parent among the candidates of the step
    before.
    """

    parent: int
    text: str
    candidate: RecordedHypothesis


@dataclass(frozen=True)
class Explanation:
    """
    How a model translates one sentence.

    Attributes:
        source, translation: Texts.
        is_forced: The translation was given; the search may have found another one.
        source_tokens: The text of each source token.
        target_tokens: The tokens of the translation.
        attentions: Attention probabilities of the three kinds.
        steps: The candidates of each step of the search, best first.
        hypotheses: The text and the score of each translation that the search found, best first.
        places: Place of each of these in `steps`: the step and the place in it.
        num_beams: Beam size of the search.
        alignment_heads: Layer and number of the heads of cross-attention that align words, if the
            configuration names any.
        special_tokens: The texts of tokens that are not part of a translation.
    """

    source: str
    translation: str
    is_forced: bool
    source_tokens: list[str]
    target_tokens: list[TokenChoice]
    attentions: list[Attention]
    steps: list[list[Node]]
    hypotheses: list[tuple[str, float]]
    places: list[tuple[int, int]]
    num_beams: int
    alignment_heads: list[tuple[int, int]]
    special_tokens: list[str]


def explain(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    translation: str | None = None,
    **options: Any,
) -> Explanation:
    """
    Explain the translation of one sentence. The model's attention implementation becomes `"eager"`.

    Args:
        model: A sequence-to-sequence model of this package, in evaluation mode.
        translation: Explain this one instead of the one that the search finds.
        options: Keyword arguments of `generate()` for greedy or beam search, `src_lang` and
            `tgt_lang`.
    """
    direction = Direction(options.pop("src_lang", None), options.pop("tgt_lang", None))
    text = _check_line(text, "text")
    encoded = encode_sentences(tokenizer, [text])
    (source,) = begin_with_languages(tokenizer, encoded, direction)
    _check_length(source, "text", _PART)
    options |= forced_language(tokenizer, direction)
    longest = getattr(model.config, "max_source_length", None)
    if longest is not None and len(source) > longest:
        actual = f"got {len(source)}, so its sentences are translated one by one"
        raise UserError(
            f"The text must have at most {longest} tokens, the longest in training; {actual}. "
            f"{_PART}"
        )
    forced = None
    if translation is not None:
        translation = _check_line(translation, "translation")
        _, (forced,) = encode_as_trained(model, tokenizer, [text], [translation], direction)
        _check_length(forced, "translation", _PART)
    model.set_attn_implementation("eager")
    search = record_search(model, source, **options)
    target = list(search.best[0].tokens) if forced is None else forced
    _check_length(target, "translation", "Limit it by `max_new_tokens`.")
    logits, attentions = _read(model, source, target)
    places = {}
    for row, step in enumerate(search.steps):
        for column, node in enumerate(step):
            places[node.tokens] = (row, column)
    alignment_heads = []
    if getattr(model.config, "alignment_heads", None):
        alignment_heads = alignment_heads_of(model)
    return Explanation(
        source=text,
        translation=_text(tokenizer, target),
        is_forced=forced is not None,
        source_tokens=token_texts(tokenizer, source, as_source=True),
        target_tokens=_choices(tokenizer, target, logits),
        attentions=attentions,
        steps=_steps(tokenizer, search),
        hypotheses=[(_text(tokenizer, best.tokens), best.score) for best in search.best],
        places=[places[best.tokens] for best in search.best],
        num_beams=options.get("num_beams") or model.generation_config.num_beams or 1,
        alignment_heads=alignment_heads,
        special_tokens=tokenizer.all_special_tokens,
    )


def _check_line(text: str, name: str) -> str:
    """Return a text that is one line with a word at least, without white space around it."""
    text = text.strip()
    if not text:
        raise UserError(f"The {name} must have a word at least, but it is empty.")
    if len(text.splitlines()) > 1:
        raise UserError(f"The {name} must be one line, got {len(text.splitlines())}. {_PART}")
    return text


def _check_length(tokens: Sequence[int], name: str, hint: str) -> None:
    if len(tokens) > MOST_TOKENS:
        raise UserError(
            f"The {name} must have at most {MOST_TOKENS} tokens to fit a page, got {len(tokens)}. "
            f"{hint}"
        )


@torch.no_grad()
def _read(
    model: "PreTrainedModel", source: Sequence[int], target: Sequence[int]
) -> tuple[Tensor, list[Attention]]:
    """Return the logits of each target token, `(T, V)`, and the attention with which it is
    predicted.
    """
    start = model.generation_config.decoder_start_token_id
    rows = (source, [start, *target[:-1]])
    ids, previous = (torch.tensor([row], device=model.device) for row in rows)
    logits = decoder_logits(model, ids, None, previous)[0].float()
    outputs = model(
        input_ids=ids, decoder_input_ids=previous, use_cache=False, output_attentions=True
    )
    layers = {
        "cross": outputs.cross_attentions,
        "encoder": outputs.encoder_attentions,
        "decoder": outputs.decoder_attentions,
    }
    weights: dict[str, Tensor | None] = {}
    for kind, parts in layers.items():
        weights[kind] = torch.cat([*parts]).float().cpu() if parts else None
    return logits, [Attention(kind, weight) for kind, weight in weights.items()]


def _choices(
    tokenizer: "PreTrainedTokenizerBase", target: Sequence[int], logits: Tensor
) -> list[TokenChoice]:
    probabilities = logits.softmax(dim=-1).cpu()  # (T, V)
    best, tokens = probabilities.topk(min(_ALTERNATIVES + 1, probabilities.shape[1]))
    choices = []
    for place, (token, text) in enumerate(zip(target, token_texts(tokenizer, target), strict=True)):
        row = zip(tokens[place].tolist(), best[place].tolist(), strict=True)
        others = []
        for other, value in row:
            if other != token:
                others.append((next_token_text(tokenizer, target[:place], other), value))
        probability = probabilities[place, token].item()
        rank = 1 + int((probabilities[place] > probability).sum())
        choices.append(TokenChoice(text, probability, rank, others[:_ALTERNATIVES]))
    return choices


def _steps(tokenizer: "PreTrainedTokenizerBase", search: RecordedSearch) -> list[list[Node]]:
    steps = list[list[Node]]()
    parents: dict[tuple[int, ...], int] = {(): 0}
    for step in search.steps:
        nodes = []
        for hypothesis in step:
            before = hypothesis.tokens[:-1]
            text = next_token_text(tokenizer, before, hypothesis.tokens[-1])
            nodes.append(Node(parents[before], text, hypothesis))
        steps.append(nodes)
        parents = {hypothesis.tokens: place for place, hypothesis in enumerate(step)}
    return steps


def _text(tokenizer: "PreTrainedTokenizerBase", tokens: Sequence[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=True).strip()
