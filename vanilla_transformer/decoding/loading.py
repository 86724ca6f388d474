"""Load the translation pipeline of a model."""

from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.errors import UserError
from vanilla_transformer.loading.model_names import check_local_model

from .engine.precision import check_precision
from .pretrained import load_seq2seq, load_tokenizer
from .translation_pipeline import TranslationPipeline

DTYPES = ("float32", "float16", "bfloat16")


def load_pipeline(
    name: str | Path,
    precision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    **further_models: Any,
) -> TranslationPipeline:
    """Load the translation pipeline of a folder or of a name on the Hub, as [`load_pretrained`]
    does.

    Args:
        precision: See [`TranslationPipeline`].
        device: See [`check_device`]; by default the accelerator if there is one.
        dtype: One of `DTYPES`, in which weights are loaded; by default the checkpoint's.
        further_models: `ensemble`, `rerank_quality` and others, see [`TranslationPipeline`].
    """
    check_local_model(name)
    if precision is not None:
        check_precision(precision)
    if device is not None:
        check_device(device)
    if dtype not in (None, *DTYPES):
        names = ", ".join(map(repr, DTYPES))
        raise UserError(f"`dtype` must be one of {names}, got {dtype!r}.")
    if dtype is not None and precision is not None:
        both = f"{dtype!r} and {precision!r}"
        raise UserError(f"Give `dtype` or `precision`, not both: got {both}.")
    model_options = {} if dtype is None else {"dtype": dtype}
    model = load_seq2seq(name, "translates", **model_options)
    options = {"precision": precision, "device": device, **further_models}
    translate = TranslationPipeline(model, load_tokenizer(name), **options)
    if precision is not None:
        # Fail now, not at the first text, if the model cannot decode with this precision.
        translate([], protect=False)
    return translate


def check_device(device: str) -> None:
    """Check that this machine has a device: `"cpu"`, or an accelerator such as `"cuda"` or
    `"cuda:1"`.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    known = ["cpu"]
    if accelerator is not None:
        known.append(accelerator.type)
        for index in range(torch.accelerator.device_count()):
            known.append(f"{accelerator.type}:{index}")
    if device not in known:
        names = ", ".join(map(repr, known))
        requirement = f"`device` must be one that this machine has: {names}"
        raise UserError(f"{requirement}; got {device!r}.")
