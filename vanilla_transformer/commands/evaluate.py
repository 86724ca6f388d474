"""BLEU and chrF of a model on a test set."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.evaluation.scores import translate_and_score
from vanilla_transformer.training.corpora import read_text_files

from .arguments import parse


@dataclass
class EvaluateArguments:
    """A test set, and where to put the translations."""

    source: str = field(metadata={"help": "Test text, source side, one sentence a line."})
    target: str = field(metadata={"help": "Reference translations, line by line."})
    output_file: str | None = field(default=None, metadata={"help": "Write the translations there."})
    num_beams: int | None = field(
        default=None, metadata={"help": "In place of the checkpoint's own (4 in the paper)."}
    )


def main(arguments: Sequence[str]) -> None:
    words, options = parse(EvaluateArguments, arguments, "evaluate FOLDER --source FILE --target FILE [--flags]")
    if len(words) != 1:
        raise ValueError(f"Name the folder (or Hub name) of one model before the flags, got {len(words)} names.")
    pairs = read_text_files(options.source, options.target)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(words[0]), AutoTokenizer.from_pretrained(words[0])
    beams = {} if options.num_beams is None else {"num_beams": options.num_beams}
    hypotheses, scores = translate_and_score(model, tokenizer, pairs, progress_bar=True, **beams)
    if options.output_file is not None:
        Path(options.output_file).write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    print(f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}")
    print(f"chrF {scores.chrf:.2f}  {scores.chrf_signature}")
