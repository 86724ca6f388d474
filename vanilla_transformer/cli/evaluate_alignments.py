"""Compute the alignment error rate, precision and recall of a file of word alignments."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from .arguments import parse, require_no_words


@dataclass
class EvaluateAlignmentsArguments:
    """Flags of `evaluate-alignments`. All files are aligned line by line; words are what white space separates."""

    source: str = field(metadata={"help": "Source text, one sentence per line."})
    target: str = field(metadata={"help": "Its translations, one per line."})
    alignments: str = field(
        metadata={"help": "Alignments in the format of Moses, such as 0-0 1-2, one line per pair."}
    )
    gold_alignments: str = field(metadata={"help": "Known alignments: sure pairs 0-1 and possible pairs 0p1."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        EvaluateAlignmentsArguments,
        arguments,
        "evaluate-alignments --source FILE --target FILE --alignments FILE --gold_alignments FILE",
    )
    require_no_words(words)
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.data.word_alignments import read_alignments, read_gold_alignments
    from vanilla_transformer.evaluation.alignment_scores import score_alignments

    pairs = [*stream_text_files(options.source, options.target)]
    found, gold = read_alignments(options.alignments, pairs), read_gold_alignments(options.gold_alignments, pairs)
    scores = score_alignments(found, gold)
    print(
        f"AER {100 * scores.error_rate:.2f}  precision {100 * scores.precision:.2f}  "
        f"recall {100 * scores.recall:.2f}  ({len(pairs)} sentences, {sum(map(len, found))} links)"
    )
