"""
Compare the speed of every search with plain beam search of as many beams, in one run, taking turns.

    python -m benchmarks.bench_searches --folder runs/mine --sentences test.en
    python -m benchmarks.bench_searches

The first command translates the first lines of a text with a trained model. The second one decodes 64 sentences of 24
tokens with random weights into exactly 32 tokens each. The engine decodes all of them, in as many slots as in the
pipeline. The best of several rounds counts; "share" is the speed of a search as a share of plain search's, so 1 is as
fast.
"""

import copy
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import describe_processor
from benchmarks.random_models import random_model
from vanilla_transformer import Engine
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.decoding.engine.device_profile import usual_slots
from vanilla_transformer.decoding.engine.ensemble import Ensemble
from vanilla_transformer.decoding.forced_decoding import next_tokens

Search = Callable[[], Any]
_SENTENCES, _SOURCE_TOKENS, _TARGET_TOKENS = 64, 24, 32
_MODELS = 3  # of an ensemble, whose share is 1 / 3 if nothing but the models takes time
_PREFIX = 4  # tokens of each target prefix: the first ones of the plain translation


@dataclass
class BenchmarkArguments:
    """The model, the text and the length of the benchmark."""

    folder: str | None = field(default=None, metadata={"help": "Trained model that translates `sentences`."})
    sentences: str | None = field(default=None, metadata={"help": "Source text to translate."})
    count: int = field(default=200, metadata={"help": "Number of sentences to translate."})
    size: str = field(default="small", metadata={"help": "Size of the model with random weights."})
    num_beams: int = field(default=4, metadata={"help": "Beam size of every search, or its number of samples."})
    rounds: int = field(default=3, metadata={"help": "Rounds per search."})
    compile: bool = field(default=False, metadata={"help": "Compile the steps first, which takes minutes."})


@dataclass
class Task:
    """A model, its sources, and the options that all searches share."""

    model: Any
    sources: list[list[int]]
    options: dict[str, Any]
    beams: int
    plain: list[list[int]] = field(default_factory=list)

    def engine(self, **options: Any) -> Engine:
        options = {"num_beams": self.beams} | self.options | options
        return Engine(self.model, usual_slots(options["num_beams"], self.model.device), **options)


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "bench_searches.py [--flags]")
    if words:
        raise ValueError(f"This command takes only flags, got {words[0]!r}.")
    task = _task(options)
    plain = task.engine()
    task.plain = [best.tokens for (best, *_) in plain.translate_tokens(task.sources)]
    searches = {"plain": partial(plain.translate_tokens, task.sources)} | {
        name: build(task) for name, build in SEARCHES.items()
    }
    seconds = _measure(searches, options.rounds)
    print(f"{describe_processor()}; {torch.get_num_threads()} threads; beams or samples: {task.beams}\n")
    print("| search | sentences a second | share |\n|---|---|---|")
    for name, best in seconds.items():
        print(f"| {name} | {len(task.sources) / best:.1f} | {seconds['plain'] / best:.2f} |")


def _task(options: BenchmarkArguments) -> Task:
    torch.manual_seed(0)
    compile = options.compile
    if options.folder is None:
        model = random_model(options.size)
        eos: Any = model.config.eos_token_id
        ids = torch.randint(3, model.config.vocab_size, (_SENTENCES, _SOURCE_TOKENS)).tolist()
        decoding = {"max_new_tokens": _TARGET_TOKENS, "compile": compile}
        return Task(model, [[*row, eos] for row in ids], decoding, options.num_beams)
    if options.sentences is None:
        raise ValueError("`folder` translates a text. Give it as `--sentences FILE`.")
    from vanilla_transformer.data.readers import read_lines
    from vanilla_transformer.decoding.pretrained import load_seq2seq, load_tokenizer
    from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences

    lines = [line for line in read_lines(options.sentences) if line.strip()][: options.count]
    sources = encode_sentences(load_tokenizer(options.folder), lines)
    return Task(load_seq2seq(Path(options.folder), "translates"), sources, {"compile": compile}, options.num_beams)


def _measure(searches: dict[str, Search], rounds: int) -> dict[str, float]:
    """Return the least seconds of each search, after one round that warms up."""
    seconds = dict.fromkeys(searches, float("inf"))
    for number in range(rounds + 1):
        for name, search in searches.items():
            start = time.perf_counter()
            search()
            if number:
                seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def _n_best(task: Task) -> Search:
    return partial(task.engine().translate_tokens, task.sources, task.beams)


def _samples(task: Task) -> Search:
    return partial(task.engine(do_sample=True, num_beams=1).translate_tokens, task.sources, task.beams, 1)


def _begin(task: Task) -> list[list[int]]:
    return [tokens[:_PREFIX] if len(tokens) > _PREFIX else [] for tokens in task.plain]


def _prefixes(task: Task) -> Search:
    return partial(task.engine(prefixed=True).translate_tokens, task.sources, prefixes=_begin(task))


def _biased_prefixes(task: Task) -> Search:
    engine = task.engine(prefixed=True, prefix_bias=0.5)
    return partial(engine.translate_tokens, task.sources, prefixes=_begin(task))


def _alternatives(task: Task) -> Search:
    """Complete as many translations as there are sources: several alternatives of some of them."""
    engine, count = task.engine(prefixed=True), task.beams
    some, prefixes = task.sources[::count], _begin(task)[::count]
    repeated = [source for source in some for _ in range(count)][: len(task.sources)]

    def search() -> Any:
        tokens = next_tokens(task.model, some, prefixes, count, [])
        longer = [[*prefix, token] for prefix, found in zip(prefixes, tokens, strict=True) for token in found]
        return engine.translate_tokens(repeated, prefixes=longer[: len(repeated)])

    return search


def _coverage(task: Task) -> Search:
    return partial(task.engine(coverage_penalty=0.2).translate_tokens, task.sources)


def _groups(task: Task) -> Search:
    engine = task.engine(num_beam_groups=2, diversity_penalty=0.5)
    return partial(engine.translate_tokens, task.sources, task.beams)


def _ensemble(task: Task) -> Search:
    models = [task.model, *(copy.deepcopy(task.model) for _ in range(_MODELS - 1))]
    engine = replace(task, model=Ensemble(models)).engine()
    return partial(engine.translate_tokens, task.sources)


def _constrained(task: Task, tokens: Sequence[Sequence[int]]) -> Search:
    phrases = [[[token] for token in each[:1]] for each in tokens]
    return partial(task.engine(constraint_tokens=8).translate_tokens, task.sources, phrases=phrases)


def _likely_constraints(task: Task) -> Search:
    """Require a token of the second best translation that the best one lacks."""
    found = task.engine().translate_tokens(task.sources, 2)
    return _constrained(
        task, [[token for token in second.tokens if token not in best.tokens] for best, second in found]
    )


def _unlikely_constraints(task: Task) -> Search:
    """Require a token from the middle of another sentence's translation."""
    others = [*task.plain[1:], task.plain[0]]
    return _constrained(task, [tokens[:-1][len(tokens) // 2 :] for tokens in others])


# Each maps the task to a search, which is built once.
SEARCHES: dict[str, Callable[[Task], Search]] = {"n-best": _n_best, "samples": _samples, "target prefix": _prefixes}
SEARCHES |= {"biased prefix": _biased_prefixes, "alternatives": _alternatives, "coverage penalty": _coverage}
SEARCHES |= {"2 beam groups": _groups, "likely constraint": _likely_constraints}
SEARCHES |= {"unlikely constraint": _unlikely_constraints}
SEARCHES |= {f"ensemble of {_MODELS}": _ensemble}


if __name__ == "__main__":
    sys.exit(run(main))
