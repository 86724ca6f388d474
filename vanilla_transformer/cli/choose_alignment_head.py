"""Choose the attention head for alignments, and store it in the configuration of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .arguments import MODEL, parse, require_one_model


@dataclass
class ChooseAlignmentHeadArguments:
    """Flags of `choose-alignment-head`. The text files are aligned line by line; validation text serves well."""

    source: str = field(metadata={"help": "Source text, one sentence per line."})
    target: str = field(metadata={"help": "Its translations, one per line."})
    alignments: str | None = field(
        default=None,
        metadata={
            "help": "Known alignments in the format of Moses, such as 0-0 1-2, one line per sentence. By default a "
            "lexical model aligns the words."
        },
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        ChooseAlignmentHeadArguments,
        arguments,
        "choose-alignment-head MODEL --source FILE --target FILE [--flags]",
        MODEL,
    )
    folder = require_one_model(words)
    if not Path(folder).is_dir():
        raise ValueError(f"The model must be a folder, whose config.json can be changed, got {folder}.")
    from transformers import AutoModelForSeq2SeqLM

    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.data.word_alignments import read_alignments
    from vanilla_transformer.decoding.pretrained import load_pretrained, load_tokenizer
    from vanilla_transformer.evaluation.alignment_heads import rank_alignment_heads, store_alignment_heads

    pairs = [*stream_text_files(options.source, options.target)]
    expected = None if options.alignments is None else read_alignments(options.alignments, pairs)
    model = load_pretrained(AutoModelForSeq2SeqLM, folder)
    best, *others = rank_alignment_heads(model, load_tokenizer(folder), pairs, expected)
    store_alignment_heads(folder, best.heads)
    against = "the given alignments" if options.alignments else "a lexical model"
    for each in (best, *others[:4]):
        names = ", ".join(f"{layer}-{head}" for layer, head in each.heads)
        print(f"layer and head {names}: alignment error rate {each.error:.1%} against {against}")
    print(f"{folder}/config.json has `alignment_heads` {[[*head] for head in best.heads]}.")
