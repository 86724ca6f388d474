"""Compute the log-probability of given translations by forced decoding."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.file_utils import write_text_atomically

from .arguments import parse, require_one_model
from .language_arguments import LanguageArguments, language_settings
from .model_arguments import EnsembleArguments


@dataclass
class _TextArguments:
    """Flags of the text, and of the scores."""

    source: str = field(metadata={"help": "Source text, one sentence per line."})
    target: str = field(metadata={"help": "Translations to score, one per line."})
    json: bool = field(
        default=False,
        metadata={"help": "Write a JSON object per line, with the log-probability of each token of the translation."},
    )
    output: str | None = field(default=None, metadata={"help": "Write to this file instead of standard output."})
    max_tokens: int = field(default=2048, metadata={"help": "Maximum number of tokens per batch, padding included."})


@dataclass
class ScoreArguments(EnsembleArguments, LanguageArguments, _TextArguments):
    """Flags of `score`. The text files are aligned line by line; a blank line is an empty sentence."""


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ScoreArguments, arguments, "score MODEL --source FILE --target FILE [--flags]")
    name = require_one_model(words)
    if options.max_tokens < 1:
        raise ValueError(f"`max_tokens` must be 1 or more, got {options.max_tokens}.")
    if options.output is not None and Path(options.output).is_dir():
        raise ValueError(f"Scores must go to a file, but {options.output} is a folder.")
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.evaluation.decoding import process_state

    total = sum(1 for _ in stream_text_files(options.source, options.target))  # before an hour of work
    lines = _lines(name, options, total)
    if not process_state().is_main_process:
        deque(lines, maxlen=0)  # takes part in the work
    elif options.output is not None:
        write_text_atomically(options.output, lines)
    else:
        for line in lines:
            print(line, end="")
    process_state().destroy_process_group()


def _lines(name: str, options: ScoreArguments, total: int) -> Iterator[str]:
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.evaluation.decoding import process_state
    from vanilla_transformer.evaluation.pair_scores import score_pairs
    from vanilla_transformer.inference.ensembles import load_ensemble
    from vanilla_transformer.inference.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.inference.token_texts import token_entries
    from vanilla_transformer.text.languages import Direction

    model, tokenizer = load_seq2seq(name, "scores translations").to(process_state().device), load_tokenizer(name)
    model = load_ensemble(model, tokenizer, options.ensemble, options.ensemble_weights)
    texts = stream_text_files(options.source, options.target)
    pairs = stream_text_files(options.source, options.target)
    direction = Direction(*map(language_settings(tokenizer, options).get, ("src_lang", "tgt_lang")))
    scored = score_pairs(model, tokenizer, pairs, options.max_tokens, total, direction)
    for text, pair in zip(texts, scored, strict=True):
        if not options.json:
            yield f"{pair.log_probability:.6f}\n"
            continue
        tokens = token_entries(tokenizer, pair.tokens, pair.token_log_probabilities)
        entry = text._asdict() | {"log_probability": pair.log_probability, "tokens": tokens}
        yield json.dumps(entry, ensure_ascii=False) + "\n"
