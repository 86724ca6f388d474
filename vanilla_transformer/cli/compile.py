"""Compile the decoding steps of a model for this machine, and keep them in the user's cache."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

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


def main(arguments: Sequence[str]) -> None:
    words, options = parse(CompileArguments, arguments, "compile MODEL [--flags]")
    name = require_one_model(words)
    chosen_slots = _check(options)
    from transformers import AutoModelForSeq2SeqLM

    from vanilla_transformer.inference.compiled_steps import cache_folder, find_compiler
    from vanilla_transformer.inference.engine import Engine
    from vanilla_transformer.inference.engine_pool import usual_slots
    from vanilla_transformer.inference.loading import load_pretrained
    from vanilla_transformer.inference.precision import cast

    if find_compiler() is None:
        raise ValueError("Compiling needs a C++ compiler, and there is none. Install g++, or name one in CXX.")
    model = load_pretrained(AutoModelForSeq2SeqLM, name)
    if not Engine.supports(model):
        raise ValueError(f"Only models with `VanillaTransformerForConditionalGeneration` can be compiled, got {name}.")
    model = cast(model, options.precision)
    beams = options.num_beams or model.generation_config.num_beams or 1
    start = time.perf_counter()
    for slots in chosen_slots or usual_slots(beams):
        engine = Engine(model, slots, num_beams=beams, precision=options.precision, compile=True)
        for room in engine.compile_steps(options.longest):
            seconds = time.perf_counter() - start
            print(f"{slots} sentences at once, up to {room} tokens: ready after {seconds:.0f} s.", flush=True)
    print(f"The compiled steps are in {cache_folder()}.")


def _check(options: CompileArguments) -> list[int]:
    """Check the flags, and return the numbers of slots that they name."""
    from vanilla_transformer.inference.precision import check_precision

    check_precision(options.precision)
    for name in ("num_beams", "longest"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} must be 1 or more, got {value}.")
    numbers = [] if options.slots is None else options.slots.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise ValueError(f"--slots must be whole numbers of 1 or more, separated by commas, got {options.slots!r}.")
    return [int(number) for number in numbers]
