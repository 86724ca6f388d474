r"""
Compare the alignments of attention heads with statistical aligners, on the demo corpus or on a user's text.

    python -m benchmarks.bench_alignments runs/demo runs/guided
    python -m benchmarks.bench_alignments runs/multi30k_en_de --source test.en --target test.de \
        --train_source train.en --train_target train.de

The demo corpus has gold alignments, and the table shows the alignment error rate on its test set. A model's heads
are its `alignment_heads`, or else the best ones on the gold alignments of the validation set. Other text
has no gold alignments: there `agreement` with an aligner is the F1 score of the links, and models without
`alignment_heads` are given the heads that agree most with the first one. The aligners are IBM model 2 of nltk, eflomal
if it is installed (`pip install eflomal`), and the lexical model of `train_alignments: agreement`, fitted to the
training text and the test text.
"""

import argparse
from collections.abc import Sequence
from itertools import islice
from typing import Any

from benchmarks import eflomal_links, ibm_model_2
from benchmarks.harness import progress
from benchmarks.ibm_model_2 import Links, intersect
from vanilla_transformer.data.demo_corpus import SPLIT_SIZES, read_demo_alignments, read_demo_corpus
from vanilla_transformer.data.lexical_alignments import align_lexically
from vanilla_transformer.data.readers import SentencePair, read_text_files
from vanilla_transformer.data.word_alignments import GoldAlignment, grow_diagonally, parse_alignment
from vanilla_transformer.evaluation.alignment_heads import Heads, align_given, rank_alignment_heads
from vanilla_transformer.evaluation.alignment_scores import AlignmentScores, score_alignments


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    for line in compare_on_demo_corpus(options) if options.source is None else compare_on_text(options):
        print(line, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_alignments", allow_abbrev=False, description=__doc__.split("\n")[1])
    parser.add_argument("models", nargs="*", help="model folders")
    parser.add_argument("--source", help="text to align, source side; by default the demo corpus's test set")
    parser.add_argument("--target", help="its translations")
    parser.add_argument("--train_source", help="more text for the aligners, source side")
    parser.add_argument("--train_target", help="its translations")
    parser.add_argument("--train_pairs", type=int, default=10_000, help="number of training pairs for the aligners")
    parser.add_argument("--test_pairs", type=int, default=500, help="number of pairs to align")
    parser.add_argument("--iterations", type=int, default=5, help="iterations of IBM model 1, and then of model 2")
    options = parser.parse_args(arguments)
    for one, other in (("source", "target"), ("train_source", "train_target")):
        if (getattr(options, one) is None) != (getattr(options, other) is None):
            parser.error(f"--{one} and --{other} must be given together")
    for name in ("train_pairs", "test_pairs", "iterations"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be 1 or more, got {getattr(options, name)}")
    return options


def compare_on_demo_corpus(options: argparse.Namespace) -> list[str]:
    """Return a table of alignment error rates on the demo corpus's test set."""
    test, gold = _read_demo("test", options.test_pairs)
    validation, known = _read_demo("validation", min(options.test_pairs, SPLIT_SIZES["validation"]))
    train = read_demo_corpus("train", min(options.train_pairs, SPLIT_SIZES["train"]))
    rows = ["| aligner | AER | precision | recall |", "|---|---|---|---|"]
    for name, links in _aligners([*test, *train], options.iterations, len(test)).items():
        rows.append(_row(name, score_alignments(links, gold)))
    for folder in options.models:
        model, tokenizer = _load(folder)
        heads = _named_heads(model)
        heads = heads or rank_alignment_heads(model, tokenizer, validation, [each.sure for each in known])[0].heads
        links = [found for (found,) in align_given(model, tokenizer, test, [heads])]
        rows.append(_row(f"{folder}: {_describe(model, heads)}", score_alignments(links, gold)))
    return rows


def compare_on_text(options: argparse.Namespace) -> list[str]:
    """Return a table of the agreement of heads with aligners on a text without gold alignments."""
    test = list(islice(read_text_files(options.source, options.target), options.test_pairs))
    train: list[SentencePair] = []
    if options.train_source is not None:
        train = list(islice(read_text_files(options.train_source, options.train_target), options.train_pairs))
    aligned = _aligners([*test, *train], options.iterations, len(test))
    rows = [
        f"| aligner | {' | '.join(f'agreement with {name}' for name in aligned)} |",
        "|---" * (len(aligned) + 1) + "|",
    ]
    rows += [_agreements(name, links, aligned) for name, links in aligned.items()]
    for folder in options.models:
        model, tokenizer = _load(folder)
        first = next(iter(aligned.values()))
        heads = _named_heads(model) or rank_alignment_heads(model, tokenizer, test, first)[0].heads
        links = [found for (found,) in align_given(model, tokenizer, test, [heads])]
        rows.append(_agreements(f"{folder}: {_describe(model, heads)}", links, aligned))
    return rows


def _read_demo(split: str, count: int) -> tuple[list[SentencePair], list[GoldAlignment]]:
    pairs, lines = read_demo_corpus(split, count), read_demo_alignments(split, count)
    rows = zip(lines, pairs, strict=True)
    return pairs, _all_sure([parse_alignment(line, pair, f"the demo corpus's {split}") for line, pair in rows])


def _all_sure(links: Links) -> list[GoldAlignment]:
    return [GoldAlignment(sure=each, possible=each) for each in links]


def _aligners(pairs: Sequence[SentencePair], iterations: int, count: int) -> dict[str, Links]:
    """Fit each aligner to all pairs, and return its links of the first `count` ones."""
    progress(f"Fitting IBM model 2 to {len(pairs)} pairs in both directions")
    both = {"IBM model 2": ibm_model_2.align_both_ways(pairs, iterations, count)}
    if eflomal_links.is_installed():
        progress("Fitting eflomal")
        both["eflomal"] = eflomal_links.align_both_ways(pairs, count)
    found = dict[str, Links]()
    for name, directions in both.items():
        found |= {f"{name}, intersection": intersect(*directions), f"{name}, grow-diag": grow_diagonally(*directions)}
    return found | {"`write-alignments`": align_lexically(pairs)[:count]}


def _agreements(name: str, links: Links, aligned: dict[str, Links]) -> str:
    scores = [1.0 - score_alignments(links, _all_sure(theirs)).error_rate for theirs in aligned.values()]
    return f"| {name} | {' | '.join(f'{score:.1%}' for score in scores)} |"


def _load(folder: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM

    from vanilla_transformer.decoding.pretrained import load_pretrained, load_tokenizer

    progress(f"Aligning with {folder}")
    return load_pretrained(AutoModelForSeq2SeqLM, folder), load_tokenizer(folder)


def _named_heads(model: Any) -> Heads:
    return [tuple(head) for head in getattr(model.config, "alignment_heads", None) or []]


def _describe(model: Any, heads: Heads) -> str:
    names = ", ".join(f"{layer}-{head}" for layer, head in heads)
    return f"{'the' if _named_heads(model) else 'best'} heads (layer and head {names})"


def _row(name: str, scores: AlignmentScores) -> str:
    return f"| {name} | {' | '.join(f'{value:.1%}' for value in scores)} |"


if __name__ == "__main__":
    main()
