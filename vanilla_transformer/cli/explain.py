"""Write a page that shows how a model translates a sentence: attention, probabilities of tokens and the search."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .arguments import MODEL, parse
from .language_arguments import LanguageArguments, language_settings


@dataclass
class _PageArguments:
    """Flags of the page, and of the search that it shows."""

    output: str = field(metadata={"help": "HTML file to write. It has all of its data and loads nothing."})
    translation: str | None = field(
        default=None, metadata={"help": "Explain this translation instead of the one that the search finds."}
    )
    num_beams: int | None = field(default=None, metadata={"help": "Beam size; 1 is greedy search."})
    length_penalty: float | None = field(
        default=None, metadata={"help": "Exponent of the length by which beam search divides log-probabilities."}
    )
    max_new_tokens: int | None = field(default=None, metadata={"help": "Maximum number of tokens of the translation."})
    device: str | None = field(
        default=None, metadata={"help": "cpu, cuda, cuda:1, …; by default the CPU, which is fast enough."}
    )


@dataclass
class ExplainArguments(LanguageArguments, _PageArguments):
    """Flags of `explain`. By default the checkpoint's generation config decides about the search."""


def main(arguments: Sequence[str]) -> None:
    words, options = parse(
        ExplainArguments,
        arguments,
        "explain MODEL 'A sentence.' --output FILE [--flags]",
        MODEL | {"SENTENCE": "The sentence, in quotation marks."},
    )
    if len(words) != 2:
        raise ValueError(
            f"Give the folder (or Hub name) of a model and one sentence in quotes, got {len(words)} words."
        )
    if Path(options.output).is_dir():
        raise ValueError(f"The page must go to a file, but {options.output} is a folder.")
    name, text = words
    from vanilla_transformer.decoding.loading import check_device
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.evaluation.explanation import explain, render_page
    from vanilla_transformer.file_utils import write_text_atomically

    if options.device is not None:
        check_device(options.device)
    model = load_seq2seq(name, "can be explained").to(options.device or "cpu")
    chosen = {each: getattr(options, each) for each in ("num_beams", "length_penalty", "max_new_tokens")}
    chosen = {each: value for each, value in chosen.items() if value is not None}
    tokenizer = load_tokenizer(name)
    chosen |= language_settings(tokenizer, options)
    explanation = explain(model, tokenizer, text, options.translation, **chosen)
    write_text_atomically(options.output, render_page(explanation, Path(name).name))
    print(f"{explanation.translation}\nThe page is {options.output}.")
