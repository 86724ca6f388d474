"""Compile the steps of a model for this machine."""

import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.engine_pool import convert_for_engine
from vanilla_transformer.decoding.engine.machine_cache import cache_folder, prepare_cache
from vanilla_transformer.decoding.engine.supported_models import SUPPORTED
from vanilla_transformer.decoding.options import LEAST_BEAMS
from vanilla_transformer.decoding.pretrained import load_config, load_pretrained
from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.compiler import find_compiler
from vanilla_transformer.machine.cores import usable_cores

_MOST_NEW_TOKENS = 64  # an engine needs a limit, on which no step depends


def compile_model(
    name: str,
    precision: str = "float32",
    workers: int = 1,
    num_beams: int | None = None,
    report: Callable[[str], Any] = print,
) -> None:
    """
    Compile the steps of a model, which all pipelines on this machine use afterwards.

    Args:
        name: Folder or Hub name of a model.
        workers: Number of worker processes, which divide the cores among them.
        num_beams: Beam size; by default 1 and the checkpoint's.
        report: Gets a line for each finished step.
    """
    if find_compiler() is None:
        raise UserError(
            "Compiling needs a C++ compiler, and there is none. Install g++, or name one in CXX."
        )
    prepare_cache(cache_folder())
    translates = load_config(name).is_encoder_decoder
    auto_class = AutoModelForSeq2SeqLM if translates else AutoModelForCausalLM
    original = load_pretrained(auto_class, name)
    model = convert_for_engine(original)
    if not Engine.supports(model):
        raise UserError(f"The model must be {SUPPORTED}, got {name}.")
    if not translates and workers != 1:
        raise UserError(f"--workers is for translation models, and {name} has no encoder.")
    # The beam size of the pipeline
    usual = model.generation_config.num_beams if model is original else LEAST_BEAMS
    beams = num_beams or usual or 1
    threads = max(1, min(usable_cores() // workers, torch.get_num_threads()))
    torch.set_num_threads(threads)
    for size in [beams] if num_beams else dict.fromkeys((1, beams)):
        start = time.perf_counter()
        engine = Engine(
            model,
            slots=1,
            precision=precision,
            compile=True,
            num_beams=size,
            max_new_tokens=_MOST_NEW_TOKENS,
        )
        engine.compile_steps()
        step = f"{precision}, beam size {size}, {threads} threads"
        report(f"{step}: ready after {time.perf_counter() - start:.0f} s.")
    report(f"The compiled steps are in {cache_folder()}.")
