"""Decode the sentences of a request by an engine, and turn its hypotheses into translations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vanilla_transformer.text.inline_terms import AnnotatedText

from .alignments import Link, align, token_spans
from .engine.engine import Engine
from .engine.hypothesis import Hypothesis
from .prefixes import next_tokens
from .progress import Report
from .sentence_columns import SentenceColumns
from .translations import ReturnOptions, build_translation


def decode_by_engine(
    engine: Engine, sources: Sequence[Sequence[int]], count: int, columns: SentenceColumns, report: Report
) -> list[list[Hypothesis]]:
    """Return the `count` best hypotheses of each source, in the given order. The longest ones enter first."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
    own, found = columns.select(order), dict[int, list[Hypothesis]]()
    stream = (sources[index] for index in order)
    for position, hypotheses in engine.translate_stream(stream, count, own.seed, own.constraints, own.target_prefix):
        found[order[position]] = hypotheses
        report(1)
    return [found[index] for index in range(len(sources))]


def decode_alternatives(
    engine: Engine,
    model: Any,
    sources: Sequence[Sequence[int]],
    count: int,
    columns: SentenceColumns,
    special: Sequence[int],
    report: Report,
) -> list[list[Hypothesis]]:
    """Return the best hypothesis after each of the `count` most likely tokens after the prefix of each source.

    Args:
        columns: With the prefix of each source.
        special: Special tokens. Only EOS is among alternatives.
    """
    prefixes = columns.target_prefix
    assert prefixes is not None
    special = [token for token in special if token not in engine.options.eos_token_ids]
    tokens = next_tokens(model, sources, prefixes, count, special)
    longer = [[*prefix, token] for prefix, some in zip(prefixes, tokens, strict=True) for token in some]
    numbers = [number for number in range(len(sources)) for _ in range(count)]
    own = replace(columns.select(numbers), seed=None, target_prefix=longer)
    found = decode_by_engine(engine, [sources[number] for number in numbers], 1, own, report)
    best = [hypothesis for (hypothesis,) in found]
    return [best[start : start + count] for start in range(0, len(best), count)]


def to_translations(
    sentences: Sequence[AnnotatedText],
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    postprocess: Callable[[list[list[int]]], list[str]],
    tokenizer: Any,
    returned: ReturnOptions,
    config: Any,
) -> list[list[Any]]:
    """Return the translations of each sentence: texts, or a [`Translation`] each if more is requested.

    Args:
        sentences: At least one; tokenizers decode an empty batch to one empty text.
        sources: Their token ids, which may begin with tokens of languages.
        found: The hypotheses of each sentence, as many of each one.
        postprocess: Returns the text of each of some rows of tokens.
        config: The configuration of the model.
    """
    flat = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    translations: list[Any] = postprocess([hypothesis.tokens for hypothesis in flat])
    count = len(found[0])
    if returned.requested():
        links = [list[Link]() for _ in flat]
        if returned.need_alignments(config):
            spans = token_spans(tokenizer, [sentence.text for sentence in sentences], sources)
            repeated = [each for each in zip(sentences, spans, strict=True) for _ in range(count)]
            links = [
                align(sentence.plain, [*map(sentence.original, places)], text, hypothesis, tokenizer)
                for (sentence, places), text, hypothesis in zip(repeated, translations, flat, strict=True)
            ]
        columns = zip(translations, flat, links, strict=True)
        translations = [build_translation(*each, tokenizer, returned) for each in columns]
    return [translations[start : start + count] for start in range(0, len(translations), count)]


__all__ = ["decode_alternatives", "decode_by_engine", "to_translations"]
