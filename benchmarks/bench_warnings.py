"""
Count the false alarms of warnings: warnings about translations that people wrote.

    python -m benchmarks.bench_warnings MODEL SOURCE TARGET [SOURCE TARGET ...]

Each pair of files has one sentence a line. The translation of a person stands for the one of the
model, which aligns both by forced decoding, as it aligns its own. A label is a source without a
final sign, of at most 8 words; the warning `ending` is for these alone.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.harness import BenchmarkArguments, read_arguments
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.text.translation_warnings import is_label

SHOWN = 12  # examples of each warning


def main(arguments: Sequence[str]) -> None:
    counts = range(3, 40, 2)
    words, _ = read_arguments(BenchmarkArguments, arguments, "bench_warnings MODEL TEXTS", counts)
    model, *paths = words
    for source, target in zip(paths[::2], paths[1::2], strict=True):
        pairs = [*zip(read_lines(source), read_lines(target), strict=True)]
        warnings, labels = Counter[str](), 0
        examples: list[tuple[str, str, str]] = []
        for one, other, names in warn(model, pairs):
            labels += is_label(one)
            warnings.update(names)
            examples += [(name, one, other) for name in names]
        print(f"{Path(source).name}: {len(pairs)} pairs, {labels} labels")
        for name, count in warnings.most_common():
            print(f"{count:6} {1000 * count / len(pairs):7.2f} of 1,000  {name}")
            shown = [example for example in examples if example[0] == name]
            for _, one, other in shown[:SHOWN]:
                print(f"{'':24} {one} | {other}")


def warn(path: str, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the pairs with the names of their warnings."""
    from vanilla_transformer.decoding.answers import warning_finder
    from vanilla_transformer.decoding.engine.source_attention import alignment_heads_of
    from vanilla_transformer.decoding.loading import load_pipeline
    from vanilla_transformer.decoding.unit_links import link_units, token_spans
    from vanilla_transformer.extensions.alignments.alignment_scores import (
        cross_attentions,
        encode_as_trained,
    )

    pipeline = load_pipeline(path)
    model, tokenizer = pipeline.model, pipeline.tokenizer
    find = warning_finder(tokenizer, model.config, {})
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    encoded = encode_as_trained(model, tokenizer, sources, targets)
    source_rows = token_spans(tokenizer, sources, encoded[0])
    target_rows = token_spans(tokenizer, targets, encoded[1])
    attentions = cross_attentions(model, *encoded, alignment_heads_of(model))
    columns = zip(sources, targets, source_rows, target_rows, attentions, strict=True)
    for source, target, source_spans, target_spans, rows in columns:
        links = link_units(source, source_spans, target, target_spans, rows.mean(dim=0))
        yield source, target, find(source, target, links)


if __name__ == "__main__":
    sys.exit(run(main))
