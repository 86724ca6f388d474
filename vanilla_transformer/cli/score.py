"""Compute the log-probability of given translations by forced decoding."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.file_utils import write_text_atomically

from .arguments import MODEL, parse, require_one_model
from .language_arguments import LanguageArguments, language_settings
from .model_arguments import EnsembleArguments
from .ray_arguments import RayArguments, check_engine, work_by_ray
from .shard_output import write_shards

if TYPE_CHECKING:
    from vanilla_transformer.decoding.corpus_shards import Shard


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
    resume: bool = field(default=False, metadata={"help": "With `--engine ray`: continue an interrupted `--output`."})
    max_tokens: int = field(default=2048, metadata={"help": "Maximum number of tokens per batch, padding included."})


@dataclass
class ScoreArguments(EnsembleArguments, LanguageArguments, RayArguments, _TextArguments):
    """Flags of `score`. The text files are aligned line by line; a blank line is an empty sentence."""


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ScoreArguments, arguments, "score MODEL --source FILE --target FILE [--flags]", MODEL)
    name = require_one_model(words)
    if options.max_tokens < 1:
        raise ValueError(f"`max_tokens` must be 1 or more, got {options.max_tokens}.")
    if options.output is not None and Path(options.output).is_dir():
        raise ValueError(f"Scores must go to a file, but {options.output} is a folder.")
    check_engine(options)
    if options.resume and options.engine is None:
        raise ValueError("--resume is for --engine ray. Leave it out.")
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.evaluation.decoding import process_state

    total = sum(1 for _ in stream_text_files(options.source, options.target))  # before an hour of work
    if options.engine == "ray" and options.output is not None:
        _write_by_ray(name, options, Path(options.output), total)
        return
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

    scorer = ShardScorer(name, options)
    texts = stream_text_files(options.source, options.target)
    pairs = stream_text_files(options.source, options.target)
    yield from (f"{line}\n" for line in scorer.describe(texts, pairs, total))


def _write_by_ray(name: str, options: ScoreArguments, output: Path, total: int) -> None:
    """Write the scores by the workers of a cluster."""
    from vanilla_transformer.data.readers import stream_text_files
    from vanilla_transformer.decoding.pretrained import hash_model
    from vanilla_transformer.evaluation.pair_scores import WINDOW
    from vanilla_transformer.file_utils import hash_file

    chosen = {name: getattr(options, name) for name in ("json", "max_tokens", "ensemble_weights", "source_language")}
    models = [hash_model(each) for each in (name, *(options.ensemble or []))]
    origin = {"input": [hash_file(Path(each)) for each in (options.source, options.target)], "model": models}
    origin["options"] = chosen | {"target_language": options.target_language}
    lines = (f"{pair.source}\n{pair.target}" for pair in stream_text_files(options.source, options.target))
    work = partial(work_by_ray, build=partial(ShardScorer, name, options), total=total, options=options)
    write_shards(output, lines, total, origin, WINDOW, options.resume, work)


class ShardScorer:
    """Score pairs of sentences, or shards of lines that have a sentence and its translation in two lines."""

    def __init__(self, name: str, options: ScoreArguments):
        from vanilla_transformer.decoding.pretrained import load_ensemble, load_seq2seq, load_tokenizer
        from vanilla_transformer.evaluation.decoding import process_state
        from vanilla_transformer.text.languages import Direction

        model = load_seq2seq(name, "scores translations").to(process_state().device)
        self._options, self._tokenizer = options, load_tokenizer(name)
        self._model = load_ensemble(model, self._tokenizer, options.ensemble, options.ensemble_weights)
        languages = language_settings(self._tokenizer, options)
        self._direction = Direction(*map(languages.get, ("src_lang", "tgt_lang")))

    def __call__(self, shard: "Shard") -> list[str]:
        """Return the score of each pair of a shard."""
        from vanilla_transformer.data.readers import SentencePair

        pairs = [SentencePair(*line.split("\n")) for line in shard.lines]
        return [*self.describe(pairs, pairs, len(pairs))]

    def describe(self, texts: Iterable, pairs: Iterable, total: int) -> Iterator[str]:
        """Yield the score of each pair; `texts` are the same pairs, read once more."""
        from vanilla_transformer.decoding.alignments import token_entries
        from vanilla_transformer.evaluation.pair_scores import score_pairs

        scored = score_pairs(self._model, self._tokenizer, pairs, self._options.max_tokens, total, self._direction)
        for text, pair in zip(texts, scored, strict=True):
            if not self._options.json:
                yield f"{pair.log_probability:.6f}"
                continue
            tokens = token_entries(self._tokenizer, pair.tokens, pair.token_log_probabilities)
            entry = text._asdict() | {"log_probability": pair.log_probability, "tokens": tokens}
            yield json.dumps(entry, ensure_ascii=False)
