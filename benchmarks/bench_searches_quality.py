"""
Measure what ensembles, minimum Bayes risk and reranking gain over beam search, with p-values.

    python -m benchmarks.bench_searches_quality runs/a runs/b runs/c --source test.en --target test.de

The models have one vocabulary and different seeds. The ensemble's BLEU is compared with the mean BLEU of its models.
Minimum Bayes risk of the first model, with samples and chrF as utility, is compared with the beam search of the first
model. So is its n-best list, reranked by a model of the other direction, if there is one; `vanilla-transformer
tune-reranking` chooses the weights on validation text. p-values are of paired bootstrap resampling (Koehn, 2004).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import describe_processor, progress
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.evaluation.significance import SystemComparison, compare_systems, compare_with_mean
from vanilla_transformer.file_utils import write_text_atomically

_HEADER = "| search | BLEU | chrF | gain | p |\n|---|---|---|---|---|"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    print(f"{describe_processor()}; beams: {options.num_beams}; seed of samples: {options.seed}\n\n{_HEADER}")
    for line in compare(options):
        print(line, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    description = __doc__.strip().split("\n")[0]
    parser = argparse.ArgumentParser(prog="bench_searches_quality", allow_abbrev=False, description=description)
    parser.add_argument("models", nargs="+", help="model folders: two or more, with one vocabulary")
    parser.add_argument("--source", required=True, help="test text to translate")
    parser.add_argument("--target", required=True, help="its references")
    parser.add_argument("--num_beams", type=int, default=4, help="beam size")
    parser.add_argument("--mbr_samples", type=int, nargs="*", default=[32, 128], help="numbers of samples")
    parser.add_argument("--rerank_reverse", help="model of the other direction")
    parser.add_argument(
        "--rerank_weights", type=float, nargs=2, default=[0.5, 0.5], help="of reverse model and length"
    )
    parser.add_argument("--rerank_beams", type=int, default=8, help="beam size of the list that is reranked")
    parser.add_argument("--seed", type=int, default=1, help="seed of the samples")
    parser.add_argument("--resamples", type=int, default=1000, help="bootstrap resamples")
    parser.add_argument("--keep", help="folder for the translations; those that are there are not made again")
    options = parser.parse_args(arguments)
    if len(options.models) < 2:
        parser.error(f"there must be two models or more, got {len(options.models)}")
    return options


def compare(options: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the table."""
    references = read_lines(options.target)
    search = {"num_beams": options.num_beams}
    alone = [
        translate(options, f"beam-{place}", model, **search) for place, model in enumerate(options.models, start=1)
    ]
    for model, texts in zip(options.models, alone, strict=True):
        yield row(f"{model}: beam search", texts, references)
    together = translate(options, "ensemble", options.models[0], options.models[1:], **search)
    found = compare_with_mean(together, alone, references, options.resamples)
    change = f"BLEU {found.system - found.mean:+.2f} over the mean {found.mean:.2f}"
    yield row("ensemble: beam search", together, references, change, found.p_value)
    against = partial(compare_systems, baseline=alone[0], references=references, samples=options.resamples)
    for count in options.mbr_samples:
        risk = {"mbr": "chrf", "mbr_samples": count, "seed": options.seed}
        texts = translate(options, f"mbr-{count}", options.models[0], **risk)
        found_gain = gain("chrF", against(texts)["chrf"])
        yield row(f"{options.models[0]}: MBR, {count} samples", texts, references, *found_gain)
    if options.rerank_reverse is not None:
        names = "rerank_reverse_weight", "rerank_length_weight"
        search = {"num_beams": options.rerank_beams} | dict(zip(names, options.rerank_weights, strict=True))
        texts = translate(options, "reranked", options.models[0], rerank_reverse=options.rerank_reverse, **search)
        yield row(f"{options.models[0]}: reranked", texts, references, *gain("BLEU", against(texts)["bleu"]))


def gain(metric: str, found: SystemComparison) -> tuple[str, float]:
    """Return the cells of a gain over the first model's beam search."""
    return f"{metric} {found.system.score - found.baseline.score:+.2f} over beam search", found.p_value


def row(name: str, texts: Sequence[str], references: Sequence[str], gain: str = "", p: Any = None) -> str:
    found = score(texts, references)
    shown = "" if p is None else f"{p:.3f}"
    return f"| {name} | {found.bleu:.2f} | {found.chrf:.2f} | {gain} | {shown} |"


def translate(
    options: argparse.Namespace,
    name: str,
    model: str,
    others: Sequence[str] = (),
    rerank_reverse: str | None = None,
    **search: Any,
) -> list[str]:
    """Return the translations of the test text, which are kept under a name."""
    path = None if options.keep is None else Path(options.keep) / f"{name}.txt"
    if path is not None and path.is_file():
        return read_lines(path)
    progress(f"{name}: translating")
    pipeline = load_pipeline(model, ensemble=others or None, rerank_reverse=rerank_reverse)
    answers = pipeline(read_lines(options.source), progress_bar=False, **search)
    texts = [" ".join(each["translation_text"].split()) for each in answers]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(path, "\n".join(texts) + "\n")
    return texts


if __name__ == "__main__":
    sys.exit(run(main))
