"""Decoding a corpus: by one process, or by all that Accelerate has started."""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.pipeline_vanilla_transformer import TranslationPipeline


def translate_on_all_processes(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    progress_bar: bool | None = None,
    **generate_kwargs: Any,
) -> list[str]:
    """
    Translations of all sentences, in their order, on every process; each process makes every n-th of them.

    With several processes all must call this with the same sentences, since they wait for each other. The model stays
    on its device. The progress bar is the main process's, over its own share.
    """
    state = processes()
    translate = TranslationPipeline(model, tokenizer, task="translation", device=model.device)
    answers = translate(
        list(sentences[state.process_index :: state.num_processes]),
        progress_bar=progress_bar if state.is_main_process else False,
        **generate_kwargs,
    )
    # A list in a list: the processes' lists are joined, one process's comes back as it is.
    return _interleave(gather_object([[answer["translation_text"] for answer in answers]]))


def processes() -> PartialState:
    """
    The processes that this one is of, and its device, as Accelerate sees them; the state of an `Accelerator` where one
    exists. Unlike an `Accelerator` it sees those of `torchrun` on a machine without a GPU even where
    `ACCELERATE_USE_CPU` is not set.
    """
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available())


def _interleave(shares: Sequence[Sequence[str]]) -> list[str]:
    """Undoes the dealing out: share k holds the texts k, k + n, k + 2n, … of n shares."""
    texts = [""] * sum(len(share) for share in shares)
    for index, share in enumerate(shares):
        texts[index :: len(shares)] = share
    return texts
