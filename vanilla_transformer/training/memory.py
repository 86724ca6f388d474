"""The memory of a training process on a CPU."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def keep_freed_memory() -> None:
    """
    Has the C library of Linux keep what freed tensors leave for the next ones, in this process from now on. Otherwise
    it gives the memory of every large tensor back, and the kernel clears each page anew: a fifth of a training step.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc has it, musl has not
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
