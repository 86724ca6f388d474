"""Masks of attention, and cuDNN's attention."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def expand_mask(seen: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Return a mask of padding `(W, S)`, 1 for tokens, as "sdpa" or "eager" attention takes it:
    `(W, 1, 1, S)`.

    The function of transformers reads from the device whether there is padding.
    """
    expanded = seen.bool()[:, None, None]
    return additive_mask(expanded, dtype) if attention == "eager" else expanded


def additive_mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to the scores of attention: 0 where `seen`, the lowest number of `dtype`
    elsewhere.
    """
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)


_cudnn_lock = threading.Lock()
# The setting at the beginning of each block that keeps cuDNN off, of all threads
_cudnn_before: list[bool] = []


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Keep cuDNN's attention off: it plans for a tenth of a second, and up to a second, at each new
    shape.
    """
    with _cudnn_lock:
        _cudnn_before.append(torch.backends.cuda.cudnn_sdp_enabled())
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        with _cudnn_lock:
            before = _cudnn_before.pop()
            if not _cudnn_before:  # `before` is of the first block
                torch.backends.cuda.enable_cudnn_sdp(before)
