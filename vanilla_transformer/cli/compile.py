"""Compile the decoding steps of a model for this machine, and keep them in the user's cache."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .arguments import PRECISION_HELP, parse, require_one_model


@dataclass
class CompileArguments:
    """Flags of `compile`."""

    precision: str = field(default="float32", metadata={"help": PRECISION_HELP})
    num_beams: int | None = field(default=None, metadata={"help": "Beam size; by default the checkpoint's."})
    longest: int = field(default=64, metadata={"help": "Most tokens of sentences; longer ones are decoded eagerly."})
    slots: str | None = field(
        default=None,
        metadata={"help": "Sentences decoded at once, separated by commas; by default as a pipeline uses them."},
    )
    source: str | None = field(
        default=None, metadata={"help": "Source text with which `--precision auto` compares precisions."}
    )
    target: str | None = field(default=None, metadata={"help": "Its translation, line by line."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(CompileArguments, arguments, "compile MODEL [--flags]")
    name = require_one_model(words)
    chosen_slots, pairs = _check(options)
    from transformers import AutoModelForSeq2SeqLM

    from vanilla_transformer.inference.compiled_steps import cache_folder, find_compiler
    from vanilla_transformer.inference.engine import Engine
    from vanilla_transformer.inference.engine_pool import usual_slots
    from vanilla_transformer.inference.loading import load_pretrained
    from vanilla_transformer.inference.precision import measurable_precisions

    if find_compiler() is None:
        raise ValueError("Compiling needs a C++ compiler, and there is none. Install g++, or name one in CXX.")
    model = load_pretrained(AutoModelForSeq2SeqLM, name)
    if not Engine.supports(model):
        raise ValueError(f"Only models with `VanillaTransformerForConditionalGeneration` can be compiled, got {name}.")
    beams = options.num_beams or model.generation_config.num_beams or 1
    start = time.perf_counter()
    for precision in measurable_precisions() if pairs else [options.precision]:
        engine = Engine(model, usual_slots(beams), num_beams=beams, precision=precision, compile=True)
        for size in engine.compile_steps(options.longest, chosen_slots or None):
            step = f"{precision}, {size.slots} sentences at once, up to {size.room} tokens"
            print(f"{step}: ready after {time.perf_counter() - start:.0f} s.", flush=True)
    print(f"The compiled steps are in {cache_folder()}.")
    if pairs:
        _choose_precision(name, model, pairs, beams)


def _choose_precision(name: str, model: Any, pairs: list[tuple[str, str]], beams: int) -> None:
    """Compare the precisions, print a table, and store which one `auto` means for this model on this machine."""
    from vanilla_transformer.evaluation.precisions import MOST_BLEU_LOSS, choose_precision, compare_precisions
    from vanilla_transformer.inference.loading import load_tokenizer
    from vanilla_transformer.inference.precision import save_choice

    results = compare_precisions(model, load_tokenizer(name), pairs, num_beams=beams)
    print("\n| precision | sentences a second | BLEU | divergence from float32, nats per token |\n|---|---|---|---|")
    for each in results:
        print(f"| {each.precision} | {each.sentences_per_second:.1f} | {each.bleu:.2f} | {each.divergence:.2g} |")
    chosen, exact = choose_precision(results), results[0]
    reason = f"{chosen.sentences_per_second / exact.sentences_per_second:.2f} times the speed of float32"
    reason = f"{reason}, BLEU {chosen.bleu - exact.bleu:+.2f}, on {len(pairs)} sentences."
    save_choice(model, chosen.precision, reason)
    print(f"\n`auto` is {chosen.precision}, the fastest that loses at most {MOST_BLEU_LOSS} BLEU: {reason}")


def _check(options: CompileArguments) -> tuple[list[int], list[tuple[str, str]]]:
    """Check the flags, and return the numbers of slots and the sentence pairs that they name."""
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.inference.precision import AUTO, check_precision

    check_precision(options.precision)
    for name in ("num_beams", "longest"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be 1 or more, got {value}.")
    numbers = [] if options.slots is None else options.slots.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise ValueError(f"--slots must be whole numbers of 1 or more, separated by commas, got {options.slots!r}.")
    given = [f"--{name}" for name in ("source", "target") if getattr(options, name) is not None]
    if len(given) != (2 if options.precision == AUTO else 0):
        found = ", ".join([f"--precision {options.precision}", *given])
        raise ValueError(f"--precision auto needs --source and --target, and nothing else uses them, got {found}.")
    pairs = read_text_files(options.source, options.target) if options.source and options.target else []
    return [int(number) for number in numbers], [(pair.source, pair.target) for pair in pairs]
