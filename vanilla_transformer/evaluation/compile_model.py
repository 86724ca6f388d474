"""Compile the steps of a model for this machine, and measure which precision and number of workers `auto` means."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from vanilla_transformer.decoding.engine.compiled_steps import cache_folder
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.machine_cache import prepare_cache
from vanilla_transformer.decoding.engine.precision import AUTO, measurable_precisions, save_choice
from vanilla_transformer.decoding.engine.supported_models import SUPPORTED
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained, load_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.device_utils import find_compiler, usable_cores

from .speed import MOST_BLEU_LOSS, choose_precision, compare_precisions

Report = Callable[[str], Any]
_MOST_NEW_TOKENS = 64  # an engine needs a limit, on which no step depends


def compile_model(
    name: str,
    precision: str = "float32",
    workers: int | str = 1,
    num_beams: int | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    sentences: Sequence[str] = (),
    report: Report = print,
) -> None:
    """
    Compile the steps of a model, and store what `auto` means for it on this machine.

    Args:
        name: Folder or Hub name of a model.
        precision: A precision, or "auto" for the fastest of several that loses at most `MOST_BLEU_LOSS` BLEU.
        workers: Number of worker processes, or "auto" for the fastest one.
        num_beams: Beam size; by default 1 and the checkpoint's.
        pairs: Sources and references to compare precisions.
        sentences: Sources to compare numbers of workers.
        report: Gets a line for each finished step and the tables of measurements.
    """
    if find_compiler() is None:
        raise UserError("Compiling needs a C++ compiler, and there is none. Install g++, or name one in CXX.")
    prepare_cache(cache_folder())
    translates = load_config(name).is_encoder_decoder
    model = load_pretrained(AutoModelForSeq2SeqLM if translates else AutoModelForCausalLM, name)
    if not Engine.supports(model):
        raise UserError(f"The model must be {SUPPORTED}, got {name}.")
    if not translates and (sentences or workers != 1):
        raise UserError(f"--source, --target and --workers are for translation models, and {name} has no encoder.")
    beams = num_beams or model.generation_config.num_beams or 1
    searches = [beams] if num_beams else [*dict.fromkeys((1, beams))]
    most = torch.get_num_threads()
    threads = [min(usable_cores(), most)]
    if workers != 1:
        from vanilla_transformer.extensions.scale_out import measure_workers, threads_to_compile

        threads = threads_to_compile(workers)
    _compile(model, measurable_precisions() if pairs else [precision], threads[0], searches, report)
    chosen = _choose_precision(name, model, pairs, beams, report) if pairs else precision
    for number in threads[1:]:
        _compile(model, [chosen], number, searches, report)
    report(f"The compiled steps are in {cache_folder()}.")
    if workers == AUTO:
        torch.set_num_threads(most)
        measure_workers(name, model, sentences, chosen, beams, report)


def _compile(model: Any, precisions: Sequence[str], threads: int, searches: Sequence[int], report: Report) -> None:
    """Compile the steps of each precision and beam size for a number of threads."""
    torch.set_num_threads(threads)
    for precision in precisions:
        for beams in searches:
            start = time.perf_counter()
            search: dict[str, Any] = {"num_beams": beams, "max_new_tokens": _MOST_NEW_TOKENS}
            Engine(model, slots=1, precision=precision, compile=True, **search).compile_steps()
            step = f"{precision}, beam size {beams}, {threads} threads"
            report(f"{step}: ready after {time.perf_counter() - start:.0f} s.")


def _choose_precision(name: str, model: Any, pairs: Sequence[tuple[str, str]], beams: int, report: Report) -> str:
    """Compare the precisions, report a table, and store and return the one that `auto` means on this machine."""
    results = compare_precisions(model, load_tokenizer(name), pairs, num_beams=beams)
    report("\n| precision | sentences a second | BLEU | divergence from float32, nats per token |\n|---|---|---|---|")
    for each in results:
        report(f"| {each.precision} | {each.sentences_per_second:.1f} | {each.bleu:.2f} | {each.divergence:.2g} |")
    chosen, exact = choose_precision(results), results[0]
    reason = f"{chosen.sentences_per_second / exact.sentences_per_second:.2f} times the speed of float32"
    reason = f"{reason}, BLEU {chosen.bleu - exact.bleu:+.2f}, on {len(pairs)} sentences."
    save_choice(model, chosen.precision, reason)
    report(f"\n`auto` is {chosen.precision}, the fastest that loses at most {MOST_BLEU_LOSS} BLEU: {reason}")
    return chosen.precision
