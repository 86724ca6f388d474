"""Translate a corpus on one process, or on all processes that Accelerate started."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.decoding import TranslationPipeline

Item = TypeVar("Item")


def translate_on_all_processes(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    progress_bar: bool | None = None,
    precision: str | None = None,
    compile: bool | str = "auto",
    further_models: Mapping[str, Any] | None = None,
    **generate_kwargs: Any,
) -> list[str]:
    """Return the translations of all sentences, in order, on every process.

    Process k of n translates the sentences k, k + n, k + 2n, … All processes must call this function with the same
    sentences, since they wait for each other. The model stays on its device. The progress bar shows the share of the
    main process. See [`TranslationPipeline`] for `precision` and `compile`, and for `ensemble`,
    `ensemble_weights` and `rerank_reverse`, which `further_models` may hold.
    """
    state = process_state()
    options = {"precision": precision, "compile": compile, **(further_models or {})}
    translate = TranslationPipeline(model, tokenizer, device=model.device, **options)
    answers = translate(
        list(sentences[state.process_index :: state.num_processes]),
        progress_bar=progress_bar if state.is_main_process else False,
        **generate_kwargs,
    )
    # `gather_object` concatenates the lists of all processes, so each one passes a list of its share.
    return interleave(gather_object([[answer["translation_text"] for answer in answers]]))


def process_state() -> PartialState:
    """Return Accelerate's state: process index, number of processes and device.

    An existing `Accelerator` shares this state. Unlike an `Accelerator`, it also detects `torchrun` on a machine
    without a GPU if `ACCELERATE_USE_CPU` is not set.
    """
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available())


def interleave(shares: Sequence[Sequence[Item]]) -> list[Item]:
    """Merge n shares; share k has the items k, k + n, k + 2n, …"""
    items: list[Any] = [None] * sum(len(share) for share in shares)
    for index, share in enumerate(shares):
        items[index :: len(shares)] = share
    return items
