"""Compile the decoding steps of a model for this machine, and keep them in the user's cache."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .arguments import MODEL, PRECISION_HELP, parse, parse_workers, require_one_model


@dataclass
class CompileArguments:
    """Flags of `compile`."""

    precision: str = field(default="float32", metadata={"help": PRECISION_HELP})
    workers: str = field(
        default="1",
        metadata={
            "help": "Processes of `translate --workers` for which to compile; auto compares 1, 2, 4, ... by "
            "translating the source text."
        },
    )
    num_beams: int | None = field(
        default=None, metadata={"help": "Beam size; by default 1, which is greedy search, and the checkpoint's."}
    )
    source: str | None = field(
        default=None, metadata={"help": "Source text with which `auto` compares precisions or numbers of workers."}
    )
    target: str | None = field(
        default=None, metadata={"help": "Its translation, line by line, to compare precisions."}
    )


def main(arguments: Sequence[str]) -> None:
    if any(word.split("=")[0] == "--slots" for word in arguments):
        raise ValueError("`--slots` is gone: compiled steps serve any number of sentences.")
    words, options = parse(CompileArguments, arguments, "compile MODEL [--flags]", MODEL)
    name = require_one_model(words)
    pairs, sentences = _check(options)
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    from vanilla_transformer.decoding.engine.compiled_steps import cache_folder
    from vanilla_transformer.decoding.engine.engine import Engine
    from vanilla_transformer.decoding.engine.machine_cache import prepare_cache
    from vanilla_transformer.decoding.engine.precision import AUTO, measurable_precisions
    from vanilla_transformer.decoding.engine.supported_models import SUPPORTED
    from vanilla_transformer.decoding.engine_workers import threads_of, worker_counts
    from vanilla_transformer.decoding.pretrained import load_config, load_pretrained
    from vanilla_transformer.device_utils import find_compiler, usable_cores

    if find_compiler() is None:
        raise ValueError("Compiling needs a C++ compiler, and there is none. Install g++, or name one in CXX.")
    prepare_cache(cache_folder())
    translates = load_config(name).is_encoder_decoder
    model = load_pretrained(AutoModelForSeq2SeqLM if translates else AutoModelForCausalLM, name)
    if not Engine.supports(model):
        raise ValueError(f"The model must be {SUPPORTED}, got {name}.")
    if not translates and (sentences or options.workers != "1"):
        raise ValueError(f"--source, --target and --workers are for translation models, and {name} has no encoder.")
    beams = options.num_beams or model.generation_config.num_beams or 1
    searches = [beams] if options.num_beams else [*dict.fromkeys((1, beams))]
    cores, most = usable_cores(), torch.get_num_threads()
    workers = parse_workers(options.workers)
    counts = worker_counts(cores, most) if workers == AUTO else [int(workers)]
    threads = [*dict.fromkeys(threads_of(count, cores, most) for count in counts)]
    precisions = measurable_precisions() if pairs else [options.precision]
    _compile(model, precisions, threads[0], searches)
    chosen = _choose_precision(name, model, pairs, beams) if pairs else options.precision
    for number in threads[1:]:
        _compile(model, [chosen], number, searches)
    print(f"The compiled steps are in {cache_folder()}.")
    if workers == AUTO:
        torch.set_num_threads(most)
        _choose_workers(name, model, sentences, counts, chosen, beams)


def _compile(model: Any, precisions: list[str], threads: int, searches: list[int]) -> None:
    """Compile the steps of each precision and beam size for a number of threads."""
    import torch

    from vanilla_transformer.decoding.engine.engine import Engine

    torch.set_num_threads(threads)
    for precision in precisions:
        for beams in searches:
            start = time.perf_counter()
            search: dict[str, Any] = {"num_beams": beams, "max_new_tokens": 64}  # a limit, on which no step depends
            Engine(model, slots=1, precision=precision, compile=True, **search).compile_steps()
            step = f"{precision}, beam size {beams}, {threads} threads"
            print(f"{step}: ready after {time.perf_counter() - start:.0f} s.", flush=True)


def _choose_precision(name: str, model: Any, pairs: list[tuple[str, str]], beams: int) -> str:
    """Compare the precisions, print a table, and store and return the one that `auto` means on this machine."""
    from vanilla_transformer.decoding.engine.precision import save_choice
    from vanilla_transformer.decoding.pretrained import load_tokenizer
    from vanilla_transformer.evaluation.precisions import MOST_BLEU_LOSS, choose_precision, compare_precisions

    results = compare_precisions(model, load_tokenizer(name), pairs, num_beams=beams)
    print("\n| precision | sentences a second | BLEU | divergence from float32, nats per token |\n|---|---|---|---|")
    for each in results:
        print(f"| {each.precision} | {each.sentences_per_second:.1f} | {each.bleu:.2f} | {each.divergence:.2g} |")
    chosen, exact = choose_precision(results), results[0]
    reason = f"{chosen.sentences_per_second / exact.sentences_per_second:.2f} times the speed of float32"
    reason = f"{reason}, BLEU {chosen.bleu - exact.bleu:+.2f}, on {len(pairs)} sentences."
    save_choice(model, chosen.precision, reason)
    print(f"\n`auto` is {chosen.precision}, the fastest that loses at most {MOST_BLEU_LOSS} BLEU: {reason}")
    return chosen.precision


def _choose_workers(
    name: str, model: Any, sentences: list[str], counts: list[int], precision: str, beams: int
) -> None:
    """Compare numbers of workers, print a table, and store the one that `auto` means on this machine."""
    import torch

    from vanilla_transformer.decoding.engine_workers import save_workers, threads_of
    from vanilla_transformer.device_utils import usable_cores
    from vanilla_transformer.evaluation.worker_counts import choose_workers, compare_workers

    results = compare_workers(name, sentences, counts, precision, num_beams=beams)
    print("\n| workers | threads of each | sentences a second |\n|---|---|---|")
    for each in results:
        threads = threads_of(each.workers, usable_cores(), torch.get_num_threads())
        speed = f"{each.sentences_per_second:.1f}" if each.sentences_per_second else "not enough memory"
        print(f"| {each.workers} | {threads} | {speed} |")
    chosen, one = choose_workers(results), results[0]
    reason = f"{chosen.sentences_per_second / one.sentences_per_second:.2f} times the speed of one."
    save_workers(model, precision, beams, chosen.workers, reason)
    print(f"\n`--workers auto` is {chosen.workers}: {reason}")


def _check(options: CompileArguments) -> tuple[list[tuple[str, str]], list[str]]:
    """Check the flags, and return the sentence pairs and the sentences that they name."""
    from vanilla_transformer.data.readers import read_lines, read_text_files
    from vanilla_transformer.decoding.engine.precision import AUTO, check_precision

    check_precision(options.precision)
    parse_workers(options.workers)
    if options.num_beams is not None and options.num_beams < 1:
        raise ValueError(f"--num_beams must be 1 or more, got {options.num_beams}.")
    needed = {"source", "target"} if options.precision == AUTO else {"source"} if options.workers == AUTO else set()
    given = {name for name in ("source", "target") if getattr(options, name) is not None}
    if given != needed:
        found = ", ".join([f"--precision {options.precision}", f"--workers {options.workers}"])
        found = ", ".join([found, *(f"--{name}" for name in sorted(given))])
        rule = "--precision auto needs --source and --target, --workers auto needs --source"
        raise ValueError(f"{rule}, and nothing else uses them, got {found}.")
    if options.source and options.target:
        pairs = [(pair.source, pair.target) for pair in read_text_files(options.source, options.target)]
        return pairs, [source for source, _ in pairs]
    sentences = [line for line in read_lines(options.source) if line] if options.source else []
    return [], sentences
